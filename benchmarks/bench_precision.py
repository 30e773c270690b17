"""What rounding costs: vectors of a trained model at each precision, its held-out perplexity, a tagger over it.

Each sentence starts from zero states. An error is the RMS of the difference over the RMS of float32's vectors.
"""

import numpy as np
import pytest

from benchmarks import inputs
from elmo_fast import ElmoEmbedder
from elmo_fast.corpus import open_corpus, prepare, read_corpus
from elmo_fast.op_choices import INFERENCE_PRECISIONS
from elmo_fast.pretrain.config import load_preset
from elmo_fast.pretrain.evaluate import evaluate
from elmo_fast.pretrain.language_model import LanguageModel
from elmo_fast.pretrain.run import pretrain
from elmo_fast.tasks import TaskConfig, train_task

MINUTES, SENTENCES, SEEDS = 5.0, 300, 3
TREEBANK = inputs.SHARED / "data" / "ewt"


@pytest.fixture(scope="module")
def model(text, quick, tmp_path_factory):
    """The preset tiny, trained for some minutes: (its folder, vectors of held-out sentences in float32, the text)"""
    folder, cut = tmp_path_factory.mktemp("precision"), len(text.sentences) * 9 // 10
    inputs.Text(text.sentences[:cut], "").write(folder / "train.txt")
    inputs.Text(text.sentences[cut:], "").write(folder / "heldout.txt")
    config = load_preset("tiny")
    prepare(str(folder / "train.txt"), folder / "corpus", min_count=config.data.min_count)
    config.data.train_prefix = str(folder / "corpus")
    config.run.save_dir, config.run.max_seconds = str(folder / "model"), 1 if quick else 60 * MINUTES
    config.optimizer.n_epochs = 1000
    if quick:
        config.optimizer.n_negative_samples_batch = 64
    pretrain(config, report=lambda line: None)
    sentences = text.sentences[cut:][:SENTENCES]
    return folder, sentences, vectors(folder, "float32", sentences).astype(np.float64)


def vectors(folder, precision, sentences):
    embedder = ElmoEmbedder.from_pretrained(folder / "model", stateful=False, precision=precision)
    return np.concatenate(embedder.embed_batch(sentences), axis=1)


@pytest.mark.parametrize("side", INFERENCE_PRECISIONS)
def bench_precision(timed, model, side, text):
    folder, sentences, exact = model
    name = f"elmo_fast, {side}"
    embed = lambda: vectors(folder, side, sentences)  # noqa: E731
    rounded = timed("embed 300 sentences, loading included", embed, amount=1, unit="s")
    timed.note("model", f"preset tiny, trained for {MINUTES:g} minutes on one core; {text.source}")
    if side != "float32":
        for layer, (true, close) in enumerate(zip(exact, rounded, strict=True)):
            rms = np.sqrt(((true - close) ** 2).mean() / (true**2).mean())
            cosine = (true * close).sum(1) / (np.linalg.norm(true, axis=1) * np.linalg.norm(close, axis=1))
            timed.figure(f"layer {layer}, RMS error", name, 100 * float(rms), "%")
            timed.figure(f"layer {layer}, farthest token", name, 1 - float(cosine.min()), "(1 - cosine)")
    heldout = read_corpus(str(folder / "heldout.txt"), open_corpus(folder / "corpus").vocabulary)
    loaded = LanguageModel.from_pretrained(folder / "model", precision=side)
    timed.figure("held-out text", name, evaluate(loaded, heldout).mean, "perplexity")


@pytest.mark.turns(SEEDS)
@pytest.mark.parametrize("side", ["float32", "int8"])
def bench_tagger(timed, model, side, turn):
    """Trained on a tenth of the treebank over the frozen layers; a seed per turn."""
    if timed.quick or not TREEBANK.is_dir():
        pytest.skip("a tagger: the treebank is absent, or this is a quick run")
    folder = model[0]
    config = TaskConfig(
        train_path=str(TREEBANK / "train.conllu"), dev_path=str(TREEBANK / "dev.conllu"),
        test_path=str(TREEBANK / "test.conllu"), train_share=0.1, epochs=5, seed=turn, elmo="input",
        model=str(folder / "model"), word_dim=0, precision=side,
        save_dir=str(folder / f"{side}-{turn}"), cache_dir=str(folder / "cache"),
    )  # fmt: skip
    run = lambda: train_task(config, report=lambda line: None)  # noqa: E731
    result = timed("training a tagger", run, amount=1, unit="s", warmup=0)
    timed.figure("tagger over it", f"elmo_fast, {side}", 100 * result.test.f1, "% of tags right")
