"""Dropout: how much stays, by which factor, what the seed decides, and its gradient."""

import pytest
import torch

from elmo_fast.tasks.features import dropout


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_as_much_is_dropped_as_was_asked_and_the_rest_is_scaled(p):
    """Each element alone: the share over all, and that of neighbours that fall together."""
    x = torch.rand(400, 501) + 1
    out = dropout(x, p, True)
    kept = out != 0
    assert abs(float(kept.float().mean()) - (1 - p)) < 0.005
    torch.testing.assert_close(out[kept], x[kept] / (1 - p), rtol=2e-4, atol=0)
    for shift in (1, 2, 4):
        together = (kept[:, shift:] & kept[:, :-shift]).float().mean()
        assert abs(float(together) - (1 - p) ** 2) < 0.006
    assert abs(float(out.mean()) - 1.5) < 0.03


def test_the_seed_of_torch_decides():
    """The same seed drops the same, the next call others."""
    x = torch.ones(3, 7, 5)
    torch.manual_seed(1)
    first, second = dropout(x, 0.5, True), dropout(x, 0.5, True)
    torch.manual_seed(1)
    assert torch.equal(dropout(x, 0.5, True), first)
    assert not torch.equal(second, first)


def test_nothing_is_dropped_in_evaluation_or_with_no_chance():
    x = torch.ones(3)
    assert dropout(x, 0.5, False) is x
    assert dropout(x, 0.0, True) is x
    assert dropout(torch.ones(0, 4), 0.5, True).shape == (0, 4)


def test_the_gradient_is_what_was_kept():
    x = torch.ones(50, dtype=torch.float64, requires_grad=True)
    out = dropout(x, 0.25, True)
    out.sum().backward()
    assert torch.equal(x.grad, out.detach())
    assert set(x.grad.tolist()) == {0.0, 4 / 3}
