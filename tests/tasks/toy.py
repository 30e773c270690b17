"""A toy language whose tags follow from word and neighbour, as files; and a configuration that is done in seconds."""

import pathlib
import random

from elmo_fast.checkpoints.safetensors_folder import read_tensor_file
from elmo_fast.tasks.config import TaskConfig
from tests.support.weights import make_weights

NOUNS, VERBS, NAMES = ["cat", "dog", "hill", "bird"], ["sees", "likes", "runs"], ["Ann", "Bob", "Eve"]


def sentence(chance):
    """(words, tags): "light" is a noun after "the" and a verb else; names are spans of one or two words."""
    words, tags = [], []
    for _ in range(chance.randint(1, 4)):
        kind = chance.randrange(4)
        if kind == 0:
            words += ["the", chance.choice([*NOUNS, "light"])]
            tags += ["DET", "NOUN"]
        elif kind == 1:
            words += [chance.choice([*VERBS, "light"])]
            tags += ["VERB"]
        elif kind == 2:
            words += [chance.choice(NAMES)]
            tags += ["NAME"]
        else:
            words += ["and", chance.choice(NAMES)]
            tags += ["CONJ", "NAME"]
    return words, tags


def bio(tags):
    """Tags of spans: names that stand together are one."""
    marked = ["NAME" if tag == "NAME" else "O" for tag in tags]
    before = ["O", *marked]
    return ["O" if tag == "O" else "I-NAME" if before[i] == "NAME" else "B-NAME" for i, tag in enumerate(marked)]


def write_columns(path, count, seed, *, spans=False):
    """A file of `count` sentences in columns."""
    chance, lines = random.Random(seed), []
    for _ in range(count):
        words, tags = sentence(chance)
        tags = bio(tags) if spans else tags
        lines += [*(f"{word}\t{tag}\n" for word, tag in zip(words, tags, strict=True)), "\n"]
    path.write_text("".join(lines))
    return str(path)


def write_tsv(path, count, seed):
    """A file of `count` labelled sentences: whether somebody is named."""
    chance, lines = random.Random(seed), []
    for _ in range(count):
        words, tags = sentence(chance)
        lines.append(f"{'named' if 'NAME' in tags else 'nobody'}\t{' '.join(words)}\n")
    path.write_text("".join(lines))
    return str(path)


def toy_config(folder, *, classify=False, spans=False, elmo="none", **changes):
    """A run over toy files in `folder`, made where they are not there yet; ELMo's random weights too."""
    folder.mkdir(parents=True, exist_ok=True)
    kind = "tsv" if classify else "bio" if spans else "conll"
    for seed, (split, count) in enumerate({"train": 120, "dev": 40, "test": 40}.items()):
        path = folder / f"{split}.{kind}"
        if not path.exists():
            write_tsv(path, count, seed) if classify else write_columns(path, count, seed, spans=spans)
    if elmo != "none" and not (folder / "bilm").exists():
        make_weights(folder / "bilm")
    settings = {
        "task": "classify" if classify else "tag", "save_dir": str(folder / "run"), "elmo": elmo,
        "model": None if elmo == "none" else str(folder / "bilm"), "hidden": 16, "epochs": 6,
        "word_dim": 0 if changes.get("vectors") else 12, "learning_rate": 0.01, "batch_size": 16,
        "dropout": 0.1, "elmo_dropout": 0.1,
    } | {f"{split}_path": str(folder / f"{split}.{kind}") for split in ("train", "dev", "test")}  # fmt: skip
    return TaskConfig(**settings | changes)


def silent(line):
    """Takes a line and says nothing."""


def weights_of(config):
    """The trained weights of a run, by their names in the model: the task's, and those of a fine-tuned biLM."""
    folder = pathlib.Path(config.save_dir)
    bilm = read_tensor_file(folder / "model.safetensors")[0] if config.fine_tune else {}
    return read_tensor_file(folder / "task.safetensors")[0] | {f"elmo.trained_bilm.{name}": bilm[name] for name in bilm}
