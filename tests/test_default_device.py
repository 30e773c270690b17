"""torch.set_default_device changes no result: what the CPU computes stays there, and modules are where torch's are.

The other default is a GPU or, without one, the device meta, where a tensor that was created by default has no values.
"""

import ast
import functools
import pathlib

import numpy as np
import pytest
import torch

import elmo_fast
from elmo_fast import ElmoEmbedder, ElmoVectors, batch_to_ids, static
from elmo_fast.compat.allennlp import ELMoTokenCharactersIndexer
from elmo_fast.compat.tensorflow_hub import Module
from elmo_fast.pretrain.run import pretrain
from elmo_fast.tasks import evaluate_task, load_task, predict_task, train_task
from elmo_fast.tokens import TextTokens
from tests.pretrain import toy as language
from tests.support.weights import make_weights
from tests.tasks import toy as task

OTHER = torch.device("cuda" if torch.cuda.is_available() else "meta")
SENTENCES = [["the", "cat", "sat"], ["naïve"], ["the", "dog"]]


def embed(folder):
    make_weights(folder / "model")
    text, elmo = folder / "text.txt", ElmoEmbedder.from_pretrained(folder / "model")
    text.write_text("\n".join(map(" ".join, SENTENCES)), encoding="utf-8")
    elmo.embed_file(text, folder / "vectors.safetensors")
    [nearest] = elmo.index(SENTENCES, remove_components=1).search("the cat", topn=2)
    vectors = elmo.encode(SENTENCES, output="torch")
    yield from (*elmo.embed_batch(SENTENCES), elmo.batch_to_embeddings(SENTENCES)[0], vectors)
    yield from (elmo.similarity(vectors.numpy(), vectors), elmo.similarity(vectors.numpy(), vectors.numpy()))
    yield from (ElmoVectors(folder / "vectors.safetensors")[0], TextTokens(elmo, SENTENCES).vectors, nearest[0].cosine)
    yield static.context_free_vectors(folder / "model", ["the", "cat"]).matrix
    yield static.averaged_vectors(folder / "model", SENTENCES).matrix
    yield from Module(folder / "model")(["the cat", "a"], as_dict=True).values()
    yield batch_to_ids(SENTENCES)
    indexer = ELMoTokenCharactersIndexer()
    yield indexer.as_padded_tensor({"elmo": [[1] * 50]}, {"elmo": 2}, {})["elmo"]


def train_language_model(folder):
    """With an evaluation, dropout, state resets and a resume."""
    (folder / "heldout.txt").write_text("the cat sat on the mat .\n", encoding="utf-8")
    more = {"heldout_prefix": str(folder / "heldout.txt"), "heldout_interval": 2, "checkpoint_interval": 2}
    config = functools.partial(language.toy_config, folder, dropout=0.1, state_reset=0.5, **more)
    for steps in (2, 4):
        pretrain(config(max_steps=steps), report=task.silent)
    yield from files_of(folder / "out")


def files_of(run):
    return [np.fromfile(part, np.uint8) for part in sorted(run.rglob("*.safetensors"))]


def train_tagger(folder):
    config = task.toy_config(folder, elmo="both", crf=True, characters=True, epochs=2)
    train_task(config, task.silent)
    saved = load_task(config.save_dir)
    predict_task(config.save_dir, config.test_path, folder / "labels.jsonl")
    yield from task.weights_of(config).values()
    yield from saved.predict_proba([["the", "cat"], []])
    yield evaluate_task(config.save_dir, config.test_path).f1
    yield np.fromfile(folder / "labels.jsonl", np.uint8)


@pytest.mark.parametrize("call", [embed, train_language_model, train_tagger])
def test_what_the_cpu_computes_is_the_same_under_another_default(call, tmp_path):
    results = []
    for default in ("cpu", OTHER):
        torch.manual_seed(0)
        (tmp_path / str(default)).mkdir()
        with torch.device(default):
            results.append([np.asarray(each) for each in call(tmp_path / str(default))])
    assert results[0]
    for expected, actual in zip(*results, strict=True):
        np.testing.assert_array_equal(actual, expected)


def test_every_new_tensor_names_its_device():
    """Only parameters are where torch puts them."""
    names = {function.__name__ for function in torch.utils._device._device_constructors()}
    package = pathlib.Path(elmo_fast.__file__).parent
    unnamed = []
    for path in sorted(package.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        calls = [each for each in ast.walk(tree) if isinstance(each, ast.Call) and hasattr(each.func, "attr")]
        own = {id(inner) for each in calls if each.func.attr == "Parameter" for inner in ast.walk(each)}
        for each in calls:
            of_torch = isinstance(each.func.value, ast.Name) and each.func.value.id == "torch"
            named = any(keyword.arg in ("device", None) for keyword in each.keywords)
            if of_torch and each.func.attr in names and not named and id(each) not in own:
                unnamed.append(f"{path.relative_to(package)}:{each.lineno} {ast.unparse(each)}")
    assert not unnamed
