"""From text to vectors in one command: corpus, vocabulary, pretraining, perplexity, neighbours, pictures."""

import argparse
import pathlib
import random
import shutil
import sys
import time
from collections.abc import Sequence

from elmo_fast.corpus import prepare, read_corpus
from elmo_fast.demo.neighbours import QUERIES, TOPN, WordNeighbours
from elmo_fast.demo.probe import probes
from elmo_fast.demo.text import write_corpus
from elmo_fast.errors import ElmoFastError
from elmo_fast.modules import ElmoEmbedder
from elmo_fast.pictures import draw_curves, layer_weights
from elmo_fast.pretrain.config import PretrainConfig, load_preset
from elmo_fast.pretrain.evaluate import Perplexity, evaluate
from elmo_fast.pretrain.log.metrics import read_metrics
from elmo_fast.pretrain.run import Run, pretrain
from elmo_fast.pretrain.start.start_run import make_language_model

PARTS = ("train.txt", "heldout.txt", "corpus", "model", "loss.png", "layers.png")
# Perplexity must fall to this share of its initial value, or the demonstration has failed.
WANTED_SHARE = 0.25
EVALUATION_ROWS = 16
SENTENCES = 1500
# The top layer, whose vectors depend most on context.
LAYER = -1
PROBES_TITLE = "What each layer is used for: scalar mixes trained on two probes"


def configuration(folder: pathlib.Path, seconds: float) -> PretrainConfig:
    """The preset tiny on the corpus of the folder, limited to `seconds`."""
    config = load_preset("tiny")
    config.data.train_prefix = str(folder / "corpus")
    config.run.save_dir = str(folder / "model")
    config.run.max_seconds = seconds
    config.optimizer.n_epochs = 1000
    return config


def train(folder: pathlib.Path, seconds: float) -> tuple[Run, Perplexity, Perplexity]:
    """Pretrains, and returns the held-out perplexity before and after."""
    config = configuration(folder, seconds)
    corpus = prepare(str(folder / "train.txt"), folder / "corpus", min_count=config.data.min_count)
    heldout = read_corpus(str(folder / "heldout.txt"), corpus.vocabulary)
    before = evaluate(make_language_model(config, len(corpus.vocabulary)), heldout, batch_size=EVALUATION_ROWS)
    print(f"before training: held-out perplexity {before}")
    run = pretrain(config)
    if run.outcome.stopped_by == "interrupt":
        raise KeyboardInterrupt
    after = evaluate(run.model, heldout, batch_size=EVALUATION_ROWS)
    print(f"after training:  held-out perplexity {after}")
    print(f"                 {before.mean / after.mean:.1f} times lower\n")
    return run, before, after


def sample(path: pathlib.Path, count: int) -> list[list[str]]:
    """A fixed sample of a file's sentences."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return [line.split() for line in random.Random(0).sample(lines, min(count, len(lines)))]


def show_neighbours(embedder: ElmoEmbedder, sentences: list[list[str]]) -> None:
    """Prints, for each word in two contexts, the tokens of the text whose vectors are nearest."""
    vectors = WordNeighbours(embedder, sentences, LAYER)
    print(f"one word, two contexts: its nearest among {len(vectors.vectors):,} tokens of the training text (cosine)")
    for word, *uses in QUERIES:
        words = []
        for meaning, sentence in uses:
            tokens = sentence.split()
            found = vectors.nearest_words(embedder.embed_sentence(tokens)[LAYER][tokens.index(word)], TOPN, but=word)
            words.append(found.keys())
            print(f"\n  {word!r}, {meaning}: {sentence}")
            for cosine, context in found.values():
                print(f"    {cosine:.2f}  {context}")
        print(f"\n  {len(words[0] & words[1])} of {TOPN} words are in both lists")
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
    show_neighbours(embedder, train_sample)
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
    parser = argparse.ArgumentParser(prog="python -m elmo_fast.demo", description=__doc__)
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
    if not fell:
        print(f"FAILED: held-out perplexity did not fall to {WANTED_SHARE:.0%} of the first", file=sys.stderr)
    return 0 if fell else 1


if __name__ == "__main__":
    raise SystemExit(main())
