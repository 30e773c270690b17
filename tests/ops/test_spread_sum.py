"""projected_lstm: the parts of a split product added by all blocks, which wait for each other, or by the last alone."""

import warnings

import pytest
import torch

from elmo_fast.ops import _card, _triton
from tests.ops.at_once import at_once
from tests.ops.lstm_cases import cast, leaves, make

pytestmark = pytest.mark.skipif(_triton.WHY_NOT is not None, reason=str(_triton.WHY_NOT))
interpreted = pytest.mark.skipif(not _triton.INTERPRETED, reason="runs the blocks in the interpreter")
if _triton.WHY_NOT is None:
    from elmo_fast.ops import projected_lstm
    from elmo_fast.ops.projected_lstm import host, host_backward, kernels_arrival, kernels_backward, kernels_forward

PARTS = 4
CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Small tiles, so that a small layer has several; 18 rows are two tiles, of which the second's end early."""
    tile = _triton.Tiles(16, 16, 16, 4, 2)
    for module in (host, host_backward):
        monkeypatch.setattr(
            module, "tiles", lambda layer, kernel, *_: (tile, PARTS if kernel in ("project", "recur") else 1)
        )
        monkeypatch.setattr(module, "MOST_POLLS", 5000)


@pytest.fixture
def spread(monkeypatch):
    for module in (host, host_backward):
        monkeypatch.setattr(module, "spreads", lambda *_: True)


def case(rows=18):
    lengths = torch.tensor([2] * 16 + [1, 0])[-rows:]
    return cast(make(rows, 2, 6, 12, 64, directions=1, lengths=lengths), torch.float32)


def results(given, precision, *at_each):
    """Outputs, state and gradients; each pass within its context."""
    forwards, backwards = at_each
    with forwards:
        out, (h, c) = projected_lstm(*given, reverse=(True,), precision=precision, backend="triton")
    loss = sum((t * torch.linspace(-1, 1, t.numel()).view(t.shape)).sum() for t in (out, h, c))
    with backwards:
        return [out, h, c, *torch.autograd.grad(loss, leaves(given))]


def alone():
    return warnings.catch_warnings()


@interpreted
@pytest.mark.parametrize(("seed", "precision"), [(0, "float32"), (1, "float16")])
def test_all_blocks_add_the_bits_that_the_last_one_adds(seed, precision, monkeypatch):
    given = case()
    wanted = results(given, precision, alone(), alone())
    for module in (host, host_backward):
        monkeypatch.setattr(module, "spreads", lambda *_: True)
    ours = results(
        given, precision, at_once(kernels_forward.project, seed), at_once(kernels_backward.recur_backward, seed)
    )
    for a, b in zip(ours, wanted, strict=True):
        assert torch.equal(a, b)


@pytest.mark.skipif(_triton.INTERPRETED, reason="the interpreter runs one block after the other")
@pytest.mark.parametrize("backend", ["triton"])
@pytest.mark.parametrize("precision", ["float32", "float16", "bfloat16"])
def test_all_blocks_add_the_same_bits_as_compiled(precision, backend, monkeypatch):
    """On a GPU, or in the emulator (tests/ptx), which sees races between blocks."""
    given = case()
    wanted = results(given, precision, alone(), alone())
    for module in (host, host_backward):
        monkeypatch.setattr(module, "spreads", lambda *_: True)
    for a, b in zip(results(given, precision, alone(), alone()), wanted, strict=True):
        assert torch.equal(a, b)


@interpreted
@pytest.mark.parametrize("missing", ["wait", "arrive"])
@pytest.mark.parametrize("kernel", ["project", "recur_backward"])
def test_a_wait_less_is_found(kernel, missing, spread, monkeypatch):
    """The test above can fail: parts are added before they are there, or a block gives up and its share is NaN."""
    given = case(10)
    with monkeypatch.context() as whole:
        for module in (host, host_backward):
            whole.setattr(module, "spreads", lambda *_: False)
        wanted = results(given, "float32", alone(), alone())
    monkeypatch.setattr(kernels_arrival, missing, lambda counter, *rest: rest[-1])
    for module in (host, host_backward):
        monkeypatch.setattr(module, "MOST_POLLS", 10)
    at = {name: alone() for name in ("project", "recur_backward")}
    module = kernels_forward if kernel == "project" else kernels_backward
    if kernel == "recur_backward":  # alone in waiting
        monkeypatch.setattr(host, "spreads", lambda *_: False)
    else:
        monkeypatch.setattr(host_backward, "spreads", lambda *_: False)
    for seed in range(6):
        at[kernel] = at_once(getattr(module, kernel), seed, often=0.2)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # numpy's, of the NaN
            ours = results(given, "float32", *at.values())
        if any(not torch.equal(a, b) for a, b in zip(ours, wanted, strict=True)):
            return
    pytest.fail("no order of the blocks tells that they do not wait")


@interpreted
def test_a_block_that_never_arrives_hangs_nobody(spread, monkeypatch):
    """What waits for it in vain is NaN, and nothing is wrong."""
    given = case(10)
    monkeypatch.setattr(host, "spreads", lambda *_: False)
    wanted = results(given, "float32", alone(), alone())[0][0].detach()
    monkeypatch.setattr(host, "spreads", lambda *_: True)
    monkeypatch.setattr(host, "MOST_POLLS", 30)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        with at_once(kernels_forward.project, 0, absent=((0, 0, 1),)):
            ours = projected_lstm(*given, reverse=(True,), backend="triton")[0][0]
    assert ours.isnan().any()
    assert torch.equal(torch.where(ours.isnan(), wanted, ours), wanted)


def test_sums_are_spread_where_all_blocks_are_resident_and_it_pays(monkeypatch):
    large, less = _triton.Tiles(128, 128, 64, 8, 3), _triton.Tiles(16, 64, 64, 4, 4)
    monkeypatch.setattr(_triton, "INTERPRETED", False)
    monkeypatch.setattr(_card, "multiprocessors", lambda _: 132)
    assert host.spreads(large, 16, (4, 1, 32), CPU)
    assert not host.spreads(large, 1, (4, 1, 2), CPU)
    assert not host.spreads(less, 16, (8, 1, 32), CPU)
    monkeypatch.setattr(_card, "multiprocessors", lambda _: 108)
    assert not host.spreads(large, 16, (4, 1, 32), CPU), "blocks that wait for one that cannot start"
