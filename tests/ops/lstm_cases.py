"""Layers for the tests of projected_lstm, and a backend's results on them against float64."""

import torch

from elmo_fast.ops import LSTMWeights, projected_lstm
from tests.support.backends import needs
from tests.support.tolerances import assert_no_worse


def make(
    batch,
    time,
    width,
    size,
    cells,
    *,
    directions=2,
    scale=1.0,
    dtype=torch.float32,
    projected=True,
    lengths=None,
    state=True,
):
    """Inputs, weights, lengths and state of a layer; `scale` makes the clips bite."""

    def weights():
        return LSTMWeights(
            torch.randn(4 * cells, width, dtype=dtype) * scale / width**0.5,
            torch.randn(4 * cells, size, dtype=dtype) * scale / size**0.5,
            torch.randn(4 * cells, dtype=dtype) * 0.3,
            torch.randn(size, cells, dtype=dtype) * scale * 2 / cells**0.5 if projected else None,
        )

    inputs = [torch.randn(batch, time, width, dtype=dtype) for _ in range(directions)]
    held = (torch.randn(directions, batch, size, dtype=dtype), torch.randn(directions, batch, cells, dtype=dtype))
    return inputs, [weights() for _ in range(directions)], lengths, held if state else None


def cast(case, dtype):
    inputs, weights, lengths, state = case
    return (
        [x.detach().to(dtype).requires_grad_() for x in inputs],
        [LSTMWeights(*(None if p is None else p.detach().to(dtype).requires_grad_() for p in w)) for w in weights],
        lengths,
        None if state is None else tuple(s.detach().to(dtype).requires_grad_() for s in state),
    )


def leaves(case):
    inputs, weights, _, state = case
    return [*inputs, *(p for w in weights for p in w if p is not None), *(state or ())]


def outputs_and_gradients(case, backend, precision="float32", **options):
    """recurrent_masks: in any dtype."""
    if "recurrent_masks" in options:
        options["recurrent_masks"] = [mask.to(case[0][0].dtype) for mask in options["recurrent_masks"]]
    out, (h, c) = projected_lstm(*case, backend=backend, precision=precision, **options)
    torch.manual_seed(7)
    loss = sum((t * torch.randn(t.shape, dtype=torch.float64).to(t.dtype)).sum() for t in (out, h, c))
    return [out, h, c, *torch.autograd.grad(loss, leaves(case))]


def check(case, backend, precision="float32", **options):
    """A backend against float64, allowed the error of the plain-torch definition at the same precision."""
    needs("projected_lstm", backend, precision)
    truth = outputs_and_gradients(cast(case, torch.float64), "reference", **options)
    plain = outputs_and_gradients(cast(case, torch.float32), "reference", precision, **options)
    actual = outputs_and_gradients(cast(case, torch.float32), backend, precision, **options)
    for i, (a, b, t) in enumerate(zip(actual, plain, truth, strict=True)):
        assert_no_worse(f"result {i}", a, b, t, precision)
