"""The check of a GPU's kernels: every op's cases, kernels broken on purpose, replays, processes that check."""

import re

import pytest
import torch

from elmo_fast.ops import _capture, _card, _check_processes, _registry, _triton
from elmo_fast.ops._cases import Case, Draw, results
from elmo_fast.ops._check import GRAPH, Answer, Unit, cases_for, check, check_replay, definition
from elmo_fast.ops._graphs import Graphs
from elmo_fast.ops.projected_lstm import cases as lstm_cases
from elmo_fast.ops.projected_lstm import graphed
from elmo_fast.ops.projected_lstm.cases import call, layer
from tests.backends import GPU, HAS_CUDA, needs
from tests.ops import broken
from tests.ops.graph_cases import again
from tests.tolerances import assert_no_worse

CPU = torch.device("cpu")
needs_interpreter = pytest.mark.skipif(not _triton.INTERPRETED, reason="Triton's interpreter is not in use")
FORWARD, FLOAT16 = Unit("highway", "triton", "float32"), Unit("highway", "triton", "float16")


LSTM = Unit("projected_lstm", "triton", "float32")


def with_gpu_kernels():
    """(op, precision) of each op that has a backend for GPUs."""
    found = []
    for op, backends in _registry.REGISTRY.items():
        if set(GPU) & set(backends):
            found += [(op, p) for p in (("float32", "float16") if _registry.cases_of(op).MULTIPLIES else ("float32",))]
    return found


@pytest.mark.parametrize(("op", "precision"), with_gpu_kernels())
def test_the_cases_of_every_op_hold_for_the_kernels_of_the_cpu(op, precision):
    """So what is refused on a card is the card's kernel. A result is compared by its name; each op has some."""
    if "native" not in _registry.REGISTRY[op]:
        pytest.skip("it has no kernel for the CPU")
    needs(op, "native", precision)
    cases = cases_for(Unit(op, "triton" if _triton.WHY_NOT is None else "native", precision), CPU)
    assert cases
    for case in cases:
        truth, torchs = definition(case, precision)
        ours = results(case, {"backend": "native", "precision": precision}, CPU)
        assert truth
        assert ours.keys() == truth.keys()
        for name in truth:
            assert_no_worse(name, ours[name], torchs[name], truth[name], precision)


# The interpreter is slow: there a few ops do.
LAUNCHED = [(op, "float32") for op in ("scalar_mix", "unique_rows", "adagrad", "full_softmax")]


@pytest.mark.parametrize(("op", "precision"), LAUNCHED if _triton.INTERPRETED else with_gpu_kernels())
@pytest.mark.parametrize("backend", ["triton"])
def test_right_kernels_pass(op, precision, backend):
    if backend not in _registry.REGISTRY[op]:
        pytest.skip(f"{op} has no such kernel")
    needs(op, backend, precision)
    assert check(Unit(op, backend, precision), torch.device("cuda" if HAS_CUDA else "cpu")) == Answer()


@needs_interpreter
@pytest.mark.parametrize(
    ("name", "unit", "said"),
    [
        ("compile", FORWARD, "CompilationError: at 3:4"),
        ("launch", FORWARD, "RuntimeError: out of resource: shared memory"),
        ("wrong", FORWARD, "case 0: y: largest error"),
        ("nan", FORWARD, "case 0: y: largest error nan"),
        ("wrong backward", FORWARD, "case 0: gradient of x: largest error"),
        ("wrong tile", FORWARD, "case 1, tile of highway, up to 128 rows of 144, float32: 0: y: largest error"),
        ("wrong float16", FLOAT16, "case 0: y: largest error .* at float16"),
    ],
)
def test_a_kernel_broken_on_purpose_is_refused(name, unit, said):
    with broken.broken(name):
        answer = check(unit, CPU)
    assert answer.unable is None
    assert re.search(said, str(answer.why))


@needs_interpreter
def test_a_kernel_broken_at_one_precision_is_right_at_another():
    with broken.broken("wrong float16"):
        assert check(FORWARD, CPU) == Answer()


def test_the_cases_take_each_tile_that_a_card_chooses_among(monkeypatch):
    """Of the LSTM by rows, of which the cells of many have two; small cards have one for the softmaxes in float32."""

    def choices(op, precision="float16"):
        return [list(case.choices.values()) for case in cases_for(Unit(op, "triton", precision), CPU)]

    assert choices("projected_lstm") == [[], [], [], [], [1], [], [1]]
    assert choices("highway") == [[], [0], [1], [2], [3], [4]]
    assert choices("sampled_softmax") == [[], [], [1], [2]]
    assert choices("full_softmax") == choices("negative_sampling") == [[], [], [1], [2]]
    assert choices("full_softmax", "float32") == [[], [], [1]]
    monkeypatch.setattr(_card, "shared_memory", lambda device: 99 * 1024)
    assert choices("full_softmax", "float32") == [[], []]


@needs_interpreter
def test_memory_that_runs_out_is_no_fault_of_a_kernel(monkeypatch):
    monkeypatch.setattr(_triton, "launch", broken.raising(torch.OutOfMemoryError("CUDA out of memory")))
    answer = check(FORWARD, CPU)
    assert answer.why is None
    assert "out of memory" in answer.unable


@needs_interpreter
@pytest.mark.parametrize(
    ("change", "why"),
    [
        (None, None),
        ("stale", "outputs, last h, last c: a replay gives other bits than a call launch by launch"),
        ("one bit", "outputs: a replay gives other bits than a call launch by launch"),
        ("off", "nothing was captured"),
    ],
)
def test_a_replay_gives_the_bits_of_a_call_without_a_graph(monkeypatch, change, why):
    """A graph whose replay leaves the last run's outputs, or changes one bit, is refused, and one never captured."""

    def capturing(function, inputs, pool):
        entry = again(function, inputs, pool)

        def one_bit():
            entry.replay()
            entry.outputs[0].view(torch.int32).flatten()[-1:].bitwise_xor_(1)

        replay = {"stale": lambda: None, "one bit": one_bit}.get(change, entry.replay)
        return entry._replace(replay=replay)

    monkeypatch.setattr(graphed, "GRAPHS", Graphs(capturing=capturing))
    monkeypatch.setattr(_capture, "enabled", lambda device: change != "off")
    small = Case(layer(Draw(), 2, 1, 8, 8), call, differentiates=False)
    monkeypatch.setattr(lstm_cases, "full_bucket", lambda draw: small)
    answer = check_replay(Unit("projected_lstm", GRAPH, "float32"), CPU)
    assert answer == Answer(why)


def process(monkeypatch, script):
    """A shell in the place of the process that checks."""
    monkeypatch.setattr(_check_processes, "COMMAND", ["/bin/sh", "-c", f"echo 'elmo_fast check: ready'; {script}"])


ENDED = "the process that checked it ended: "


@pytest.mark.parametrize(
    ("end", "answer"),
    [
        ("echo illegal address >&2; kill -SEGV $$", Answer(f"{ENDED}signal SIGSEGV, illegal address")),
        ("echo 'elmo_fast check: [\"lost\", null, true]'; read line; read line", Answer("lost", lost=True)),
        ("exec sleep 60", Answer(f"{ENDED}no answer in 1 s")),
    ],
)
def test_a_unit_that_ends_its_process_is_refused_and_the_others_are_checked(monkeypatch, tmp_path, end, answer):
    """One process dies, loses the card or hangs at its first unit; another is started for the rest, and serves."""
    monkeypatch.setattr(_check_processes, "PATIENCE", 1.0)
    answers = "while read line; do echo 'elmo_fast check: [null, null, false]'; done"
    dies = f"touch {tmp_path}/died; read line; {end}"
    process(monkeypatch, f"if test -e {tmp_path}/died; then {answers}; else {dies}; fi")
    monkeypatch.setattr(_check_processes, "MOST_PROCESSES", 1)
    seen = []
    found = _check_processes.answers([FORWARD, FLOAT16, LSTM], CPU, seen.append)
    assert found == {FORWARD: answer, FLOAT16: Answer(), LSTM: Answer()}
    assert seen == [FORWARD, FLOAT16, LSTM]


def test_where_no_process_can_start_nothing_is_refused(monkeypatch):
    monkeypatch.setattr(_check_processes, "COMMAND", ["/bin/sh", "-c", "echo no CUDA device >&2; exit 3"])
    found = _check_processes.answers([FORWARD, FLOAT16], CPU, lambda unit: None)
    assert [answer.why for answer in found.values()] == [None, None]
    assert all("no process can check them here: status 3, no CUDA device" in each.unable for each in found.values())


def test_a_process_that_someone_kills_refuses_nothing(monkeypatch):
    process(monkeypatch, "read line; kill -9 $$")
    answer = _check_processes.answers([FORWARD], CPU, lambda unit: None)[FORWARD]
    assert answer.why is None
    assert "SIGKILL" in answer.unable
