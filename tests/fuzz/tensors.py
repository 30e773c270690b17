"""Tensors at random: sizes that kernels stumble over, odd strides, odd values; and two backends held together."""

import random
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from elmo_fast.errors import ElmoFastError
from elmo_fast.op_choices import INFERENCE_PRECISIONS, PRECISIONS
from elmo_fast.ops import _dispatch, _native
from tests.fuzz.judge import Wrong, sentence
from tests.support.tolerances import RATIO, SMALL

# An output that nothing wrote is NaN, and is seen.
torch.use_deterministic_algorithms(True)
torch.utils.deterministic.fill_uninitialized_memory = True
if _native.C is not None:
    _native.C.fill_new_memory(True)
CPU = torch.device("cpu")
UNIT = {torch.float64: 2.0**-53, torch.float32: 2.0**-24, "float32": 2.0**-24, "bfloat16": 2.0**-9, "float16": 2.0**-11,
        "int8": 2.0**-24}  # fmt: skip
NEAR_HALF = 2.0**12  # from here on a sum on the way may pass 65,504, float16's largest number, in one order alone
ACTIVATION = 3  # units in the last place that a kernel's sigmoid and tanh may be off (tests/ops/test_activations.py)
# A kernel's sigmoid is at least 2e-35, above 0 exactly: it does not follow e^x further. What it multiplies, a cell or a
# gradient before a clip, may be larger than every result.
VANISHED = 1e-30
Call = Callable[[list[Tensor], str, str], Sequence[Tensor]]


def size(rng: random.Random, most: int = 40, zero: bool = True) -> int:
    """A size: often small or about a block of kernels, sometimes 0."""
    kind = rng.randrange(16)
    if kind == 1 and zero:
        return 0
    if kind < 3:
        return 1
    if kind < 12:
        return rng.randrange(1, most + 1)
    return min(rng.choice((8, 16, 31, 32, 33, 63, 64, 65, 127, 128, 129, 256, 513)), 4 * most)


def _generator(rng: random.Random) -> torch.Generator:
    return torch.Generator().manual_seed(rng.getrandbits(31))


def laid_out(rng: random.Random, values: Tensor) -> Tensor:
    """The same values under other strides, or at an offset into a storage."""
    kind = rng.randrange(10)
    if kind == 1 and values.dim() >= 2:
        a, b = rng.sample(range(values.dim()), 2)
        return values.transpose(a, b).contiguous().transpose(a, b)
    if kind == 2 and values.dim():
        wide = values.new_zeros([*values.shape[:-1], 2 * values.shape[-1]])
        wide[..., ::2] = values
        return wide[..., ::2]
    if kind == 3:
        offset = rng.randrange(1, 9)
        flat = values.new_zeros(values.numel() + offset + 3)
        flat[offset : offset + values.numel()] = values.reshape(-1)
        return flat[offset : offset + values.numel()].view(values.shape)
    if kind == 4 and values.dim() and values.shape[0] > 1:
        return values[:1].expand(values.shape)
    if kind == 5 and values.dim():
        wide = values.new_zeros([*values.shape[:-1], values.shape[-1] + 5])
        wide[..., 2 : 2 + values.shape[-1]] = values
        return wide[..., 2 : 2 + values.shape[-1]]
    return values


class Kind(NamedTuple):
    """Properties of the values of one case: factor, fraction of zeros, whether NaN and infinity occur."""

    scale: float
    zeros: float
    odd: bool


def kind(rng: random.Random) -> Kind:
    """Mostly plain numbers."""
    at = rng.randrange(20)
    scale = rng.choice((1e-30, 1e-3, 10.0)) if at in (17, 18) else 1.0
    return Kind(scale, rng.choice((0.1, 0.9, 1.0)) if at == 16 else 0.0, at == 19)


def numbers(
    rng: random.Random, shape: Sequence[int], kind: Kind, *, dtype: torch.dtype = torch.float32, scale: float = 1.0
) -> Tensor:
    """Floating-point numbers of that kind, under any strides."""
    g = _generator(rng)
    values = torch.randn(tuple(shape), generator=g, dtype=torch.float64) * scale * kind.scale
    if kind.zeros:
        values = torch.where(torch.rand(tuple(shape), generator=g) < kind.zeros, 0.0, values)
    if kind.odd and values.numel() and rng.random() < 0.5:
        places = torch.randint(values.numel(), (rng.choice((1, 1, 2, 5)),), generator=g)
        values.view(-1)[places] = rng.choice((torch.nan, torch.inf, -torch.inf))
    return laid_out(rng, values.to(dtype))


def whole(
    rng: random.Random, shape: Sequence[int], most: int, *, low: int = 0, dtype: torch.dtype = torch.int64
) -> Tensor:
    """Whole numbers from `low` up to, but not including, `most`, in any strides; zeros where there are none such."""
    values = torch.randint(low, max(most, low + 1), tuple(shape), generator=_generator(rng), dtype=torch.int64)
    return laid_out(rng, values.to(dtype))


def precision(rng: random.Random, op: str, dtype: torch.dtype = torch.float32) -> str:
    """One that the native backend serves; int8 of the ops that take it."""
    known = INFERENCE_PRECISIONS if _dispatch.OPS[op].int8 else PRECISIONS
    chosen = rng.choice(("float32", "float32", *known)) if dtype == torch.float32 else "float32"
    why = _dispatch.unsupported(op, "native", CPU, dtype, chosen)
    return "float32" if why else chosen


def floating(rng: random.Random, op: str) -> torch.dtype:
    """Mostly float32; float64 where the native backend takes it."""
    double = rng.randrange(6) == 5 and _dispatch.unsupported(op, "native", CPU, torch.float64, "float32") is None
    return torch.float64 if double else torch.float32


def threads(rng: random.Random) -> None:
    """So many as the case is to run on: results may not depend on it."""
    torch.set_num_threads(rng.choice((1, 1, 2, 3)))


class Results(NamedTuple):
    """Result of a backend: an error message; or tensors by name, outputs and gradients (None: it returned none)."""

    refused: str | None
    tensors: dict[str, Tensor | None]


def results(
    call: Call, tensors: Sequence[Tensor], leaf_numbers: Sequence[int], backend: str, precision: str, cotangents: int
) -> Results:
    """Return a call's outputs and its gradients for `leaf_numbers` of `tensors`; `cotangents` is the seed of theirs."""
    leaves = [t.detach().requires_grad_(i in leaf_numbers) for i, t in enumerate(tensors)]
    try:
        outputs = list(call(leaves, backend, precision))
    except ElmoFastError as error:
        sentence(str(error))
        return Results(str(error), {})
    actual: dict[str, Tensor | None] = {f"output {i}": t.detach() for i, t in enumerate(outputs)}
    # Sampled for every output: a backend may notice or not that no tensor of interest flows into one.
    g = torch.Generator().manual_seed(cotangents)
    directions = [torch.randn(t.shape, generator=g, dtype=torch.float64).to(t.dtype) for t in outputs]
    if cotangents % 4 == 1:
        directions = [torch.ones((), dtype=t.dtype).expand(t.shape) for t in outputs]
    flows = [i for i, t in enumerate(outputs) if t.requires_grad]
    if leaf_numbers and flows:
        flowing, grads = [outputs[i] for i in flows], [directions[i] for i in flows]
        gradients = torch.autograd.grad(flowing, [leaves[i] for i in leaf_numbers], grads, allow_unused=True)
        for i, gradient in zip(leaf_numbers, gradients, strict=True):
            actual[f"gradient of tensor {i}"] = None if gradient is None else _dense(gradient)
    return Results(None, actual)


def _dense(tensor: Tensor) -> Tensor:
    return tensor.to_dense() if tensor.is_sparse else tensor


def compare(
    op: str,
    call: Call,
    tensors: Sequence[Tensor],
    rng: random.Random,
    *,
    precision: str = "float32",
    differentiate: bool = True,
    cancelling: Mapping[str, float] | None = None,
) -> None:
    """Raises Wrong unless "native" gives what "reference" gives: refusal, None, NaN and infinity alike, and errors
    against float64 within the one table of tolerances.

    Where a result jumps (a maximum, a clip), or lives on digits that are lost (1 - tanh² of what is nearly 1), both
    sides may be right: an error passes that the reference has as well when its inputs and activations differ in the
    last place. In int8 nothing is differentiated.

    cancelling: by a result's name, the size of the terms whose difference it is, which is what they are rounded at.
    """
    differentiate = differentiate and precision != "int8"
    reference = [i for i in range(len(tensors)) if rng.random() < 0.85] if differentiate and rng.random() < 0.85 else []
    cotangents = rng.getrandbits(20)
    actual = results(call, tensors, reference, "native", precision, cotangents)
    torchs = results(call, tensors, reference, "reference", precision, cotangents)
    if (actual.refused is None) != (torchs.refused is None):
        raise Wrong(f"{op}, refused by one backend alone: native {actual.refused}; reference {torchs.refused}")
    if actual.refused is not None:
        return
    exact = tensors[0].dtype == torch.float64
    truth = results(call, [t.double() for t in tensors], reference, "reference", "float32", cotangents).tensors
    largest = max((_largest(t) for t in truth.values() if t is not None), default=0.0)
    for name in actual.tensors | torchs.tensors:
        mine, expected, true = (each.get(name) for each in (actual.tensors, torchs.tensors, truth))
        if mine is None or expected is None or true is None:
            # If nothing depends on a tensor, a backend may notice that before it computes, and return no zeros.
            if any(each is not None and each.any() for each in (mine, expected)):
                raise Wrong(f"{op}, {name}, returned by one backend alone: native {mine is not None}")
            continue
        if mine.shape != expected.shape or mine.dtype != expected.dtype:
            raise Wrong(
                f"{op}, {name}, shape or dtype: native {mine.shape} {mine.dtype}, "
                f"reference {expected.shape} {expected.dtype}"
            )
        if not mine.is_floating_point():
            if not torch.equal(mine, expected):
                raise Wrong(f"{op}, {name}, whole numbers: native and reference differ")
            continue
        if precision != "float16" or largest < NEAR_HALF:
            _agree(f"{op}, {name}", mine, expected, true)
        terms = (cancelling or {}).get(name, 0.0)
        size_in_use = "float64" if exact else precision
        for at in range(9):
            excess = _excess(mine, expected, true, size_in_use, largest, terms)
            if excess is None:
                break
            if at == 8:
                raise Wrong(f"{op}, {name}, number ({precision}, {mine.dtype}): {excess}")
            expected = _jittered(call, tensors, reference, precision, cotangents, at)[name]
            assert expected is not None
            if not expected.isfinite().all() and expected.numel():
                break


def _agree(name: str, mine: Tensor, expected: Tensor, true: Tensor) -> None:
    """Numbers that are not finite are at the same indices; infinity or NaN depends on the order of a sum
    (docs/numerics.md)."""
    different = (mine.isfinite() != expected.isfinite()) & ~((true.abs() > 1e36) & true.isfinite())
    if different.any():
        at = different.nonzero()[0].tolist()
        a, b, c = (float(t[tuple(at)]) for t in (mine, expected, true))
        raise Wrong(f"{name}, not finite: at {at} native {a}, reference {b}, in float64 {c}")


def _largest(tensor: Tensor) -> float:
    finite = tensor[tensor.isfinite()]
    return finite.abs().max().item() if finite.numel() else 0.0


def _excess(
    mine: Tensor, expected: Tensor, true: Tensor, precision: str, largest: float, terms: float = 0.0
) -> str | None:
    """By what the error of `mine` is larger than the table of tolerances allows; None where it is not.

    Where terms cancel, the truth is 0 to the last place of float64, and tells no size: where the definition errs there
    too, the size is that of the call's `largest` true number. So it is in float64, where the truth is rounded as well.
    `terms`: a size that is known to cancel.
    """
    finite = mine.isfinite() & expected.isfinite() & true.isfinite()
    if not finite.any():
        return None
    a, b, c = (t[finite].double() for t in (mine, expected, true))
    error, theirs_error, scale = ((a - c).abs().max().item(), (b - c).abs().max().item(), c.abs().max().item())
    if precision == "float64" or (scale <= SMALL["float64"] * largest and theirs_error > scale):
        scale = max(scale, largest)
    bound = RATIO * theirs_error + SMALL[precision] * max(scale, terms, 1e-30) + VANISHED * largest
    return f"error {error:.3e} exceeds {bound:.3e}" if error > bound else None


def _jittered(
    call: Call, tensors: Sequence[Tensor], leaf_numbers: Sequence[int], precision: str, cotangents: int, seed: int
) -> dict[str, Tensor | None]:
    """Return the reference's results for inputs that differ in the last place of the precision."""
    unit = UNIT[torch.float64] if tensors[0].dtype == torch.float64 else UNIT[precision]
    g = torch.Generator().manual_seed(seed)
    other = [t * (1 + 2 * unit * torch.randn(t.shape, generator=g, dtype=torch.float64)).to(t.dtype) for t in tensors]
    with _OtherActivations(g):
        return results(call, other, leaf_numbers, "reference", precision, cotangents).tensors


class _OtherActivations(TorchFunctionMode):
    """torch.sigmoid and torch.tanh with results that differ in the last place."""

    def __init__(self, generator: torch.Generator) -> None:
        super().__init__()
        self._generator = generator

    def __torch_function__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        if func in (torch.sigmoid, torch.tanh):
            return _OtherActivation.apply(*args, func, self._generator)
        return func(*args, **(kwargs or {}))


class _OtherActivation(torch.autograd.Function):
    """Off by up to ACTIVATION units in the last place; where it is saturated, at 0 or 1, it is exact."""

    @staticmethod
    def forward(ctx, x, func, generator):  # type: ignore[no-untyped-def]
        exact = func(x)
        off = torch.rand(exact.shape, generator=generator, dtype=torch.float64) * 2 - 1
        other = (exact * (1 + ACTIVATION * UNIT[exact.dtype] * off)).to(exact.dtype).clamp(-1, 1)
        ctx.tanh = func is torch.tanh
        ctx.save_for_backward(other := other.where(exact.abs() != 1, exact))
        return other

    @staticmethod
    def backward(ctx, grad):  # type: ignore[no-untyped-def]
        (y,) = ctx.saved_tensors
        return grad * (1 - y * y if ctx.tanh else y * (1 - y)), None, None
