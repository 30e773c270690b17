"""A toy text and a toy configuration, small enough for a step to take milliseconds."""

import contextlib
import itertools
import json
import pathlib
from collections.abc import Callable, Iterator

import pytest
import torch

from elmo_fast.corpus import Corpus, encode
from elmo_fast.corpus.streams import Stream, StreamBatch
from elmo_fast.pretrain.config import PretrainConfig
from elmo_fast.pretrain.language_model import LanguageModel, make_input_reader, make_language_model
from elmo_fast.pretrain.optimizer import AdaGrad
from elmo_fast.pretrain.step import Step
from elmo_fast.text import Vocabulary, count_words

SENTENCES = [
    "the cat sat on the mat .",
    "the dog lay on the rug .",
    "a bird sang .",
    "the cat saw a bird on the rug and the bird saw the cat .",
    "who sat on the mat ?",
]


def toy_config(folder: pathlib.Path | None = None, **changes: object) -> PretrainConfig:
    """A configuration of the toy text; with a folder, the text is written there."""
    values: dict[str, object] = {
        "filters": [[1, 4], [2, 6], [3, 6]],
        "char_embedding_dim": 5,
        "n_highway": 1,
        "dim": 12,
        "projection_dim": 8,
        "max_characters_per_token": 12,
        "batch_size": 3,
        "unroll_steps": 5,
        "n_negative_samples_batch": 6,
        "min_count": 1,
        "max_steps": 4,
        "log_interval": 2,
    }
    if folder is not None:
        (folder / "train-0.txt").write_text("\n".join(SENTENCES[:3]) + "\n\n", encoding="utf-8")
        (folder / "train-1.txt").write_text("\n".join(SENTENCES[3:]) + "\n", encoding="utf-8")
        values |= {"train_prefix": str(folder / "train-*"), "save_dir": str(folder / "out")}
    return PretrainConfig.from_flat(values | changes)


def toy_corpus() -> Corpus:
    """The toy text, encoded with the vocabulary of words that occur twice."""
    sentences = [sentence.split() for sentence in SENTENCES]
    return encode(sentences, Vocabulary.build(count_words(sentences), 2))


def toy_model(config: PretrainConfig, corpus: Corpus) -> LanguageModel:
    """A fresh model of the toy configuration."""
    return make_language_model(config, len(corpus.vocabulary))


def toy_batches(config: PretrainConfig, corpus: Corpus, **more: int) -> list[StreamBatch]:
    """The batches of the first epoch, the last of which is not filled; more: of `Stream`."""
    stream = Stream(corpus, config.optimizer.batch_size, config.optimizer.unroll_steps, seed=1, **more)
    return [stream.batch(0, number) for number in range(stream.steps_per_epoch)]


def toy_reader(model: LanguageModel):
    """Spells the words of the toy text for a model, on its device."""
    return make_input_reader(model.options, toy_corpus(), next(model.parameters()).device)


def toy_step(model: LanguageModel, optimizer: torch.optim.Optimizer | None = None, **more: object) -> Step:
    """Steps over the toy text, three rows of it by default."""
    settings: dict[str, object] = {"rows": 3, "clip_norm": 1e9, "seed": 11} | more
    return Step(model, optimizer or AdaGrad(model.parameters()), toy_reader(model), **settings)


@contextlib.contextmanager
def during_step(number: int, action: Callable[[], object]) -> Iterator[None]:
    """Do something in the middle of the `number`-th step that this process takes, from 1."""
    backward, count = torch.Tensor.backward, itertools.count(1)

    def watched(tensor, *arguments):
        if next(count) == number:
            action()
        return backward(tensor, *arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.Tensor, "backward", watched)
        yield


def quiet(line: str) -> None:
    """Take a line of a run and say nothing."""


def rows(folder: pathlib.Path) -> list[dict]:
    """The rows of a run's metrics.jsonl."""
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def same(actual: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> bool:
    """True if all tensors of two states are bitwise equal."""
    return actual.keys() == expected.keys() and all(torch.equal(actual[name], expected[name]) for name in expected)
