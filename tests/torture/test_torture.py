"""A few kills of `make torture`, those of pretraining above all, and that it sees what differs."""

import json
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

from benchmarks import table
from tests.pretrain.processes import ROOT
from tests.support.backends import trains_in_a_fork
from tests.torture.children import all_finish, fork_group
from tests.torture.works import UNDISTURBED, Embedding, Ending, Saving


def test_killed_runs_end_as_undisturbed_ones_and_the_figures_are_kept(tmp_path):
    words = ["--kills", "4", "--seed", "5", "--kinds", "preparing", "embedding"]
    done = subprocess.run(
        [sys.executable, "-m", "tests.torture", *words, "--json", str(tmp_path / "torture.json")],
        capture_output=True, text=True, timeout=280, env=os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    actual = json.loads((tmp_path / "torture.json").read_text())
    assert sum(each["kills"] for each in actual["kinds"]) == 4
    assert all(each["equal"] == each["runs"] for each in actual["kinds"])
    assert actual["failures"] == []
    assert done.stdout.count("killed ") == 4
    assert "4 kills (" in table.render("torture", tmp_path)


def test_another_byte_a_missing_file_and_leftovers_are_seen(tmp_path):
    work = Embedding(tmp_path / "work")
    place = pathlib.Path(work.folder)
    (place / UNDISTURBED).write_bytes(b"vectors")
    shutil.copy(place / UNDISTURBED, place / "run-0")
    assert (work.whole("run-0"), work.differences("run-0", [])) == ("", [])
    (place / "run-0").write_bytes(b"vectorz")
    assert work.whole("run-0") == "run-0"
    assert work.differences("run-0", []) == ["run-0"]
    (place / "run-0").unlink()
    (place / ".run-0.abc.partial").mkdir()
    assert work.whole("run-0") == ""
    assert work.differences("run-0", []) == ["no run-0", ".run-0.abc.partial"]


@pytest.mark.slow
@trains_in_a_fork
@pytest.mark.parametrize(("kind", "moments"), [(Saving, 25), (Ending, 15)])
def test_killed_at_each_moment_of_its_saves_it_ends_as_undisturbed(kind, moments, tmp_path):
    """Once at each moment at which a save touches the disk, every time one later."""
    work, log = kind(tmp_path / "saving"), tmp_path / "log"
    work.run(UNDISTURBED, 1)
    done = False
    while not done:
        work.moment += 1
        done = all_finish(fork_group(lambda: work.run("killed", 1), 1, log), log)
    assert work.moment > moments
    assert work.differences("killed", []) == []
