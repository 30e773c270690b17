"""projected_lstm's persistent scan: its tiles, its refusals, its barriers with all blocks at once.

What all scans promise is in test_projected_lstm.py."""

import types
import warnings

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from elmo_fast.errors import ElmoFastError
from elmo_fast.ops import LSTMWeights, _triton, _tuned, persistent_failure, projected_lstm
from elmo_fast.ops.projected_lstm import triton_persistent
from tests.backends import device_of
from tests.ops.at_once import at_once
from tests.ops.lstm_cases import cast, check, make

pytestmark = pytest.mark.skipif(_triton.WHY_NOT is not None, reason=str(_triton.WHY_NOT))
if _triton.WHY_NOT is None:
    from elmo_fast.ops.projected_lstm import host, host_persistent, kernels_persistent

PERSISTENT = "triton_persistent"
WHY_NOT = {p: triton_persistent.unsupported(device_of(PERSISTENT), torch.float32, p) for p in ("float16", "bfloat16")}
PRECISIONS = [pytest.param(p, marks=pytest.mark.skipif(why is not None, reason=str(why))) for p, why in WHY_NOT.items()]
on_backend = pytest.mark.parametrize("backend", [PERSISTENT])
ENOUGH_POLLS = 5000  # in the interpreter: a fault is then a failed test within seconds
interpreted = pytest.mark.skipif(not _triton.INTERPRETED, reason="runs the blocks in the interpreter")


@on_backend
@pytest.mark.parametrize("precision", PRECISIONS)
def test_tiles_of_production(backend, precision):
    """Two tiles and two slices, none of them full, and something in each quarter of W_hh."""
    check(make(2, 2, 9, 100, 260, directions=1, lengths=torch.tensor([2, 1])), backend, precision, reverse=(True,))


@on_backend
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("sizes", [(17, 9, 20, 28), (1, 20, 20, 44)], ids=str)
def test_odd_shapes(backend, precision, sizes, small):
    batch, width, size, cells = sizes
    lengths = torch.randint(0, 4, (batch,))
    lengths[0] = 3
    check(make(batch, 3, width, size, cells, lengths=lengths), backend, precision, residual=width == size)


@on_backend
@pytest.mark.parametrize("clips", [(0.3, 0.2), (None, 0.2), (0.3, None)], ids=str)
def test_saturated_clips(backend, clips, small):
    scale = 1.0 if clips[1] is None else 2.0  # without that clip a larger recurrence is chaotic: every rounding grows
    case = make(4, 4, 20, 20, 28, scale=scale, lengths=torch.tensor([4, 1, 0, 3]))
    check(case, backend, "float16", cell_clip=clips[0], projection_clip=clips[1], residual=clips[1] is None)


def arguments(case, save, reverse=(True, False)):
    inputs, weights, lengths, held = case
    lists = [[getattr(w, name) for w in weights] for name in LSTMWeights._fields]
    h0, c0 = held or (None, None)
    return (inputs, *lists, lengths, h0, c0, [], list(reverse), 0.5, 0.4, False, "float16", save)


@on_backend
@pytest.mark.parametrize("save", [True, False])
def test_leaves_what_the_stepwise_scan_leaves(backend, save, small):
    """Pre-activations, cells, projections and operands: each element, written or not, NaN where nothing was written."""
    case = make(3, 4, 20, 20, 28, lengths=torch.tensor([2, 3, 0]))
    ours = torch.ops.elmo_fast_triton.projected_lstm_persistent(*arguments(case, save))
    theirs = torch.ops.elmo_fast_triton.projected_lstm(*arguments(case, save))
    for i, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        torch.testing.assert_close(a, b, rtol=0, atol=4e-3, equal_nan=True, msg=lambda m, i=i: f"result {i}: {m}")


@on_backend
def test_directions_one_after_the_other(backend, small, monkeypatch):
    """Where the blocks of both directions do not fit together, each has a launch of its own: the same bits."""
    case = make(3, 3, 9, 20, 28)
    together = projected_lstm(*case, precision="float16", backend=backend)
    monkeypatch.setattr(host_persistent, "MULTIPROCESSORS", 4)
    apart = projected_lstm(*case, precision="float16", backend=backend)
    assert torch.equal(together[0], apart[0])
    assert torch.equal(together[1][1], apart[1][1])


@settings(max_examples=6, deadline=None)
@given(lengths=st.lists(st.integers(-(2**63), 2**63 - 1), min_size=3, max_size=3))
def test_no_length_reaches_past_the_arrays(lengths):
    """Lengths that lie on a GPU are not checked there: beyond 0..T they count as the nearest bound."""
    with torch.device(device_of("triton_persistent")):
        inputs, weights, _, _ = make(3, 2, 4, 8, 8, state=False)
        wild = torch.tensor(lengths)
        ours, wanted = (
            torch.ops.elmo_fast_triton.projected_lstm_persistent(
                *arguments((inputs, weights, each, None), True, (True, False))
            )
            for each in (wild, wild.clamp(0, 2))
        )
    for a, b in zip(ours, wanted, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0, equal_nan=True)


@on_backend
def test_opcheck(backend, small):
    case = cast(make(1, 1, 4, 8, 8, lengths=torch.tensor([1])), torch.float32)
    torch.library.opcheck(torch.ops.elmo_fast_triton.projected_lstm_persistent.default, arguments(case, True))


@interpreted
@pytest.mark.parametrize("seed", range(3))
def test_all_blocks_at_once_give_the_same_bits(seed, small, monkeypatch):
    """One launch with its barriers, blocks taking turns in a random order, against one launch per phase."""
    directions = 2 if seed == 0 else 1
    case = make(3, 3, 9, 20, 32, directions=directions, lengths=torch.tensor([2, 0, 3]))
    case = arguments(case, True, [True, False][:directions])
    wanted = torch.ops.elmo_fast_triton.projected_lstm_persistent(*case)
    monkeypatch.setattr(host_persistent, "ONE_LAUNCH", True)
    monkeypatch.setattr(host_persistent, "MOST_POLLS", ENOUGH_POLLS)
    with at_once(kernels_persistent.persistent, seed):
        ours = torch.ops.elmo_fast_triton.projected_lstm_persistent(*case)
    for a, b in zip(ours, wanted, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0, equal_nan=True)
    assert persistent_failure() is None


@interpreted
@pytest.mark.parametrize("dropped", range(3))
def test_a_wait_less_is_found(dropped, small, monkeypatch):
    """The test above can fail: without one of a step's three waits, some order of the blocks gives other numbers."""
    from triton.runtime.interpreter import interpreter_builder

    case = arguments(make(2, 2, 9, 20, 32, directions=1), True, (False,))
    wanted = torch.ops.elmo_fast_triton.projected_lstm_persistent(*case)
    calls, wait = {}, kernels_persistent.wait

    def forgetful(counter, target, polls, ok):
        block = interpreter_builder.grid_idx
        calls[block] = calls.get(block, 0) + 1
        return ok if (calls[block] - 1) % 3 == dropped else wait(counter, target, polls, ok)

    monkeypatch.setattr(kernels_persistent, "wait", forgetful)
    monkeypatch.setattr(host_persistent, "ONE_LAUNCH", True)
    for seed in range(8):
        calls.clear()
        with at_once(kernels_persistent.persistent, seed, often=0.1):
            ours = torch.ops.elmo_fast_triton.projected_lstm_persistent(*case)
        if not torch.equal(ours[0], wanted[0]):
            return
    pytest.fail("no order of the blocks tells that a wait is missing")


@interpreted
@pytest.mark.parametrize(
    ("size", "polls", "slow", "seed"),
    [(20, 12, (), 3), (20, 12, (), 28), (16, 40, (0,), 14), (16, 40, (0,), 22)],
    ids=str,
)
def test_who_gives_up_leaves_nan_and_never_wrong_numbers(size, polls, slow, seed, small, monkeypatch):
    """Few looks at a counter, and blocks give up while others still work; what nobody wrote shows as 7."""
    case = arguments(make(10, 3, 4, size, 32, directions=1), False, (False,))
    wanted = torch.ops.elmo_fast_triton.projected_lstm_persistent(*case)
    empty = torch.Tensor.new_empty
    monkeypatch.setattr(torch.Tensor, "new_empty", lambda t, *sizes, **options: empty(t, *sizes, **options).fill_(7))
    monkeypatch.setattr(host_persistent, "ONE_LAUNCH", True)
    monkeypatch.setattr(host_persistent, "MOST_POLLS", polls)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # numpy's, of the NaN
        with at_once(kernels_persistent.persistent, seed, often=1.0, slow=slow):
            ours = torch.ops.elmo_fast_triton.projected_lstm_persistent(*case)
    assert "the blocks of a persistent scan did not all arrive" in persistent_failure()
    assert persistent_failure() is None, "the report is made once"
    lost = 0
    for a, b in zip(ours[:3], wanted[:3], strict=True):
        assert torch.equal(torch.where(a.isnan(), b, a), b)
        lost += a.isnan().sum().item()
    assert lost > 0


@interpreted
def test_a_block_that_never_arrives_hangs_nobody(small, monkeypatch):
    monkeypatch.setattr(host_persistent, "ONE_LAUNCH", True)
    monkeypatch.setattr(host_persistent, "MOST_POLLS", 30)
    case = make(2, 3, 9, 20, 32, directions=1)
    with at_once(kernels_persistent.persistent, 0, absent=(1,)), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # numpy's, of the NaN
        out, _ = projected_lstm(*case, reverse=(False,), precision="float16", backend="triton_persistent")
    assert out.isnan().all()
    assert persistent_failure() is not None


@pytest.mark.parametrize(
    ("sizes", "options", "message"),
    [
        ((33, 1, 4, 8, 8), {}, "holds a layer of B <= 32 on chip, and this one has B=33"),
        ((1, 1, 4, 513, 8), {}, "holds a layer of D <= 512 on chip, and this one has D=513"),
        ((1, 1, 4, 8, 4097), {}, "holds a layer of H <= 4096 on chip, and this one has H=4097"),
        ((1, 1, 4, 8, 8), {"projected": False}, r"for layers with a projection \(weight_hr\)"),
        ((1, 1, 4, 8, 8), {"precision": "float32"}, 'take precision="float16" or "bfloat16"'),
    ],
    ids=str,
)
@on_backend
def test_refusals_are_one_sentence(backend, sizes, options, message):
    case = make(*sizes, projected=options.get("projected", True))
    with pytest.raises(ElmoFastError, match=message):
        projected_lstm(*case, precision=options.get("precision", "float16"), backend=backend)


def gpu(**changes):
    made = {"major": 9, "minor": 0, "multi_processor_count": 132, "shared_memory_per_block_optin": 232448}
    return types.SimpleNamespace(name="NVIDIA H200", **(made | changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({}, None),
        ({"major": 8}, "needs compute capability 9.0 or newer; NVIDIA H200 has 8.0"),
        ({"multi_processor_count": 114}, "needs 128 multiprocessors; NVIDIA H200 offers 114"),
        ({"shared_memory_per_block_optin": 101376}, "needs 227 KiB of shared memory per block; NVIDIA H200 offers 99"),
    ],
    ids=str,
)
def test_a_gpu_that_cannot_hold_the_weights_is_refused(changes, message, monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: gpu(**changes))
    found = host_persistent.too_small(torch.device("cuda", 0))
    assert found is None if message is None else message in found


def test_the_algorithm_is_chosen_by_what_was_measured(monkeypatch):
    def asked(batch=16, dtype=torch.float16, device="cuda", projected=True):
        layer = host.Layer(2, batch, 20, 512, 512, 4096, (False, True), 3.0, 3.0, True, dtype)
        return host_persistent.algorithm(layer, torch.device(device), projected)

    why = "`elmo-fast tune` has not measured the persistent scan of such a layer on this GPU"
    assert asked() == ("stepwise", why)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: gpu())
    measured = {_tuned.scan_limit(4096, 512, name): most for name, most in (("float16", 16), ("float32", 32))}
    monkeypatch.setattr(_tuned, "choice", lambda name, device: measured.get(name))
    assert asked() == ("persistent", "measured on this GPU: the faster one up to B=16 in float16")
    for change, why in (
        ({"batch": 17}, "up to B=16"),
        ({"batch": 40}, "B <= 32"),
        ({"dtype": torch.bfloat16}, "has not measured"),
        ({"dtype": torch.float32}, "16-bit weights"),
        ({"device": "cpu"}, "on cpu"),
        ({"projected": False}, "projection"),
    ):
        name, reason = asked(**change)
        assert name == "stepwise"
        assert why in reason
