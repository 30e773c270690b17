"""Number of threads of a command: a bound on what the user asks for, and room for other programs otherwise."""

import io
import os
import subprocess
import sys
import time

import pytest
import torch

from elmo_fast._runtime import threads
from elmo_fast.errors import ElmoFastError
from tests.cli.conftest import pair, ran


@pytest.fixture
def machine(monkeypatch):
    """Pretends that so many processors are there, and that other programs have kept so many busy for 100 seconds."""
    for name in threads.VARIABLES:
        monkeypatch.delenv(name, raising=False)
    began, before = threads.STARTED
    later = began + 100 - time.monotonic()

    def pretend(there, busy):
        def read(*words, **named):
            if busy is None:
                raise FileNotFoundError("/proc/stat")
            seconds = (before or 0) + (time.monotonic() - began) * busy + sum(os.times()[:4])
            return io.StringIO(f"cpu0 {seconds * os.sysconf('SC_CLK_TCK'):.0f} 0 0 0 0 0 0 0\n")

        monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(there)))
        monkeypatch.setattr(threads, "open", read, raising=False)
        monkeypatch.setattr(time, "monotonic", lambda now=time.monotonic: now() + later)

    return pretend


def test_the_bound_grows_with_the_machine_and_holds_in_python(machine):
    for there, most in ((1, 64), (64, 512)):
        machine(there, 0.0)
        threads.check_threads(most, "threads")
        with pytest.raises(ElmoFastError, match=f"threads must be 1 to {most} on this machine of {there} processors"):
            threads.check_threads(most + 1, "threads")
    with pytest.raises(ElmoFastError, match="got 100000"), threads.torch_threads(100_000):
        pass


@pytest.mark.parametrize(
    ("there", "own", "busy", "count"),
    [(2, 2, 0.0, 2), (2, 2, 0.2, 2), (2, 2, 0.3, 1), (2, 2, 5.0, 1), (8, 8, 1.0, 7), (8, 4, 3.0, 4), (1, 1, 0.0, 1)],
)
def test_a_thread_for_each_processor_that_others_leave_free(machine, there, own, busy, count):
    machine(there, busy)
    reason = f"other programs use {busy:.1f} of {there} CPUs" if busy else f"all {there} CPUs are idle"
    assert threads.unhindered_threads(own) == (count, reason)


def test_what_the_user_chose_or_nobody_knows_is_left(machine, monkeypatch):
    machine(2, None)
    assert threads.unhindered_threads(2) == (2, "torch's choice")
    machine(2, 2.0)
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    assert threads.unhindered_threads(2) == (2, "OMP_NUM_THREADS is set")


def test_work_of_others_is_seen_and_own_work_is_not(monkeypatch):
    """Processor seconds of this process and of its ended children are subtracted, those of idle time do not count."""
    tick, numbers = os.sysconf("SC_CLK_TCK"), threads.processors()
    stat = "cpu 9 9 9 9\n" + "".join(f"cpu{each} {2 * tick} 0 {tick} 999 99 0 0 0 7\n" for each in numbers)
    monkeypatch.setattr("builtins.open", lambda *_, **__: io.StringIO(stat))
    monkeypatch.setattr(os, "times", lambda: (3.0, 1.0, 2.0, 1.0, 0.0))
    monkeypatch.setattr(time, "monotonic", lambda: 50.0)
    others = 3 * len(numbers) - 7
    assert threads.seconds_of_others() == others
    assert threads.busy_processors((50.0, others)) is None, "too short a time to say"
    assert threads.busy_processors((40.0, others - 11)) == pytest.approx(1.1)
    assert threads.busy_processors((40.0, others + 5)) == 0


@pytest.mark.parametrize(("arguments", "used"), [([], 1), (["--threads", 2], 2)])
def test_the_opening_line_says_how_many_and_why(machine, tmp_path, text, toy, arguments, used):
    machine(2, 1.6)
    output = ran("embed", text, tmp_path / "out", "--top", *pair(toy), *arguments).stderr
    line = "cpu    using 1 thread: other programs use 1.6 of 2 CPUs (--threads N sets the number)\n"
    assert (line in output, torch.get_num_threads()) == (not arguments, used)


def test_waiting_threads_sleep_where_that_can_still_be_chosen(monkeypatch):
    """Before torch is imported; what the user chose stays."""
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    threads.let_waiting_threads_sleep()
    assert "OMP_WAIT_POLICY" not in os.environ
    monkeypatch.delitem(sys.modules, "torch")
    monkeypatch.setenv("OMP_WAIT_POLICY", "ACTIVE")
    threads.let_waiting_threads_sleep()
    assert os.environ["OMP_WAIT_POLICY"] == "ACTIVE"
    monkeypatch.delenv("OMP_WAIT_POLICY")
    threads.let_waiting_threads_sleep()
    assert os.environ["OMP_WAIT_POLICY"] == "PASSIVE"


def test_every_command_chooses_it_before_torch_is_there():
    """Each command's function is reached with the choice made and torch not imported."""
    code = """if True:
    import os, sys
    from elmo_fast.cli import _parser, main
    def report(options: _parser.Command):
        print(os.environ.get("OMP_WAIT_POLICY"), "torch" in sys.modules)
    main.function_of = lambda name: report
    for name in sorted({name.split()[0] for name in main.COMMANDS} - set(main.GROUPS)):
        assert main.main([name]) == 0, name
    """
    clean = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=clean)
    assert (set(done.stdout.splitlines()), done.stderr) == ({"PASSIVE False"}, "")
