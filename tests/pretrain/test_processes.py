"""Several processes train as one does; one that is killed is started again with the others."""

import os
import pathlib
import signal
import time

import pytest
import torch
from safetensors.torch import load_file

import elmo_fast
from elmo_fast.cli.main import main
from elmo_fast.errors import ElmoFastError
from elmo_fast.pretrain.processes import join_processes
from tests.pretrain.processes import SECONDS, losses, outcome, pretrain, torchrun, words_of
from tests.torture.children import all_finish, fork_group


@pytest.mark.parametrize(("loss", "read"), [("sampled_softmax", "characters"), ("full_softmax", "words")])
def test_a_run_goes_on_in_another_number_of_processes(tmp_path, loss, read):
    """Five steps in three processes, the rest in two: the losses of one process, as rows keep their state.

    Negatives are sampled alike, rows of the tables exchanged as rows, with dropout, resets and micro-batches.
    """
    for name, sittings in (("alone", [(1, 12, 1)]), ("mixed", [(3, 5, 2), (2, 12, 3)])):
        for count, steps, parts in sittings:
            changes = {"loss": loss, "input": read, "micro_batches": parts, "max_steps": steps}
            output = pretrain(tmp_path, name, count, dropout=0.1, state_reset=0.1, **changes)
    assert "resumes after step 5" in output
    assert output.count("step     12 (100.0%)") == 1, "one process speaks for all"
    for actual, expected in zip(losses(tmp_path, "mixed"), losses(tmp_path, "alone"), strict=True):
        assert actual == pytest.approx(expected, rel=1e-4)
    weights = load_file(tmp_path / "alone" / "model.safetensors")
    for key, tensor in load_file(tmp_path / "mixed" / "model.safetensors").items():
        assert (tensor - weights[key]).abs().max() < 1e-3, key


def test_a_number_of_processes_that_does_not_divide_the_rows_is_refused(tmp_path):
    words, log = words_of(tmp_path, "out", batch_size=9, micro_batches=3), tmp_path / "log"

    def refused():
        assert main(words) == 2

    assert all_finish(fork_group(refused, 2, log), log)
    output = log.read_text()
    expected = "--batch_size 9 rows cannot be shared out evenly among 2 processes of --micro_batches 3 each"
    assert expected in output
    assert "one of: 1, 3, or start a new run" in output
    assert "elmo_fast/pretrain/" not in output  # no traceback of elmo_fast


def test_processes_with_different_options_end_with_each_option(tmp_path):
    """Options that would train in silence, wait forever or abort; the number of threads may differ."""
    words, log = words_of(tmp_path, "out", log_interval=1), tmp_path / "log"
    other = ["--learning_rate", "0.3", "--patience", "3", "--dim", "13", "--heldout_prefix", str(tmp_path / "train-1*")]

    def refused():
        if os.environ["RANK"] == "1":
            elmo_fast.__version__ = "0.9"
        assert main([*words, *["--threads", "1", *other] * (os.environ["RANK"] == "1")]) == 2

    assert all_finish(fork_group(refused, 2, log), log)
    wanted = [f"{name} is {value} in process 1, {leaders} in process 0" for name, value, leaders in (
        ("dim", 13, 12), ("learning_rate", 0.3, None), ("patience", 3, None), ("heldout_prefix", other[-1], None),
        ("the version of elmo_fast", "0.9", elmo_fast.__version__),
    )]  # fmt: skip
    lines = [line for line in log.read_text().splitlines() if "the processes do not agree: " in line]
    assert len(lines) == 2
    assert all(each in line for each in wanted for line in lines)
    assert not any("threads" in line for line in lines)


def test_the_loss_of_another_process_is_one_sentence(tmp_path):
    def work():
        with join_processes(torch.device("cpu")) as processes:
            processes.max_(0)
            if processes.rank == 1:
                os._exit(0)
            processes.max_(0)

    def report():
        with pytest.raises(ElmoFastError, match=r"another process of this run has ended.*run again, resumes.*gloo"):
            work()

    assert all_finish(fork_group(report, 2, tmp_path / "log"), tmp_path / "log")


def workers_of(parent: int) -> list[int]:
    actual = []
    for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rsplit(")", 1)[1].split()
        except OSError:  # a process that has just ended
            continue
        if int(fields[1]) == parent:
            actual.append(int(path.parent.name))
    return sorted(actual)


@pytest.mark.slow
@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="finds the worker to kill in /proc")
def test_a_killed_worker_is_restarted_and_the_losses_do_not_change(tmp_path):
    """Two processes, one of them killed with SIGKILL after the first checkpoint; torchrun starts both again."""
    settings = {"max_steps": 30, "checkpoint_interval": 10, "dropout": 0.1, "state_reset": 0.05}
    pretrain(tmp_path, "undisturbed", 2, **settings)
    agent = torchrun(2, "-m", "elmo_fast", *words_of(tmp_path, "killed", **settings), background=True, restarts=1)
    deadline = time.monotonic() + SECONDS
    while not (tmp_path / "killed" / "checkpoints" / "step-0000010").exists():
        assert agent.poll() is None, agent.communicate()[0]
        assert time.monotonic() < deadline
        time.sleep(0.02)
    os.kill(workers_of(agent.pid)[-1], signal.SIGKILL)
    status, output = outcome(agent)
    assert status == 0, output
    assert "resumes after step" in output
    assert losses(tmp_path, "killed") == losses(tmp_path, "undisturbed")
    actual, expected = (load_file(tmp_path / name / "model.safetensors") for name in ("killed", "undisturbed"))
    assert all(actual[key].equal(expected[key]) for key in expected)
