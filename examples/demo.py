"""From text to vectors in one command: corpus, vocabulary, pretraining, perplexity, word senses, pictures.

`make demo`, or `python examples/demo.py --folder demo --seconds 150`. The text is English prose that comes with Python:
the topics of the language reference, and the docstrings of the standard library.
"""

import argparse
import ast
import hashlib
import itertools
import pathlib
import random
import re
import shutil
import sys
import sysconfig
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from elmo_fast import ElmoEmbedder, ScalarMix
from elmo_fast.corpus import Corpus, prepare, read_corpus
from elmo_fast.embed.layers import unit_rows
from elmo_fast.errors import ElmoFastError
from elmo_fast.pictures import draw_curves, find_occurrences, layer_weights, occurrence_vectors
from elmo_fast.pretrain.config import PretrainConfig, load_preset
from elmo_fast.pretrain.evaluate import Perplexity, evaluate
from elmo_fast.pretrain.language_model import make_language_model
from elmo_fast.pretrain.metrics import read_metrics
from elmo_fast.pretrain.run import RunResult, pretrain
from elmo_fast.static import context_free_vectors, nearest_words
from elmo_fast.tokens import in_context

PARTS = ("train.txt", "heldout.txt", "corpus", "model", "loss.png", "layers.png")
# Perplexity must fall to this share of its initial value, or the demonstration has failed.
WANTED_SHARE = 0.25
SENTENCES = 1500
# The top layer, whose vectors depend most on context.
LAYER = -1
PROBES_TITLE = "What each layer is used for: scalar mixes trained on two probes"
TOKEN = re.compile(r"[^\W\d]\w*(?:'[a-z]+)?|\d+|[^\w\s]")
SENTENCE_END = re.compile(r"(?<=[.!?:])\s+(?=[A-Z\"'`*(])")
# How many of 100 documents are held out.
HELDOUT_PERCENT = 6
SHORTEST = 4
TOPN, CONTEXT = 4, 4
# (word, two pairs of (meaning, sentence)): one word in two uses, both of which occur in the text.
QUERIES = (
    (
        "set",
        ("a collection", "Return a new set with elements from the set and all others ."),
        ("to give a value", "This attribute is set to True if the file is not closed ."),
    ),
    (
        "return",
        ("a noun", "The return value of the function is a string ."),
        ("a verb", "This method should return a list of strings ."),
    ),
    (
        "time",
        ("what a clock shows", "Return the current time in seconds ."),
        ("an occasion", "The first time the function is called , it returns None ."),
    ),
)
# Words that the text does not contain.
COMMON = 10  # occurrences of the words that they are compared with
UNSEEN = ("rewritable", "reformatting", "preloading", "misconfigured")
STEPS = 150  # of a probe's training


def documents() -> Iterator[tuple[str, str]]:
    """Name and text of each topic, and of each module of the standard library without tests and other packages."""
    from pydoc_data.topics import topics

    yield from ((f"topic {name}", text) for name, text in topics.items())
    library = pathlib.Path(sysconfig.get_path("stdlib"))
    for path in sorted(library.rglob("*.py")):
        parts = path.relative_to(library).parts
        if {"site-packages", "dist-packages", "test", "tests", "idlelib", "lib2to3", "pydoc_data"} & set(parts):
            continue
        try:
            tree = ast.parse(path.read_text(encoding="utf-8"))
        except (SyntaxError, UnicodeDecodeError, OSError):
            continue  # files that are broken on purpose, or unreadable here, contain no documentation
        kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
        texts = [ast.get_docstring(node) for node in ast.walk(tree) if isinstance(node, kinds)]
        yield "/".join(parts), "\n\n".join(filter(None, texts))


def sentences(document: str) -> Iterator[tuple[str, ...]]:
    """The sentences of a document as tokens: paragraphs split at full stops, without code examples and drawings."""
    for paragraph in re.split(r"\n\s*\n", document):
        lines = [line.strip() for line in paragraph.splitlines()]
        if any(line.startswith((">>>", "...", "+--", "|", "==", "--", "**")) for line in lines):
            continue
        for sentence in SENTENCE_END.split(" ".join(lines)):
            tokens = tuple(TOKEN.findall(sentence))
            words = sum(token[0].isalpha() for token in tokens)
            if len(tokens) >= SHORTEST and words * 2 >= len(tokens):
                yield tokens


def is_heldout(name: str) -> bool:
    """Whether a document is excluded from training: the same choice on every machine."""
    return int(hashlib.sha256(name.encode()).hexdigest(), 16) % 100 < HELDOUT_PERCENT


def write_corpus(folder: pathlib.Path) -> tuple[pathlib.Path, pathlib.Path]:
    """Writes train.txt and heldout.txt, one sentence per line, no sentence twice, so that none is in both."""
    seen: set[tuple[str, ...]] = set()
    lines: dict[bool, list[str]] = {True: [], False: []}
    for name, document in documents():
        for tokens in sentences(document):
            if tokens not in seen:
                seen.add(tokens)
                lines[is_heldout(name)].append(" ".join(tokens))
    paths = (folder / "train.txt", folder / "heldout.txt")
    for path, heldout in zip(paths, (False, True), strict=True):
        path.write_text("\n".join(lines[heldout]) + "\n", encoding="utf-8")
    return paths


def ends_in_s(tokens: Sequence[str]) -> list[bool]:
    """A property of the spelling: does the token end in s?"""
    return [token.endswith("s") for token in tokens]


def after_determiner(tokens: Sequence[str]) -> list[bool]:
    """A property of the context: is one of the two tokens before a, an or the?"""
    return [bool({"a", "an", "the"} & {t.lower() for t in tokens[max(0, i - 2) : i]}) for i in range(len(tokens))]


TASKS: dict[str, Callable[[Sequence[str]], list[bool]]] = {
    "ends in s": ends_in_s,
    "a, an or the one or two before": after_determiner,
}


class Probe(NamedTuple):
    """A trained probe.

    weights: softmax of the mix's, one per layer, lowest first; accuracy: on held-out text; majority: that of always
    giving the more common answer.
    """

    task: str
    weights: list[float]
    accuracy: float
    majority: float


def layers_of(embedder: ElmoEmbedder, sentences: Sequence[Sequence[str]]) -> list[Tensor]:
    """The vectors of all tokens by each layer, [N, 2D] each, scaled to a mean square of 1."""
    stacked = torch.from_numpy(np.concatenate(list(embedder.embed_sentences(sentences)), axis=1))
    return list((stacked / stacked.square().mean(dim=(1, 2), keepdim=True).sqrt()).unbind(0))


def train_probe(task: str, train: list[Tensor], heldout: list[Tensor], labels: Tensor, heldout_labels: Tensor) -> Probe:
    """Fits softmax(w)-weighted layers and one linear unit by logistic regression; the layers are not trained."""
    torch.manual_seed(0)
    mix, unit = ScalarMix(len(train)), nn.Linear(train[0].shape[1], 1)
    optimizer = torch.optim.Adam([{"params": mix.parameters(), "lr": 0.05}, {"params": unit.parameters(), "lr": 0.02}])
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = nn.functional.binary_cross_entropy_with_logits(unit(mix(train)).squeeze(1), labels)
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        right = (unit(mix(heldout)).squeeze(1) > 0) == heldout_labels.bool()
        weights = torch.softmax(torch.cat(list(mix.scalar_parameters)), 0)
    share = heldout_labels.mean().item()
    return Probe(task, weights.tolist(), right.float().mean().item(), max(share, 1 - share))


def probes(embedder: ElmoEmbedder, train: Sequence[Sequence[str]], heldout: Sequence[Sequence[str]]) -> list[Probe]:
    """One probe per task, trained on some sentences and judged on others."""
    embedder.reset_states()
    layers, heldout_layers = layers_of(embedder, train), layers_of(embedder, heldout)
    done = []
    for task, answer in TASKS.items():
        labels, heldout_labels = (
            torch.tensor([value for tokens in side for value in answer(tokens)], dtype=torch.float32)
            for side in (train, heldout)
        )
        done.append(train_probe(task, layers, heldout_layers, labels, heldout_labels))
    return done


def configuration(folder: pathlib.Path, seconds: float) -> PretrainConfig:
    """The preset tiny on the corpus of the folder, limited to `seconds`."""
    config = load_preset("tiny")
    config.data.train_prefix = str(folder / "corpus")
    config.run.save_dir = str(folder / "model")
    config.run.max_seconds = seconds
    config.optimizer.n_epochs = 1000
    return config


def targets(corpus: Corpus) -> npt.NDArray[np.float64]:
    """How often each word of the vocabulary is to be predicted, [V]; a sentence's end is one."""
    counts = corpus.counts[: len(corpus.vocabulary)].astype(np.float64)
    counts[corpus.vocabulary.unk], counts[corpus.vocabulary.eos] = corpus.unknown, corpus.sentences
    return counts


def perplexity_by_frequency(train: Corpus, heldout: Corpus) -> float:
    """The perplexity of held-out text by how often each word occurs in training, plus one, and no context."""
    counts, occurring = targets(train) + 1, targets(heldout)
    return float(np.exp(-(occurring @ np.log(counts / counts.sum())) / occurring.sum()))


def train(folder: pathlib.Path, seconds: float) -> tuple[RunResult, Perplexity, Perplexity]:
    """Pretrains, and returns the held-out perplexity before and after."""
    config = configuration(folder, seconds)
    corpus = prepare(str(folder / "train.txt"), folder / "corpus", min_count=config.data.min_count)
    heldout = read_corpus(str(folder / "heldout.txt"), corpus.vocabulary)
    before = evaluate(make_language_model(config, len(corpus.vocabulary)), heldout)
    print(f"before training: held-out perplexity {before}")
    config.data.heldout_prefix = str(folder / "heldout.txt")
    run = pretrain(config)
    if run.stopped_by == "interrupt" or (after := run.heldout) is None:
        raise KeyboardInterrupt
    print(f"\nafter training:  held-out perplexity {after}")
    by_frequency = perplexity_by_frequency(corpus, heldout)
    print(f"                 {before.mean / after.mean:.1f} times lower, word frequencies alone: {by_frequency:.1f}\n")
    return run, before, after


def sample(path: pathlib.Path, count: int) -> list[list[str]]:
    """A fixed sample of a file's sentences."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return [line.split() for line in random.Random(0).sample(lines, min(count, len(lines)))]


def nearest_contexts(
    query: npt.NDArray[np.float32], vectors: npt.NDArray[np.float32], contexts: Sequence[str]
) -> dict[str, float]:
    """The TOPN distinct contexts whose vectors, with their mean subtracted, are nearest -> cosine."""
    mean = vectors.mean(0)
    cosines = (unit_rows(vectors - mean) @ unit_rows(query - mean)).tolist()
    best: dict[str, float] = {}
    for context, cosine in sorted(zip(contexts, cosines, strict=True), key=lambda each: -each[1]):
        best.setdefault(context, cosine)
    return dict(itertools.islice(best.items(), TOPN))


def show_senses(embedder: ElmoEmbedder, text: pathlib.Path) -> None:
    """Prints, for each word in two uses, the occurrences of the same word in the text whose vectors are nearest."""
    for word, *uses in QUERIES:
        occurrences, total = find_occurrences(text, word)
        vectors = occurrence_vectors(embedder, occurrences)
        contexts = [in_context(occurrence.tokens, occurrence.place, CONTEXT) for occurrence in occurrences]
        print(f"{word!r} occurs {total:,} times in the training text. The nearest by the top layer (cosine):")
        for meaning, sentence in uses:
            tokens = sentence.split()
            query = embedder.embed_sentence(tokens)[LAYER][tokens.index(word)]
            print(f"\n  {meaning}: {sentence}")
            for context, cosine in nearest_contexts(query, vectors, contexts).items():
                print(f"    {cosine:.2f}  {context}")
        print()


def show_spellings(embedder: ElmoEmbedder, text: pathlib.Path) -> None:
    """Prints, for words that the text does not contain, its words that are nearest by their characters."""
    counts = Counter(text.read_text(encoding="utf-8").split())
    known = [word for word, count in counts.items() if count >= COMMON and word.isalpha() and word.islower()]
    unseen = [word for word in UNSEEN if word not in counts]
    vectors = context_free_vectors(embedder.elmo_bilm, [*unseen, *known])
    print("Words that training never showed, and the nearest of the text by characters alone (layer 0):")
    for word, near in zip(unseen, nearest_words(vectors, unseen, TOPN), strict=True):
        print(f"  {word:14}  {', '.join(each for each, _ in near)}")
    print()


def demonstrate(folder: pathlib.Path, seconds: float) -> bool:
    """Runs everything; returns whether the perplexity fell far enough."""
    print("reading the documentation of this Python ...")
    paths = write_corpus(folder)
    run, before, after = train(folder, seconds)
    # With stateful=False the vectors of a sentence depend only on that sentence.
    embedder = ElmoEmbedder(run.folder, None, stateful=False)
    example = ["Return", "the", "string", "."]
    print(
        f"embedding {' '.join(example)!r}: shape {embedder.embed_sentence(example).shape} (layers, tokens, numbers)\n"
    )
    train_sample, heldout_sample = sample(paths[0], SENTENCES), sample(paths[1], SENTENCES)
    show_senses(embedder, paths[0])
    show_spellings(embedder, paths[0])
    trained = probes(embedder, train_sample, heldout_sample)
    for probe in trained:
        weights = ", ".join(f"{weight:.2f}" for weight in probe.weights)
        print(
            f"probe {probe.task!r}: weights of the layers {weights}; accuracy {probe.accuracy:.1%} on held-out text "
            f"({probe.majority:.1%} for the more common answer)"
        )
    pictures = folder / "loss.png", folder / "layers.png"
    draw_curves({"tiny": read_metrics(run.folder)}, pictures[0])
    layer_weights(
        {f"{probe.task}: {probe.accuracy:.0%}": probe.weights for probe in trained}, pictures[1], PROBES_TITLE
    )
    print(f"\ntext      {paths[0]}  {paths[1]}\ncorpus    {folder / 'corpus'}\nmodel     {run.folder}")
    print(f"pictures  {'  '.join(map(str, pictures))}")
    return after.mean < WANTED_SHARE * before.mean


def prepared(name: str) -> pathlib.Path:
    """The folder to write to, cleared of an earlier demonstration's results; other files stay."""
    folder = pathlib.Path(name).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    for part in PARTS:
        path = folder / part
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    return folder


def main(argv: Sequence[str] | None = None) -> int:
    """0 if the held-out perplexity fell to a quarter or less, 1 if it did not, 2 for an error that the user can fix."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--folder", default="demo", help="where to write (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=150, help="of pretraining (default: %(default)s)")
    arguments = parser.parse_args(argv)
    began = time.monotonic()
    try:
        fell = demonstrate(prepared(arguments.folder), arguments.seconds)
    except KeyboardInterrupt:
        print("demo: interrupted", file=sys.stderr)
        return 130
    except (ElmoFastError, OSError) as error:
        print(f"demo: {error}", file=sys.stderr)
        return 2
    print(f"total: {time.monotonic() - began:.0f} s")
    scripts = pathlib.Path(sys.executable).parent
    print(f"next: `. {scripts / 'activate'}`, then elmo-fast --help and the commands of README.md")
    if not fell:
        print(f"FAILED: held-out perplexity did not fall to {WANTED_SHARE:.0%} of the first", file=sys.stderr)
    return 0 if fell else 1


if __name__ == "__main__":
    raise SystemExit(main())
