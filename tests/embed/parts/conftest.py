"""A model, a text of seven parts, and what one process writes of it."""

import pathlib
import random
import shutil

import pytest

from elmo_fast import ElmoEmbedder
from elmo_fast.text.sources import TextFile
from tests.support.command_line import elmo_fast
from tests.support.weights import make_weights

FORM = ("--average", "--batch-size", "1", "--threads", "1")
PART = 16  # sentences: 16 batches of one


@pytest.fixture(scope="session")
def place(tmp_path_factory):
    """A folder with `model`, `in.txt` of 103 lines, one of them twice, and `alone.hdf5`, written by one process."""
    folder = tmp_path_factory.mktemp("parts")
    make_weights(folder / "model")
    make_weights(folder / "other", seed=1)
    chance = random.Random(0)
    lines = [" ".join(f"w{chance.randint(0, 99)}" for _ in range(chance.randint(4, 9))) for _ in range(102)]
    (folder / "in.txt").write_text("".join(f"{line}\n" for line in [*lines, lines[20]]))
    assert embed(folder, folder / "alone.hdf5").returncode == 0
    return folder


def embed(place, output, *words, source=None, model="model"):
    """`elmo-fast embed` of the text; --shard makes it a folder of parts."""
    form = [word for word in FORM if word != "--average" or not {"--all", "--top"} & set(words)]
    return elmo_fast("embed", source or place / "in.txt", output, "--model", place / model, *form, *words)


def made_parts(place, folder, *words, **settings):
    """A whole folder of parts, of one process."""
    done = embed(place, folder, "--shard", "0/1", *words, **settings)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="session")
def seven_parts(place):
    return made_parts(place, place / "whole")


@pytest.fixture
def whole(seven_parts, tmp_path):
    """A folder with all seven parts."""
    return pathlib.Path(shutil.copytree(seven_parts, tmp_path / "out"))


@pytest.fixture
def embedder(place):
    return ElmoEmbedder.from_pretrained(place / "model", stateful=False)


@pytest.fixture
def source(place):
    return TextFile(place / "in.txt")
