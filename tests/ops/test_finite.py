"""ELMO_FAST_CHECK_FINITE=1 names the op where a NaN enters or arises; without it NaN passes through as NaN."""

import pytest
import torch

from elmo_fast.errors import ElmoFastError
from elmo_fast.ops import highway
from tests.backends import backends

WEIGHTS, BIASES = [torch.eye(6, 3)], [torch.zeros(6)]


@pytest.mark.parametrize("backend", backends("highway", reference=True))
def test_a_nan_is_an_error_where_it_enters(monkeypatch, backend):
    x = torch.ones(2, 3)
    x[1, 2] = torch.nan
    weights, biases = [w.to(x.device) for w in WEIGHTS], [b.to(x.device) for b in BIASES]
    assert highway(x, weights, biases, backend=backend)[1, 2].isnan()
    monkeypatch.setenv("ELMO_FAST_CHECK_FINITE", "1")
    with pytest.raises(ElmoFastError, match=r"highway: x holds NaN or infinity before the op"):
        highway(x, weights, biases, backend=backend)
    with pytest.raises(ElmoFastError, match=r"highway: weights\[0\] holds NaN"):
        highway(torch.ones_like(x), [weights[0] / 0], biases, backend=backend)
    assert torch.isfinite(highway(torch.ones_like(x), weights, biases, backend=backend)).all()


def test_a_sum_that_overflows_is_named_as_such(monkeypatch):
    monkeypatch.setenv("ELMO_FAST_CHECK_FINITE", "1")
    with pytest.raises(ElmoFastError, match="highway: results holds NaN or infinity although all arguments are finite"):
        highway(torch.full((2, 3), 3e38), [torch.ones(6, 3)], BIASES, torch.ones(4, 3), backend="reference")
