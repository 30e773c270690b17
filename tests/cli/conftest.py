"""A toy model on the disk, and the command line as a user starts it."""

import os
import resource
import subprocess

import pytest

from tests.support.command_line import elmo_fast, forked
from tests.support.weights import make_weights

SENTENCES = ["The cat sat .", "A dog ran up the hill and back .", "<S> odd", "Résumé •", "The cat sat .", "x" * 60]


@pytest.fixture(scope="session")
def toy(tmp_path_factory):
    """(options_file, weight_file) of a two-layer model with D = 8."""
    return tuple(map(str, make_weights(tmp_path_factory.mktemp("toy"))))


def pair(toy):
    """The options that name the toy model."""
    return ["--options-file", toy[0], "--weight-file", toy[1]]


def ran(*words):
    """`elmo-fast WORDS`, which succeeds; what it returns and prints."""
    done = elmo_fast(*words)
    assert done.returncode == 0, done.stderr
    return done


def refused(done, *words):
    """The run failed with status 2 and one sentence that holds `words`, besides lines on threads, GPU and --help."""
    assert done.returncode == 2, (done.returncode, done.stderr)
    besides = ("cpu ", "gpu ", "elmo-fast")
    lines = [line for line in done.stderr.splitlines() if not line.startswith(besides) or "error: " in line]
    assert len(lines) == 1, done.stderr
    assert [word for word in words if word not in done.stderr] == [], done.stderr


@pytest.fixture
def text(tmp_path):
    """A file of SENTENCES."""
    path = tmp_path / "in.txt"
    path.write_text("".join(f"{sentence}\n" for sentence in SENTENCES), encoding="utf-8")
    return str(path)


@pytest.fixture
def said(tmp_path_factory):
    """A file for the standard error of a process of its own."""
    return tmp_path_factory.mktemp("said") / "error"


@pytest.fixture
def limited(said):
    """Runs `elmo-fast ...` in a process of its own, whose files may be `limit` bytes long."""

    def run(*words, limit):
        child = forked(*words, error=said, first=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)))
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        return subprocess.CompletedProcess(words, status, "", said.read_text())

    return run
