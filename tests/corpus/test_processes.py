"""Tasks in other processes: in order, without torch, with their errors, and never outliving the one that asked."""

import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

from elmo_fast.corpus.word_counts import results_in_order
from elmo_fast.errors import ElmoFastError
from tests.corpus import tasks

ROOT = pathlib.Path(__file__).parents[2]


def alive(number):
    """True if a process still runs (False for a dead one that nobody has waited for)."""
    try:
        with open(f"/proc/{number}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def until(condition, seconds=60):
    end = time.monotonic() + seconds
    while not (actual := condition()):
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)
    return actual


def test_results_come_in_the_order_of_the_tasks():
    assert list(results_in_order(tasks.doubled, [0, 1, 2], 2, 9)) == [0, 2, 4]


@pytest.mark.parametrize(("module", "torch"), [("folder", 0), ("streams", 1)])
def test_text_is_read_and_written_without_torch_and_streams_need_it(module, torch):
    """`folder` imports all that other processes load to read text."""
    code = f"import elmo_fast.corpus.{module}, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == torch


def test_they_run_elsewhere_and_without_torch():
    assert "torch" in sys.modules
    actual = list(results_in_order(tasks.loaded, ["torch"] * 4, 2, 9))
    assert not any(there for there, _ in actual)
    assert os.getpid() not in {process for _, process in actual}


@pytest.mark.parametrize(("numbers", "processes", "most"), [([2], 9, 9), ([1, 2], 1, 9), ([1, 2], 9, 1), ([], 9, 9)])
def test_one_is_this_process(numbers, processes, most):
    assert list(results_in_order(lambda number: (number, os.getpid()), numbers, processes, most)) == [
        (number, os.getpid()) for number in numbers
    ]


@pytest.mark.parametrize("processes", [1, 2])
def test_what_a_task_raises_is_raised(processes):
    actual = []
    with pytest.raises(ElmoFastError, match=r"^two is too much$"):
        actual.extend(results_in_order(tasks.failing, [0, 1, 2, 3], processes, 9))


def test_a_killed_process_is_one_sentence():
    with pytest.raises(ElmoFastError, match="one of 2 processes was killed, perhaps because memory ran out; use fewer"):
        list(results_in_order(tasks.killed, [0, 1, 2, 3], 2, 9))


PARENT = """
import sys
from elmo_fast.corpus.word_counts import results_in_order
from tests.corpus.tasks import endless

if __name__ == "__main__":
    list(results_in_order(endless, [sys.argv[1]] * 2, 2, 9))
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_processes_die_with_the_one_that_asked(tmp_path, number):
    """In the middle of a task, whichever way it ended."""
    script = tmp_path / "parent.py"
    script.write_text(PARENT)
    parent = subprocess.Popen(
        [sys.executable, script, tmp_path / "child"],
        stderr=subprocess.PIPE,
        start_new_session=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    with contextlib.closing(parent.stderr):
        until(lambda: len(list(tmp_path.glob("child.*"))) == 2)
        children = [int(path.suffix[1:]) for path in tmp_path.glob("child.*")]
        assert all(map(alive, children))
        parent.send_signal(number)
        assert parent.wait(60) != 0
        until(lambda: not any(map(alive, children)))
