"""What rounding costs: a model trained for some minutes, its vectors at each precision beside float32's, its held-out
perplexity, and a tagger over its frozen layers (Universal Dependencies, where that data is there).

Each sentence starts from zero states. An error is the RMS of the difference over the RMS of float32's vectors.
"""

import pathlib
import tempfile

import numpy as np
import torch

from benchmarks import texts
from benchmarks.cases import Settings
from benchmarks.results import Report, Row, row
from elmo_fast.corpus import open_corpus, prepare, read_corpus
from elmo_fast.modules import ElmoEmbedder
from elmo_fast.op_choices import INFERENCE_PRECISIONS
from elmo_fast.pretrain.config import load_preset
from elmo_fast.pretrain.evaluate import evaluate
from elmo_fast.pretrain.language_model import LanguageModel
from elmo_fast.pretrain.run import pretrain
from elmo_fast.tasks import TaskConfig, train_task

MINUTES, SENTENCES, SEEDS = 5.0, 300, 3
TREEBANK = texts.SHARED / "data" / "ewt"
ROUNDED = INFERENCE_PRECISIONS[1:]


def run(settings: Settings) -> Report:
    """Rows "%" (RMS), "(1 - cosine)" (the largest of a token), "perplexity", "% of tags right" (a value per seed)."""
    torch.set_num_threads(1)
    text = texts.read(settings.text)
    minutes = 0.05 if settings.quick else MINUTES
    report = Report(notes={"text": text.source, "model": f"preset tiny, trained for {minutes:g} minutes on one core"})
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        cut = len(text.sentences) * 9 // 10
        texts.Text(text.sentences[:cut], "").write(folder / "train.txt")
        texts.Text(text.sentences[cut:], "").write(folder / "heldout.txt")
        train(folder, minutes, settings.quick)
        report.rows += errors_of(folder, text.sentences[cut:][:SENTENCES])
        report.rows += perplexities(folder)
        if TREEBANK.is_dir() and not settings.quick:
            report.rows += tagger(folder)
        else:
            report.skipped.append("a tagger: the treebank is not there, or this is a quick run")
    return report


def train(folder: pathlib.Path, minutes: float, quick: bool) -> None:
    """The preset tiny on train.txt, in `folder`/model."""
    config = load_preset("tiny")
    prepare(str(folder / "train.txt"), folder / "corpus", min_count=config.data.min_count)
    config.data.train_prefix = str(folder / "corpus")
    config.run.save_dir, config.run.max_seconds = str(folder / "model"), 60 * minutes
    config.optimizer.n_epochs = 1000
    if quick:
        config.optimizer.n_negative_samples_batch = 64
    pretrain(config, report=lambda line: None)


def errors_of(folder: pathlib.Path, sentences: list[list[str]]) -> list[Row]:
    """For each layer and precision, the relative RMS error and 1 less the least cosine of a token."""

    def vectors(precision: str) -> np.ndarray:
        embedder = ElmoEmbedder.from_pretrained(folder / "model", stateful=False, precision=precision)
        return np.concatenate(embedder.embed_batch(sentences), axis=1)

    exact, rows = vectors("float32").astype(np.float64), []
    for precision in ROUNDED:
        rounded = vectors(precision)
        for layer, (true, ours) in enumerate(zip(exact, rounded, strict=True)):
            rms = np.sqrt(((true - ours) ** 2).mean() / (true**2).mean())
            cosine = (true * ours).sum(1) / (np.linalg.norm(true, axis=1) * np.linalg.norm(ours, axis=1))
            side = f"elmo_fast, {precision}"
            rows.append(row(f"layer {layer}, RMS error", side, [100 * float(rms)], threads=1, unit="%"))
            farthest = 1 - float(cosine.min())
            rows.append(row(f"layer {layer}, farthest token", side, [farthest], threads=1, unit="(1 - cosine)"))
    return sorted(rows, key=lambda each: each.variant)


def perplexities(folder: pathlib.Path) -> list[Row]:
    """Of the held-out text, whose losses alone are in float32 at every precision."""
    heldout = read_corpus(str(folder / "heldout.txt"), open_corpus(folder / "corpus").vocabulary)
    rows = []
    for precision in INFERENCE_PRECISIONS:
        model = LanguageModel.from_pretrained(folder / "model", precision=precision)
        found = evaluate(model, heldout).mean
        rows.append(row("held-out text", f"elmo_fast, {precision}", [found], threads=1, unit="perplexity"))
    return rows


def tagger(folder: pathlib.Path) -> list[Row]:
    """Accuracy on the test part, trained on a tenth of the treebank, over the layers at float32 and at int8."""
    rows = []
    for precision in ("float32", "int8"):
        accuracies = []
        for seed in range(SEEDS):
            config = TaskConfig(
                train_path=str(TREEBANK / "train.conllu"), dev_path=str(TREEBANK / "dev.conllu"),
                test_path=str(TREEBANK / "test.conllu"), train_share=0.1, epochs=5, seed=seed, elmo="input",
                model=str(folder / "model"), word_dim=0, precision=precision,
                save_dir=str(folder / f"{precision}-{seed}"), cache_dir=str(folder / "cache"),
            )  # fmt: skip
            test = train_task(config, report=lambda line: None).test
            assert test is not None  # there is a test_path
            accuracies.append(100 * test.f1)
        rows.append(row("tagger over it", f"elmo_fast, {precision}", accuracies, threads=1, unit="% of tags right"))
    return rows
