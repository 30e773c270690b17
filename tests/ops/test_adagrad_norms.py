"""square_norm, merged_square_norm and clip_scale: against float64, and numbers that are not finite show."""

import pytest
import torch

from elmo_fast.errors import ElmoFastError
from elmo_fast.ops import (
    clip_scale,
    merged_square_norm,
    row_order,
    square_norm,
)
from tests.ops.adagrad_cases import NO_NUMBER, WIDTHS, every, fewer, merged, repeated, tensors, triton
from tests.support.tolerances import assert_close, assert_no_worse


@every
def test_square_norms(backend):
    """Many tensors, one element, nothing; strided; more partial sums than one program adds at a time."""
    gradients = tensors()[0]
    strided = [torch.randn(70, 40).t(), torch.randn(50)[::3]]
    for some in (gradients, gradients[3:4], gradients[4:5], strided):
        truth = torch.stack([g.double().square().sum() for g in some]).sum()
        plain = torch.stack([g.square().sum() for g in some]).sum()
        actual = square_norm(some, backend=backend)
        assert actual.dtype == torch.float32
        assert_no_worse("norm", actual, plain, truth, "float32")


@every
def test_a_norm_is_no_single_chain_of_sums(backend):
    """Alike numbers round alike: a chain of their squares, as torch.nn.utils.get_total_norm has, is far off here."""
    values = torch.full((2**15 + 3,), 0.1)
    truth = values.double().square().sum()
    rows = values[: 2**15].view(-1, 2**8)
    assert square_norm([values], backend=backend).item() == pytest.approx(truth.item(), rel=1e-6)
    assert merged_square_norm(torch.arange(128), rows, 128, backend=backend).item() == pytest.approx(
        rows.double().square().sum().item(), rel=1e-6
    )


@triton
def test_a_sum_of_many_partial_sums(backend, monkeypatch):
    """Nine partial sums, four at a time."""
    monkeypatch.setattr("elmo_fast.ops.adagrad.kernels.TOTAL_BLOCK", 4)
    values = torch.randn(9 * 8192 - 100)
    assert_close("norm", square_norm([values], backend=backend), values.double().square().sum(), "float32")


@triton
def test_partial_sums_are_added_in_float64(backend, monkeypatch):
    """Each of 32 ones, eight of them in the lane of 2^24, which as a float32 would take none."""
    monkeypatch.setattr("elmo_fast.ops.adagrad.kernels.TOTAL_BLOCK", 4)
    gradients = [torch.full((1,), 4096.0), *torch.ones(32, 1)]
    assert square_norm(gradients, backend=backend).item() == 2**24 + 32


@every
@pytest.mark.parametrize("width", WIDTHS, ids=str)
@pytest.mark.parametrize("count", [0, 1, 333])
def test_merged_square_norms(backend, width, count):
    """The square norm of the dense gradient; with and without the order."""
    most, words = fewer(width)
    ids, rows = repeated(min(count, most), words, 160), torch.randn(min(count, most), *width)
    truth, plain = (merged(ids, rows.to(dtype), words)[0].square().sum() for dtype in (torch.float64, torch.float32))
    order = row_order(ids, words) if len(width) == 1 else None
    actual = merged_square_norm(ids, rows, words, order=order, backend=backend)
    assert_no_worse("norm", actual, plain, truth, "float32")


@pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning")
@every
def test_norms_tell_what_is_not_finite(backend):
    for value in NO_NUMBER:
        rows = torch.ones(300, 3)
        rows[200, 1] = value
        assert not square_norm([torch.ones(5), rows], backend=backend).isfinite()
        assert not merged_square_norm(torch.arange(300) // 200, rows, 2, backend=backend).isfinite()
    assert not square_norm([torch.full((4,), 1e20)], backend=backend).isfinite()


def test_the_clip():
    """max_norm / max(norm, max_norm), 1 within, NaN where the norm is no number."""
    for norm, expected in ((20.0, 0.5), (10.0, 1.0), (1e-3, 1.0), (0.0, 1.0)):
        assert clip_scale(torch.tensor(norm), 10.0).item() == expected
    assert clip_scale(torch.tensor(2.0), 0.5).item() == 0.25
    assert all(clip_scale(torch.tensor(norm), 10.0).isnan() for norm in NO_NUMBER)
    with pytest.raises(ElmoFastError, match="max_norm must be above 0; got 0"):
        clip_scale(torch.tensor(1.0), 0.0)
