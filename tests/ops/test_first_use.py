"""The first use of a GPU's kernels on a card: checked once, kept, refused with the reason, the numbers right anyway."""

import json
import os
import re
import subprocess
import sys
import time
import warnings

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from elmo_fast import ops
from elmo_fast.cli.main import main
from elmo_fast.errors import ElmoFastError, PerformanceWarning
from elmo_fast.ops import _check_processes, _dispatch, _first_use, _triton
from elmo_fast.ops._cases import Draw, results
from elmo_fast.ops._check import GRAPH, Answer
from elmo_fast.ops.highway.cases import cases
from tests.ops.card_cases import CPU, Answering, begin_anew, card  # noqa: F401
from tests.tolerances import assert_no_worse

pytestmark = [
    pytest.mark.skipif(not _triton.INTERPRETED, reason="Triton's interpreter is not in use"),
    pytest.mark.usefixtures("card"),
]
WRONG = Answer("case 0: y: largest error 1 exceeds 0.1 at float32")


def run(backend="auto", precision="float32"):
    """One call of highway."""
    return results(cases(Draw())[0], {"backend": backend, "precision": precision}, CPU)


def choose(backend="auto", precision="float32"):
    """What such a call chooses, without the call."""
    return _dispatch.select("highway", backend, CPU, torch.float32, precision)


def test_a_broken_kernel_is_refused_with_the_reason_and_the_numbers_stay_right(monkeypatch, capfd, recwarn):
    """The whole way: a process finds the kernel wrong, the reference serves, the next process knows it already."""
    monkeypatch.setattr(_check_processes, "COMMAND", [sys.executable, "-m", "tests.ops.broken", "wrong"])
    monkeypatch.setattr(_first_use, "_with", lambda unit, device: [unit])
    truth = results(cases(Draw())[0], {"backend": "reference", "precision": "float32"}, CPU, torch.float64)
    plain, ours = run("reference"), run()
    for name in truth:
        assert_no_worse(name, ours[name], plain[name], truth[name], "float32")
    (warning,) = [each for each in recwarn if issubclass(each.category, PerformanceWarning)]
    said = "'triton' failed its check on this Stand-in 1 at float32: case 0: y: largest error"
    assert said in str(warning.message)
    assert "using the slower backend 'reference'" in str(warning.message)
    assert "highway, triton, float32 refused" in capfd.readouterr().err
    begin_anew(monkeypatch)
    asked = Answering(monkeypatch).asked
    with pytest.raises(ElmoFastError, match=said):
        run("triton")
    assert said in ops.explain("highway", "cpu").refusals["triton"]
    assert asked == []
    assert capfd.readouterr().err == ""


def test_the_first_unit_brings_those_of_its_precision_along(monkeypatch):
    asked = Answering(monkeypatch).asked
    choose(precision="float16")
    assert asked[0] == ("highway", "triton", "float16")
    assert {unit.op for unit in asked} >= {"highway", "projected_lstm", "char_cnn", "scalar_mix", "adagrad"}
    assert {unit.precision for unit in asked if unit.op in ("highway", "char_cnn")} == {"float16"}
    assert {unit.precision for unit in asked if unit.op in ("scalar_mix", "adagrad")} == {"float32"}
    count = len(asked)
    assert len(set(asked)) == count
    begin_anew(monkeypatch)
    choose(precision="float16")
    ops.padded_unique_rows(torch.zeros(2, 3, dtype=torch.int64))
    assert len(asked) == count


@pytest.mark.parametrize("damage", ["cut", "changed", "of another", "no object"])
def test_a_damaged_or_stale_file_is_made_anew_with_a_word(monkeypatch, card, damage):  # noqa: F811
    asked = Answering(monkeypatch, highway=WRONG).asked
    with pytest.warns(PerformanceWarning, match="failed its check"):
        choose()
    (path,) = card.glob("*.json")
    content = json.loads(path.read_text())
    if damage == "changed":
        content["found"]["highway, triton, float32"]["why"] = None
    if damage == "of another":
        content["about"]["driver"] = "2.0"
    text = {"cut": json.dumps(content)[:-20], "no object": "[]"}.get(damage, json.dumps(content))
    path.write_text(text)
    begin_anew(monkeypatch)
    count = len(asked)
    with pytest.warns(UserWarning, match="the verdicts on this GPU are made anew"):
        choose()
    assert len(asked) == 2 * count
    assert json.loads(path.read_text())["found"]["highway, triton, float32"]["why"] == WRONG.why


def test_another_driver_is_another_file(monkeypatch, card):  # noqa: F811
    asked = Answering(monkeypatch).asked
    choose()
    count = len(asked)
    begin_anew(monkeypatch)
    monkeypatch.setattr(_first_use._card, "identity", lambda device: {"gpu": "Stand-in 1", "driver": "2.0"})
    choose()
    assert len(asked) == 2 * count
    assert len(list(card.glob("*.json"))) == 2


def test_a_folder_that_cannot_be_written_says_so(monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    asked = Answering(monkeypatch).asked
    with pytest.warns(UserWarning, match=r"cannot be kept .*let XDG_CACHE_HOME name"):
        choose()
    count = len(asked)
    choose()
    assert len(asked) == count


def test_the_variable_off_neither_checks_nor_refuses(monkeypatch):
    asked = Answering(monkeypatch, highway=WRONG).asked
    with pytest.warns(PerformanceWarning):
        choose()
    del asked[:]
    monkeypatch.setenv(_first_use.VARIABLE, "0")
    choose("triton")
    begin_anew(monkeypatch)
    choose("triton")
    assert asked == []


def test_the_variable_always_checks_in_each_process_once(monkeypatch):
    asked = Answering(monkeypatch).asked
    choose()
    count = len(asked)
    monkeypatch.setenv(_first_use.VARIABLE, "always")
    for _ in range(2):
        begin_anew(monkeypatch)
        choose()
        choose()
    assert len(asked) == 3 * count


def test_any_other_value_is_an_error_that_says_so(monkeypatch):
    monkeypatch.setenv(_first_use.VARIABLE, "yes")
    with pytest.raises(ElmoFastError, match="ELMO_FAST_GPU_CHECK must be one of 0, 1, always; got 'yes'"):
        choose()


def test_nothing_is_checked_within_a_capture(monkeypatch):
    """A verdict that exists is used; without one the kernel serves, and a warning says that it is unchecked."""
    asked = Answering(monkeypatch, highway=WRONG).asked
    monkeypatch.setattr(_first_use, "_capturing", lambda: True)
    with pytest.warns(UserWarning, match="highway, triton, float32: runs unchecked in this CUDA graph"):
        choose("triton")
    assert asked == []
    monkeypatch.setattr(_first_use, "_capturing", lambda: False)
    with pytest.warns(PerformanceWarning, match="failed its check"):
        choose()
    count = len(asked)
    begin_anew(monkeypatch)
    monkeypatch.setattr(_first_use, "_capturing", lambda: True)
    with pytest.raises(ElmoFastError, match="failed its check"):
        choose("triton")
    assert len(asked) == count


def test_where_nothing_runs_nothing_is_checked(monkeypatch):
    asked = Answering(monkeypatch).asked
    with _triton.recording():
        _dispatch.select("highway", "triton", CPU, torch.float32)
    with FakeTensorMode():
        _dispatch.select("highway", "triton", CPU, torch.float32)
    ops.explain("highway", "cpu")
    assert asked == []


def test_compiling_checks_while_it_traces(monkeypatch):
    """And takes the verdict as a constant, without a break of the graph."""
    asked = Answering(monkeypatch).asked
    table = torch.randn(7, 5)

    @torch.compile(fullgraph=True, backend="aot_eager")
    def gather(places):
        return ops.gather_rows(table, places)

    gather(torch.tensor([3, 1]))
    assert ("unique_rows", "triton", "float32") in asked


def test_what_could_not_be_checked_serves_with_a_word_and_is_not_kept(monkeypatch):
    asked = Answering(monkeypatch, highway=Answer(unable="the card serves one process alone")).asked
    with pytest.warns(UserWarning, match="run unchecked on this Stand-in 1: the card serves one process alone"):
        choose()
    count = len(asked)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        choose()
    assert len(asked) == count
    begin_anew(monkeypatch)
    with pytest.warns(UserWarning, match="run unchecked"):
        choose()
    assert len(asked) == count + 1


def test_two_processes_check_once(monkeypatch, card, tmp_path):  # noqa: F811
    """Both begin at once: one checks while the other waits, says so, and takes its verdict."""
    log = tmp_path / "log"

    def answers(units, device, answered):
        with log.open("a") as file:
            file.write(f"{os.getpid()}\n")
        time.sleep(0.5)
        return {unit: WRONG if unit.op == "highway" else Answer() for unit in units}

    monkeypatch.setattr(_check_processes, "answers", answers)
    children = []
    for _ in range(2):
        if (pid := os.fork()) == 0:
            why = _first_use.refusal("highway", "triton", CPU, "float32")
            os._exit(0 if why and "largest error" in why else 1)
        children.append(pid)
    assert [os.waitpid(pid, 0)[1] for pid in children] == [0, 0]
    assert len(log.read_text().split()) == 1
    assert subprocess.run(["ls", card], capture_output=True, text=True).stdout.count("\n") == 1


def test_graphs_that_replay_wrong_numbers_are_not_used(monkeypatch):
    """Each kind has a verdict of its own; those of higher layers are checked when they are asked for."""
    asked = Answering(monkeypatch, training_step=Answer("h: a replay gives other bits")).asked
    assert _dispatch.replays(CPU, "float16")
    graphs = [unit.op for unit in asked if unit.backend == GRAPH]
    assert graphs == ["projected_lstm"]
    with pytest.warns(PerformanceWarning, match=r"CUDA graphs \(training_step\): .*replaying a CUDA graph failed its"):
        assert not _dispatch.replays(CPU, "float16", "training_step")
    assert not _dispatch.replays(CPU, "float16", "training_step")
    assert _dispatch.replays(CPU, "float16", "bilm")
    assert [unit.op for unit in asked if unit.backend == GRAPH] == ["projected_lstm", "training_step", "bilm"]
    assert len(asked) == len(set(asked))


def test_info_tells_what_was_checked_and_what_is_refused(monkeypatch, capsys):
    Answering(monkeypatch, highway=WRONG)
    assert main(["info"]) == 0
    assert "kernels were never checked on this GPU" in capsys.readouterr().out
    with pytest.warns(PerformanceWarning):
        choose()
    assert main(["info"]) == 0
    said = capsys.readouterr().out
    assert re.search(r"\d+ kernels checked on this GPU, 1 refused, last on .*\.json\)", said)
    assert f"refused: highway, triton, float32: {WRONG.why}" in said
    assert re.search(r"highway +reference \(not triton: the backend 'triton' failed its check .*\) \[float32\]", said)
