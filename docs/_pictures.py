"""Redraws every picture of the documentation: `make pictures`.

The words of pictures.md need a model, which is trained first if build/pictures/ has none: the preset `tiny`, 2,000
steps on the text that Python carries (five minutes on a core); its senses are those of `mini` in the text of
gallery.md. architecture.svg comes from the imports, network.svg from the defaults of pretraining, the pictures of the
example report from its report.json, the curves of benchmarks.md from the files that `make bench CASE=pretrain` leaves
under benchmarks/results/, and the pictures of gallery.md from the commands on that page, whose runs train for three
minutes.
"""

import json
import os
import pathlib
import re
import subprocess
import sys

from PIL import Image

from elmo_fast import ElmoEmbedder
from elmo_fast.pictures import (
    draw_curves,
    find_occurrences,
    occurrence_vectors,
    senses_of,
    senses_picture,
    words_picture,
)
from elmo_fast.pretrain.config import ModelConfig
from elmo_fast.pretrain.metrics import read_metrics
from elmo_fast.report.page import layer_scores, share_curves, weight_map
from elmo_fast.report.plan import Cell
from elmo_fast.static import context_free_vectors

DOCS = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(DOCS.parent), str(DOCS)]

import _architecture  # noqa: E402
import _network  # noqa: E402

from examples.demo import write_corpus  # noqa: E402

BUILD = DOCS.parent / "build" / "pictures"
CURVES = DOCS.parent / "benchmarks" / "results" / "pretrain"
STEPS, WORDS = 2000, 200
SENSES_OF = "set"
COLOURS_KEPT = 64  # of a picture with many labels; a third of the bytes, and no difference to see


def trained() -> pathlib.Path:
    """The folder of the model of pictures.md; trained if it is missing or incomplete."""
    model = BUILD / "model"
    BUILD.mkdir(parents=True, exist_ok=True)
    text, _ = write_corpus(BUILD)
    command = [sys.executable, "-m", "elmo_fast", "pretrain", "--config", "tiny", "--train_prefix", text]
    settings = ["--save_dir", model, "--max_steps", STEPS, "--n_epochs", 100, "--threads", 1]
    if not (model / "model.safetensors").exists():
        subprocess.run(list(map(str, [*command, *settings])), check=True)
    return model


def of_a_model(model: pathlib.Path) -> None:
    """Draws the words of pictures.md."""
    embedder = ElmoEmbedder.from_pretrained(model, stateful=False)
    vocabulary = (model / "vocab.txt").read_text(encoding="utf-8").split()
    words = [word for word in vocabulary if word.isalpha() and len(word) > 2][:WORDS]
    words_picture(words, context_free_vectors(embedder.elmo_bilm, words).matrix, DOCS / "pictures_words.png")
    with_fewer_colours(DOCS / "pictures_words.png")


def of_the_senses(text: pathlib.Path) -> None:
    """Draws the senses of pictures.md, in the text of gallery.md."""
    occurrences, _ = find_occurrences(text, SENSES_OF, tokenizer="basic")
    vectors = occurrence_vectors(ElmoEmbedder.from_pretrained("mini", stateful=False), occurrences)
    about = "docstrings of Python's library, top layer of mini"
    senses_picture(senses_of(occurrences, vectors), SENSES_OF, DOCS / "pictures_senses.png", about)


def of_the_report() -> None:
    """Draws the pictures of report/report.md from its numbers."""
    rows = json.loads((DOCS / "report" / "report.json").read_text(encoding="utf-8"))
    cells = [
        Cell(
            *(row[name] for name in ("experiment", "target", "label", "changes")),
            runs=[
                {"test": {"f1": score, "spans": row["spans"]}, "mix_weights": weights}  # type: ignore[typeddict-item]
                for score, weights in zip(row["test"], row["mix_weights"], strict=True)
            ],
        )
        for row in rows
    ]
    share_curves(cells, DOCS / "report" / "share.png")
    layer_scores(cells, DOCS / "report" / "layers.png")
    weight_map(cells, DOCS / "report" / "weights.png")


def of_the_benchmark() -> None:
    """Draws the curves of benchmarks.md, if the runs' reports are there."""
    runs = {
        path.parent.name: read_metrics(path.parent) for path in sorted(CURVES.glob("*/metrics.jsonl"), reverse=True)
    }
    if runs:
        draw_curves(runs, DOCS / "pretrain_small.png")
    else:
        print("pretrain_small.png stays: `make bench CASE=pretrain` measures and draws it (20 minutes)")


def of_the_gallery() -> None:
    """Runs the commands of gallery.md, but for the report, and takes the pictures that they write."""
    folder = BUILD / "gallery"
    folder.mkdir(parents=True, exist_ok=True)
    page = (DOCS / "gallery.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```sh\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    commands = "".join(block for block in blocks if "--train_path" not in block)
    found = {"PATH": f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"}
    subprocess.run(["bash", "-euc", commands], cwd=folder, env=os.environ | found, check=True)
    for name in re.findall(r"\(gallery/(\S+)\)", page):
        (folder / name).replace(DOCS / "gallery" / name)
        with_fewer_colours(DOCS / "gallery" / name)


def with_fewer_colours(path: pathlib.Path) -> None:
    """Stores a PNG again, in less space."""
    with Image.open(path) as picture:
        small = picture.convert("RGB").quantize(COLOURS_KEPT, dither=Image.Dither.NONE)
    small.save(path, optimize=True)


if __name__ == "__main__":
    _architecture.PICTURE.write_text(_architecture.picture(), encoding="utf-8")
    _network.PICTURE.write_text(_network.picture(ModelConfig()), encoding="utf-8")
    of_the_report()
    of_the_benchmark()
    of_a_model(trained())
    of_the_gallery()
    of_the_senses(BUILD / "gallery" / "text.txt")
