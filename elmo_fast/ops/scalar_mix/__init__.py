"""scalar_mix: several weighted sums of the same layers in one pass."""

import functools
from collections.abc import Sequence

import torch
from torch import Tensor

from elmo_fast.errors import ElmoFastError
from elmo_fast.ops import _triton
from elmo_fast.ops._autograd import register_op
from elmo_fast.ops._checks import check_device, check_dtype, check_same, check_shapes, check_tensor, checked, described
from elmo_fast.ops._dispatch import register, registered_op, select
from elmo_fast.ops._sampling import LANES, LOW, philox4x32, threshold


def scalar_mix(
    layers: Tensor | Sequence[Tensor],
    scalars: Tensor,
    gammas: Tensor,
    *,
    layer_norm: bool = False,
    statistics_mask: Tensor | None = None,
    eps: float = 1e-12,
    dropout: float = 0.0,
    seed: Tensor | int | None = None,
    backend: str = "auto",
) -> Tensor:
    """Compute M learned weighted sums of L layers.

        y_m = gamma_m * sum_l softmax(scalars_m)_l * x_l
        x_l = h_l                                   or, with layer_norm,
        x_l = (h_l - mean_l) / sqrt(variance_l + eps)

    and, with dropout, each element of each y_m becomes 0 with that probability, else 1 / (1 - dropout) times itself.

    mean_l and the biased variance_l are one number each per layer, over all elements of the batch at the positions that
    `statistics_mask` marks. They are applied at every position, so results depend on what else is in the batch. bilm-tf
    counts the words without BOS and EOS, AllenNLP with them.

    Args:
        layers: L layers h_l, each [B, T, D] (or [..., D]), or one tensor [L, B, T, D]
        scalars: before the softmax, [M, L], dtype of the layers, or float32 where those are 16-bit: the arithmetic is
            in the dtype of scalars (and float32 on the GPU)
        gammas: [M], dtype of scalars
        layer_norm: normalise each layer first
        statistics_mask: positions that count in the statistics, [B, T], bool or 0/1; None counts all of them. Not used
            without layer_norm
        eps: term under the root (bilm-tf and AllenNLP 0.9: 1e-12; AllenNLP 2: 1e-13)
        dropout: probability of an element of a mix to be dropped, 0 <= dropout < 1
        seed: of the dropout: the same seed drops the same elements, on every backend. [] int64 on the layers' device
            (a captured CUDA graph reads it at each replay), a number, or None: sampled from torch's generator
        backend: "auto", "triton" or "reference", which is as fast on a CPU as a kernel of its own

    Returns:
        the mixes, [M, B, T, D], dtype of the layers. NaN if a statistics_mask marks no position and is not on the CPU
        (where that is an error)

    Raises:
        ElmoFastError: shapes, dtypes or devices that do not fit; a statistics_mask on the CPU that marks no position; a
            dropout that is not a probability below 1.

    Source: Peters et al. 2018, Deep contextualized word representations, equation 1.
    """
    op, layers = "scalar_mix", list(layers.unbind(0)) if isinstance(layers, Tensor) else list(layers)
    if not layers:
        raise ElmoFastError(f"{op}: layers must hold at least one tensor; got none")
    check_tensor(op, "layers", first := layers[0])
    if first.dtype in (torch.float16, torch.bfloat16) and scalars.dtype == torch.float32:
        check_same(op, "layers", layers, floating=True)
        check_same(op, "scalars and gammas", [scalars, gammas])
    else:
        check_same(op, "layers, scalars and gammas", [*layers, scalars, gammas], floating=True)
    for layer in layers:
        if layer.shape != first.shape or layer.dim() < 1:
            raise ElmoFastError(
                f"{op}: layers must share one shape [..., D]; got {described(first)} and {described(layer)}"
            )
    check_shapes(op, ("scalars", scalars, "M L"), ("gammas", gammas, "M"), L=len(layers))
    counted = None
    if statistics_mask is not None and layer_norm:
        if statistics_mask.shape != first.shape[:-1] or statistics_mask.device != first.device:
            raise ElmoFastError(
                f"{op}: statistics_mask must have shape {tuple(first.shape[:-1])}, that of the layers without the last "
                f"dimension, on {first.device}; got {described(statistics_mask)}"
            )
        counted = (statistics_mask != 0).contiguous()
        # Checked on the CPU only: on a GPU the check would wait for it.
        if counted.device.type == "cpu" and not torch.compiler.is_compiling() and counted.numel() and not counted.any():
            raise ElmoFastError(
                f"{op}: statistics_mask marks no position, so the layers have no mean; mark at least one"
            )
    if not 0 <= dropout < 1:
        raise ElmoFastError(f"{op}: dropout must be a probability, 0 <= dropout < 1; got {dropout}")
    if isinstance(seed, Tensor):
        check_shapes(op, ("seed", seed, ""))
        check_dtype(op, "seed", seed, torch.int64)
        check_device(op, "seed and layers", seed, first)
    elif seed is not None:
        seed = torch.full((), seed, dtype=torch.int64, device=first.device)
    elif dropout:
        seed = torch.randint(2**63 - 1, (), device=first.device)
    if not dropout:
        seed = None
    backend = select(op, backend, first.device, first.dtype)
    if backend == "reference":
        return checked(op, reference)(layers, scalars, gammas, layer_norm, counted, eps, dropout, seed)
    coefficients = gammas.float().unsqueeze(1) * torch.softmax(scalars.float(), dim=1)
    return registered_op(op, backend)(layers, coefficients, counted, seed, layer_norm, eps, dropout)[0]


def keep_mask(shape: torch.Size, p: float, seed: Tensor) -> Tensor:
    """Return which elements of the mixes are kept, bool [M, ...] of `shape`, each with probability 1 - p.

    Philox decides alike for every backend, keyed by the seed's two halves. Its counter is (element's number, of 64
    bits, the mix, 0), and its four results serve four elements LANES apart: element e takes result (e // LANES) % 4 of
    number e // (4 * LANES) * LANES + e % LANES. It is kept if that result, below 2^32, is at least p * 2^32.
    """
    mixes, n = shape[0], shape[1:].numel()
    blocks = -(-n // (4 * LANES))
    number = torch.arange(blocks * LANES, device=seed.device).expand(mixes, -1)
    mix = torch.arange(mixes, device=seed.device)[:, None].expand_as(number)
    key = (seed & LOW, (seed >> 32) & LOW)
    results = philox4x32(key, (number & LOW, number >> 32, mix, torch.zeros_like(number)))
    lanes = torch.stack([result.view(mixes, blocks, LANES) for result in results], 2)
    return (lanes.view(mixes, 4 * blocks * LANES)[:, :n] >= threshold(p)).view(shape)


def _total(x: Tensor) -> Tensor:
    """Sum everything, dimension by dimension: torch's threads share a single sum, and their number rounds it."""
    while x.dim():
        x = x.sum(-1)
    return x


def _per_row(number: Tensor, layer: Tensor) -> Tensor:
    """Expand a number to [..., 1] of a layer, so that its gradient is summed like `_total`."""
    return number.expand(layer.shape[:-1]).unsqueeze(-1)


def _normalised(layer: Tensor, counted: Tensor | None, eps: float) -> tuple[Tensor, Tensor]:
    """Compute layer - mean and 1 / sqrt(variance + eps), with ONE mean and variance over all counted positions.

    Both are over all elements at those positions; the variance is biased.
    """
    if counted is None:
        counted = torch.ones(layer.shape[:-1], dtype=torch.bool, device=layer.device)
    counted = counted.unsqueeze(-1)
    number = counted.sum() * layer.shape[-1]
    # Elements that do not count are replaced, not multiplied by zero: they may be NaN.
    off = layer - _per_row(_total(layer.where(counted, 0)) / number, layer)
    variance = _total(off.where(counted, 0).square()) / number
    return off, 1 / torch.sqrt(variance + eps)


def reference(
    layers: list[Tensor],
    scalars: Tensor,
    gammas: Tensor,
    layer_norm: bool,
    counted: Tensor | None,
    eps: float,
    dropout: float,
    seed: Tensor | None,
) -> Tensor:
    """Compute scalar_mix in plain torch: the definition."""
    dtype, layers = layers[0].dtype, [layer.to(scalars.dtype) for layer in layers]
    coefficients = gammas.unsqueeze(1) * torch.softmax(scalars, dim=1)
    if len(coefficients) == 0:
        return torch.tensordot(coefficients, torch.stack(layers), 1).to(dtype)
    if layer_norm and layers[0].numel():  # without elements there is no mean
        pairs = [_normalised(layer, counted, eps) for layer in layers]
        layers, coefficients = [off for off, _ in pairs], coefficients * torch.stack([inverse for _, inverse in pairs])
    mixes, shape = [], layers[0].shape[:-1]
    # A number for each row of a layer, as in `_per_row`.
    for row in coefficients.view(*coefficients.shape, *[1] * len(shape), 1).expand(-1, -1, *shape, 1):
        first, *others = row.unbind()
        mixes.append(first * layers[0])
        for coefficient, layer in zip(others, layers[1:], strict=True):
            mixes[-1].addcmul_(coefficient, layer)
    y = torch.stack(mixes) if len(mixes) > 1 else mixes[0].unsqueeze(0)
    if seed is not None:
        y = torch.where(keep_mask(y.shape, dropout, seed), y * (1 / (1 - dropout)), 0)
    return y.to(dtype)


register_op(
    "scalar_mix",
    lambda a: a.layers[0].new_empty(a.coefficients.shape[0], *a.layers[0].shape),
    saved=lambda a: [],
)
# Layers may be 16-bit: nothing is multiplied by tensor cores.
_dtypes = torch.float32, torch.float16, torch.bfloat16
_unsupported = functools.partial(_triton.unsupported, dtypes=_dtypes)
register("scalar_mix", "triton", kernels="elmo_fast.ops.scalar_mix.kernels", triton=_unsupported)
