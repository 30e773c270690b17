"""Small calls of projected_lstm: both directions, rows that end early or have no step at all, clips that bite."""

import torch

from elmo_fast.ops import _tuned
from elmo_fast.ops._cases import Case, Draw, How, Replayed, Tensors
from elmo_fast.ops.projected_lstm.op import LSTMWeights, projected_lstm

MULTIPLIES = True
# D and H: sums over several tiles' depths. Of sizes that 16 divides, as models have, Triton compiles other code.
ODD, EVEN = (72, 136), (80, 144)
NAMES = ("weight_ih", "weight_hh", "bias", "weight_hr")


def layer(draw: Draw, batch: int, steps: int, size: int, cells: int) -> dict[str, torch.Tensor]:
    """Tensors of a layer of two directions: inputs, weights, lengths and the state to start from."""
    shapes = (4 * cells, size), (4 * cells, size), (4 * cells,), (size, cells)
    scales = 2 * size**-0.5, 2 * size**-0.5, 0.3, 2 * cells**-0.5
    weights = {
        f"{name} {i}": draw.normal(*shape, scale=scale)
        for i in range(2)
        for name, shape, scale in zip(NAMES, shapes, scales, strict=True)
    }
    return {
        "x": draw.normal(batch, steps, size),
        **weights,
        "lengths": torch.arange(batch) % (steps + 1),
        "h": draw.normal(2, batch, size),
        "c": draw.normal(2, batch, cells),
    }


def call(t: Tensors, how: How, clips: tuple[float, float] = (1.5, 1.0)) -> Tensors:
    """The layer with a residual; from zeros and over all steps where `t` has no state. clips: of cells, projections."""
    weights = [LSTMWeights(*(t[f"{name} {i}"] for name in NAMES)) for i in range(2)]
    state = (t["h"], t["c"]) if "h" in t else None
    inputs = [t["x"], t["x"]]
    out, (h, c) = projected_lstm(
        inputs, weights, t.get("lengths"), state, residual=True, cell_clip=clips[0], projection_clip=clips[1], **how
    )
    return {"outputs": out, "last h": h, "last c": c}


def far_from_bounds(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The same layer with cells and projections that are well above the clips of `call`, or well below, at every step.

    Small weights keep the gates near 1/2. Cells start at 8 or -8, a row's all alike, and every other projection adds
    them up.
    """
    small = "weight_ih", "weight_hh", "bias"
    changed = {name: 0.15 * each for name, each in tensors.items() if name.startswith(small)}
    for name in ("weight_hr 0", "weight_hr 1"):
        changed[name] = 0.2 * tensors[name]
        changed[name][::2] += 20 / tensors[name].shape[1]
    signs = 1 - 2 * (torch.arange(tensors["c"].shape[1]) % 2)
    return {**tensors, **changed, "c": 8.0 * signs[:, None].expand_as(tensors["c"]).clone()}


def call_unclipped(t: Tensors, how: How) -> Tensors:
    """With clips that no number reaches: beside a bound, a rounding decides whether a gradient passes."""
    return call(t, how, (100.0, 100.0))


def cases(draw: Draw) -> list[Case]:
    """Five ragged rows with a state; the same without gradients, which saves nothing."""
    tensors = far_from_bounds(layer(draw, 5, 3, *ODD))
    return [Case(tensors, call), Case(tensors, call, differentiates=False)]


def cases_of_tiles(draw: Draw, precision: str, device: torch.device) -> list[Case]:
    """Two steps of more rows, each tile that those may take on this card once."""
    from elmo_fast.ops.projected_lstm import tiling
    from elmo_fast.ops.projected_lstm.layer import Layer

    found: list[Case] = []
    seen, (size, cells) = [], EVEN
    for rows in (20, 40, 70):
        sizes = Layer(2, rows, 2, size, size, cells, (False, True), 1.5, 1.0, True, getattr(torch, precision))
        tiles = [tiling.candidates(sizes, kernel, device) for kernel in tiling.KERNELS]
        if tiles not in seen:
            seen.append(tiles)
            tensors = layer(draw, rows, 2, size, cells)
            found += [Case(tensors, call_unclipped, choices=each) for each in tiling.choices(sizes, device)]
    return found


def full_bucket(draw: Draw) -> Case:
    """A bucket of rows and steps that is full, so that its graph makes the very same launches as a call without one."""
    return Case(layer(draw, 4, 4, 36, 40), call, differentiates=False)


def replayed(precision: str, device: torch.device) -> Replayed:
    """The op of new inputs each time, of which the second captures and the third replays what was captured."""
    from elmo_fast.ops.projected_lstm import graphed

    case, how = full_bucket(Draw()), {"backend": "triton", "precision": precision}
    given = {name: tensor.to(device) for name, tensor in case.tensors.items()}
    with torch.no_grad():
        for seed in range(3):
            given["x"] = Draw(seed).normal(*given["x"].shape).to(device)
            with _tuned.forced({_tuned.graphs(precision): 1}):
                ours = case.call(given, how)
        with _tuned.forced({_tuned.graphs(precision): 0}):
            theirs = case.call(given, how)
    return Replayed(ours, theirs, len(graphed.GRAPHS))
