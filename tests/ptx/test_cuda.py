"""What the kernels of CUDA C++ compute, as nvcc compiles them for sm_80."""

import functools

import pytest
import torch

from elmo_fast.ops import log_uniform_sample
from tests.ptx import cases, cuda
from tests.tolerances import assert_no_worse

pytestmark = cuda.NEEDED
TOO_MANY = 1_300_000  # words whose bitmap is larger than a block's shared memory


@pytest.mark.parametrize(
    ("samples", "words", "seed", "offset"),
    [
        (1, 1, 0, 0),
        (7, 10, 3, 2**40 + 3),
        (100, 100, 2**32 + 1, 7),
        (1500, 2000, 2**63 - 1, 1),
        (2200, TOO_MANY, 5, 2**62),
    ],
)
@pytest.mark.parametrize("on_device", [False, True])
def test_sampler_draws_what_the_reference_draws(emulator, samples, words, seed, offset, on_device):
    """Ids, order and tries, exactly; the last two need several waves, the last a bitmap in global memory."""
    wanted = log_uniform_sample(samples, words, seed=seed, offset=offset, backend="reference")
    more = torch.tensor([seed, offset]) - 5 if on_device else None
    found = cuda.sample(emulator, samples, words, *((5, 5) if on_device else (seed, offset)), more)
    assert torch.equal(found[0], wanted[0])
    assert found[1] == wanted[1]
    waves = -(-int(wanted[1]) // cuda.launchers().library.sampler_wave())
    assert (waves > 1) == (samples > 1000)


def test_sampler_gives_up_at_its_limit(emulator):
    """With no number of tries, and 0 where no word is."""
    wanted, tries = log_uniform_sample(100, 100, seed=5, offset=1, backend="reference")
    wave = cuda.launchers().library.sampler_wave()
    ids, none = cuda.sample(emulator, 1500, 2000, 5, 1, limit=wave)
    assert none == -1
    placed = int((ids != 0).sum()) + 1  # word 0 is the most frequent
    assert 0 < placed < 1500
    assert not ids[placed:].any()
    assert len(ids[:placed].unique()) == placed
    assert cuda.sample(emulator, 100, 100, 5, 1, limit=int(tries))[1] == -1
    assert cuda.sample(emulator, 100, 100, 5, 1, limit=int(tries) + 1)[1] == tries
    assert torch.equal(cuda.sample(emulator, 100, 100, 5, 1, limit=int(tries))[0], wanted)


def within(numbers, last):
    """As the kernels hold an index within its range: what is outside becomes the last."""
    numbers = numbers.long()
    return torch.where((numbers < 0) | (numbers > last), last, numbers)


def gradients(made, count, tanh, precision, dtype):
    """By autograd through the winning windows: of embedding, weights and biases."""
    grad, out, winners, ids, embedding, weights = made
    leaves = [t.to(dtype).requires_grad_() for t in (embedding, *weights)]
    rounded = [t + (t.detach().to(getattr(torch, precision)).to(dtype) - t.detach()) for t in leaves]
    biases = [torch.zeros(len(w), dtype=dtype, requires_grad=True) for w in weights]
    maxima, first = [], 0
    for weight, bias in zip(rounded[1:], biases, strict=True):
        filters, _, width = weight.shape
        starts = within(winners[:, first : first + filters], ids.shape[1] - width)
        slots = (starts[..., None] + torch.arange(width)).flatten(1)
        characters = within(ids.gather(1, slots), len(embedding) - 1).view(*starts.shape, width)
        maxima.append((rounded[0][characters] * weight.transpose(1, 2)).sum((2, 3)) + bias)
        first += filters
    out = out.to(dtype)
    slopes = grad.to(dtype) * (1 - out * out if tanh else out > 0)
    slopes[count:] = 0
    return torch.autograd.grad(torch.cat(maxima, 1), [*leaves, *biases], slopes)


@pytest.mark.parametrize(
    ("precision", "tanh", "count", "options"),
    [
        ("float32", False, 20, {"rows": 20}),
        ("float16", True, 29, {"rows": 33, "size": 7, "characters": 300, "widths": ((2, 3), (4, 33))}),
        ("bfloat16", False, 1, {"rows": 1, "size": 1, "widths": ((12, 2), (1, 65)), "narrow": True}),
        ("float32", True, 1200, {"rows": 515, "size": 17, "characters": 9, "widths": ((2, 5),)}),
        ("float32", False, 17, {"rows": 17, "size": 33, "characters": 265, "widths": ((3, 3),), "wild": True}),
        ("float32", True, 9, {"rows": 9, "wild": True, "narrow": True}),
    ],
)
def test_char_cnns_gradients_are_no_worse_than_torchs(emulator, precision, tanh, count, options):
    """Two splits of the rows, two tiles of characters, rows that do not count, numbers that are no character."""
    torch.manual_seed(0)
    made = cases.char_cnn_words(**options)
    more = torch.tensor([count]) if count != options["rows"] else None
    d_embedding, d_weights, d_biases = cuda.char_cnn_backward(emulator, *made, more, tanh, precision)
    ours = [d_embedding, *d_weights, *d_biases]
    wanted = functools.partial(gradients, made, min(count, options["rows"]), tanh)
    truth, torchs = wanted("float64", torch.float64), wanted(precision, torch.float32)
    for k, each in enumerate(zip(ours, torchs, truth, strict=True)):
        assert_no_worse(f"gradient {k}", *each, precision)


def test_char_cnns_gradients_that_nobody_needs_are_left_out(emulator):
    torch.manual_seed(0)
    made = cases.char_cnn_words(5, 3)
    both = cuda.char_cnn_backward(emulator, *made)
    assert torch.equal(cuda.char_cnn_backward(emulator, *made, need_weights=False)[0], both[0])
    _, *rest = cuda.char_cnn_backward(emulator, *made, need_embedding=False)
    for ours, theirs in zip(rest, both[1:], strict=True):
        assert all(map(torch.equal, ours, theirs))
