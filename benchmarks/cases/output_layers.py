"""The preset "tiny" with each loss, and with word ids: time of a step, exact held-out perplexity.

All sides read the same batches of one vocabulary, start from weights of one seed, and take their steps in turn.
"""

import pathlib
from typing import Any

import torch

from benchmarks import texts
from benchmarks.cases import Settings
from benchmarks.results import Report, faster, measure, row, significant
from benchmarks.trainers import silent_trainer, step_of
from elmo_fast.checkpoints import LOSSES
from elmo_fast.corpus import Corpus, encode
from elmo_fast.pretrain.config import PretrainConfig, load_preset
from elmo_fast.pretrain.data.corpora import target_counts
from elmo_fast.pretrain.evaluate import evaluate
from elmo_fast.pretrain.trainer import LanguageModelTrainer
from elmo_fast.text import Vocabulary, count_words

STEPS = 300
SIDES: dict[str, dict[str, Any]] = {loss: {"loss": loss} for loss in LOSSES}
SIDES["sampled_softmax, input words"] = {"loss": "sampled_softmax", "input": "words"}


def trainer(corpus: Corpus, quick: bool, changes: dict[str, Any]) -> LanguageModelTrainer:
    """Of one loss and input."""
    small = {"batch_size": 2, "n_negative_samples_batch": 16} if quick else {}
    config = PretrainConfig.from_flat(load_preset("tiny").flat() | small | changes)
    return silent_trainer(config, corpus, counts=target_counts(corpus))


def corpora(path: pathlib.Path | None, quick: bool) -> tuple[Corpus, Corpus, str]:
    """Training text, held-out text in its vocabulary, and what they are.

    Training is the file train-00.txt beside the text where there is one, else the first nine tenths of the text.
    """
    text = texts.read(path)
    beside = (path or texts.DEFAULT).parent / "train-00.txt"
    if (path or texts.DEFAULT).is_file() and beside.is_file() and not quick:
        training, held, source = texts.read(beside).sentences, text.sentences, f"{beside.name}; held out: {text.source}"
    else:
        cut = len(text.sentences) * 9 // 10
        training, held, source = text.sentences[:cut], text.sentences[cut:], f"{text.source}; its last tenth held out"
    vocabulary = Vocabulary.build(count_words(training), load_preset("tiny").data.min_count)
    return encode(training, vocabulary), encode(held, vocabulary), source


def run(settings: Settings) -> Report:
    """Rows "ms" a step, and "perplexity" of the held-out text, by probabilities that sum to 1 over the vocabulary."""
    torch.set_num_threads(1)
    training, held, source = corpora(settings.text, settings.quick)
    sides = {name: trainer(training, settings.quick, changes) for name, changes in SIDES.items()}
    steps = 3 if settings.quick else STEPS
    timed = {name: step_of(side, report_every=50) for name, side in sides.items()}
    rows = measure("one step, tiny", timed, steps, unit="ms", warmup=0)
    for each in rows[1:]:
        faster(each, rows[0])
    for name, side in sides.items():
        found = evaluate(side.model, held).mean
        rows.append(row(f"held out, after {steps} steps", name, [found], threads=1, unit="perplexity"))
    how = next(iter(sides.values())).config.optimizer
    notes = {
        "text": source,
        "words to predict": len(training.vocabulary),
        "a step": f"{how.batch_size} x {how.unroll_steps} words, {how.n_negative_samples_batch} drawn",
        "outside the vocabulary, held out": f"{significant(100 * held.unknown / held.tokens, 2)} %",
    }
    return Report(rows=rows, notes=notes)
