"""Small, ragged calls of every op with a GPU kernel, compared with the reference by `elmo-fast check` and the tests.

The one table of tolerances is here too.

Triton compiles sizes that 16 divides to different code, so most ops have both.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from elmo_fast.ops import (
    LSTMWeights,
    adagrad_,
    adagrad_rows_,
    char_cnn,
    clip_scale,
    full_softmax,
    gather_rows,
    hierarchical_softmax,
    highway,
    huffman_tree,
    log_uniform_sample,
    merged_square_norm,
    negative_sampling,
    ordered_unique_rows,
    projected_lstm,
    sampled_softmax,
    scalar_mix,
    square_norm,
)

# Factor by which a kernel's rms or largest error may exceed plain torch's, as a different order of summation may.
RATIO = 1.5
# Small term, relative to the largest |truth|: a few units in the last place of the precision in use. A step of int8
# is 1/127 of its row's largest number: if the float32 of both differ in the last place, one may take the next step.
SMALL = {"float64": 1e-14, "float32": 1e-6, "float16": 1e-3, "bfloat16": 8e-3, "int8": 1e-2}


def why_worse(name: str, actual: Tensor, torchs: Tensor, truth: Tensor, precision: str) -> str | None:
    """Return one sentence if an error of `actual` exceeds its bound, else None.

    The bound of |actual - truth|, rms and largest, is RATIO * |torch's - truth| + SMALL * max|truth|. A NaN that the
    truth does not have exceeds every bound.
    """
    if actual.shape != truth.shape:
        return f"{name}: shape {tuple(actual.shape)}, expected {tuple(truth.shape)}"
    if truth.numel() == 0:
        return None
    truth = truth.double()
    scale = truth.abs().max().item()
    for kind, size in (("largest", lambda e: e.abs().max()), ("rms", lambda e: e.square().mean().sqrt())):
        error = size(actual.double() - truth).item()
        bound = RATIO * size(torchs.double() - truth).item() + SMALL[precision] * max(scale, 1e-30)
        if math.isnan(error) or error > bound:
            return f"{name}: {kind} error {error:.3e} exceeds {bound:.3e} at {precision}"
    return None


How = Mapping[str, Any]  # backend and precision
Tensors = Mapping[str, Tensor]


class Case(NamedTuple):
    """Call of an op: `call(tensors, how)` returns its results by name; each has one right value."""

    tensors: Tensors
    """arguments on the CPU, floating-point ones in float32"""
    call: Callable[[Tensors, How], Tensors]
    differentiates: bool = True
    """whether floating-point tensors get gradients; if not, the call may write them in place"""


class Draw:
    """Random tensors on the CPU, equal on every machine."""

    def __init__(self, seed: int = 0) -> None:
        self.generator = torch.Generator("cpu").manual_seed(seed)

    def normal(self, *shape: int, scale: float = 1.0) -> Tensor:
        """Sample normal numbers of this standard deviation."""
        return scale * torch.randn(shape, generator=self.generator, device="cpu")

    def integers(self, below: int, *shape: int) -> Tensor:
        """Sample whole numbers from 0 to below - 1."""
        return torch.randint(0, below, shape, generator=self.generator, device="cpu")

    def output_layer(self, rows: int, size: int, words: int, table: int | None = None) -> dict[str, Tensor]:
        """Sample hidden [rows, size], weight [table or words, size], its bias and targets [rows] of a vocabulary."""
        table = words if table is None else table
        return {
            "hidden": self.normal(rows, size),
            "weight": self.normal(table, size, scale=size**-0.5),
            "bias": self.normal(table),
            "targets": self.integers(words, rows),
        }


def _numbered(name: str, tensors: Sequence[Tensor]) -> dict[str, Tensor]:
    return {f"{name} {i}": tensor for i, tensor in enumerate(tensors)}


def _listed(name: str, tensors: Tensors) -> list[Tensor]:
    return [tensor for key, tensor in tensors.items() if key.rpartition(" ")[0] == name]


def results(case: Case, how: How, device: torch.device, dtype: torch.dtype = torch.float32) -> dict[str, Tensor]:
    """Run a case on `device`, floating-point tensors in `dtype`; return results and gradients by name, on the CPU."""
    tensors = {
        name: tensor.to(device, dtype if tensor.is_floating_point() else tensor.dtype, copy=True)
        for name, tensor in case.tensors.items()
    }
    leaves = {name: tensor for name, tensor in tensors.items() if case.differentiates and tensor.is_floating_point()}
    for leaf in leaves.values():
        leaf.requires_grad_()
    with torch.enable_grad() if case.differentiates else torch.no_grad():
        outputs = case.call(tensors, how)
        ends = [tensor for tensor in outputs.values() if tensor.requires_grad]
        draw = Draw(1)
        cotangents = [draw.normal(*end.shape).to(end) for end in ends]
        gradients = torch.autograd.grad(ends, list(leaves.values()), cotangents) if leaves else ()
    named = {**outputs, **{f"gradient of {name}": each for name, each in zip(leaves, gradients, strict=True)}}
    return {name: (each.to_dense() if each.is_sparse else each).detach().cpu() for name, each in named.items()}


def why_wrong(case: Case, backend: str, precision: str, device: torch.device) -> str | None:
    """Compare a backend on `device` with float64 and with plain torch at that precision, both on the CPU.

    Returns one sentence if a result is wrong, else None.
    """
    cpu = torch.device("cpu")
    truth = results(case, {"backend": "reference", "precision": "float32"}, cpu, torch.float64)
    plain = results(case, {"backend": "reference", "precision": precision}, cpu)
    actual = results(case, {"backend": backend, "precision": precision}, device)
    return next(filter(None, (why_worse(k, actual[k], plain[k], truth[k], precision) for k in truth)), None)


def _adagrad(draw: Draw) -> list[Case]:
    """Build cases of dense tensors, more than one launch takes, and of a table's rows, half of them of one word."""
    shapes = ((3,), (70, 40), (1024,), (1,), (2500,), (33,), (7, 11), (5,), (1025,))
    weights, sums, gradients = ([draw.normal(*shape) for shape in shapes] for _ in range(3))
    tensors = {
        **_numbered("weight", weights),
        **_numbered("sum", [0.5 + each.square() for each in sums]),
        **_numbered("gradient", gradients),
    }

    def dense(t: Tensors, how: How) -> Tensors:
        backend = how["backend"]
        weights, sums, gradients = (_listed(name, t) for name in ("weight", "sum", "gradient"))
        square = square_norm(gradients, backend=backend)
        adagrad_(weights, sums, gradients, 0.1, clip_scale(square.sqrt(), 1.0), backend=backend)
        return {"square norm": square, **_numbered("updated weight", weights), **_numbered("updated sum", sums)}

    def rows(t: Tensors, how: How) -> Tensors:
        backend = how["backend"]
        square = merged_square_norm(t["ids"], t["rows"], t["table"].shape[0], backend=backend)
        scale = clip_scale(square.sqrt(), 1.0)
        adagrad_rows_(t["table"], t["sum"], t["ids"], t["rows"], 0.1, scale, backend=backend)
        return {"square norm of rows": square, "updated table": t["table"], "updated sums": t["sum"]}

    cases = [Case(tensors, dense, differentiates=False)]
    for number, width in ((200, 33), (208, 48)):
        ids = draw.integers(12, number)
        ids[::2] = 5
        table = {"table": draw.normal(12, width), "sum": 0.5 + draw.normal(12, width).square()}
        cases.append(Case({**table, "ids": ids, "rows": draw.normal(number, width)}, rows, differentiates=False))
    return cases


def _char_cnn(draw: Draw) -> list[Case]:
    """Build cases of words that end early, with padding behind them; then with tanh, the last rows not counted."""
    filters, characters, slots, size, rows = ((1, 5), (3, 20), (6, 17)), 31, 9, 16, 48  # (width, filters)
    ids = draw.integers(characters - 1, rows, slots)
    ids = torch.where(torch.arange(slots, device="cpu") < draw.integers(slots + 1, rows, 1), ids, characters - 1)
    tensors = {
        "ids": ids,
        "embedding": draw.normal(characters, size),
        **_numbered("weights", [draw.normal(number, size, k, scale=(size * k) ** -0.5) for k, number in filters]),
        **_numbered("biases", [draw.normal(number) for _, number in filters]),
    }

    def call(t: Tensors, how: How) -> Tensors:
        counted: dict[str, Any] = {"activation": "tanh", "count": t["count"]} if "count" in t else {}
        weights, biases = _listed("weights", t), _listed("biases", t)
        return {"features": char_cnn(t["ids"], t["embedding"], weights, biases, **counted, **how)}

    return [Case({**tensors, "ids": ids[:35]}, call), Case({**tensors, "count": draw.integers(1) + 21}, call)]


def _full_softmax(draw: Draw) -> list[Case]:
    """Build cases with chunks of some hundred words."""

    def call(t: Tensors, how: How) -> Tensors:
        return {"losses": full_softmax(t["hidden"], t["targets"], t["weight"], t["bias"], chunk_bytes=2**14, **how)}

    return [Case(draw.output_layer(*sizes), call) for sizes in ((80, 80, 336), (70, 72, 333))]


def _hierarchical_softmax(draw: Draw) -> list[Case]:
    """Build cases of words with long and short paths, by Zipf's law."""
    words = 150
    tree = huffman_tree(10**6 // torch.arange(1, words + 1, device="cpu"))

    def call(t: Tensors, how: How) -> Tensors:
        there = tree.to(t["hidden"].device)
        return {"losses": hierarchical_softmax(t["hidden"], t["targets"], t["weight"], t["bias"], there, **how)}

    return [Case(draw.output_layer(rows, size, words, words - 1), call) for rows, size in ((45, 40), (48, 48))]


def _highway(draw: Draw) -> list[Case]:
    """Build cases of two layers and a projection; 33 of 70 rows count, then all of 80."""

    def call(t: Tensors, how: How) -> Tensors:
        projection = t["projection_weight"], t["projection_bias"]
        weights, biases = _listed("weights", t), _listed("biases", t)
        return {"y": highway(t["x"], weights, biases, *projection, count=t.get("count"), **how)}

    cases = []
    for rows, width, size, counted in ((70, 40, 24, {"count": torch.tensor(33, device="cpu")}), (80, 144, 48, {})):
        tensors = {
            "x": draw.normal(rows, width),
            **_numbered("weights", [draw.normal(2 * width, width, scale=width**-0.5) for _ in range(2)]),
            **_numbered("biases", [draw.normal(2 * width, scale=2) for _ in range(2)]),
            "projection_weight": draw.normal(size, width, scale=width**-0.5),
            "projection_bias": draw.normal(size),
        }
        cases.append(Case({**tensors, **counted}, call))
    return cases


def _log_uniform_sample(draw: Draw) -> list[Case]:
    """Build a case that samples half of the words: ids, order and tries are equal on every backend."""

    def call(t: Tensors, how: How) -> Tensors:
        offset = t["offset"] if how["backend"] == "triton" else int(t["offset"])
        ids, tries = log_uniform_sample(
            150, 300, seed=7, offset=offset, device=t["offset"].device, backend=how["backend"]
        )
        return {"ids": ids.double(), "tries": tries.double()}

    return [Case({"offset": draw.integers(2**31)}, call, differentiates=False)]


def _negative_sampling(draw: Draw) -> list[Case]:
    """Build cases of noise words that repeat and are among the targets; five negatives for each row."""

    def call(t: Tensors, how: How) -> Tensors:
        arguments = [t[name] for name in ("hidden", "targets", "weight", "bias", "samples")]
        return {"losses": negative_sampling(*arguments, negatives=5.0, **how)}

    return [
        Case({**draw.output_layer(rows, size, words), "samples": draw.integers(words, rows)}, call)
        for rows, size, words in ((80, 80, 160), (70, 72, 150))
    ]


_LSTM = ("weight_ih", "weight_hh", "bias", "weight_hr")


def lstm_layer(draw: Draw, batch: int, steps: int, size: int, cells: int) -> dict[str, Tensor]:
    """Sample a layer of two directions: inputs, weights, lengths (some are 0) and the state to start from."""
    shapes = (4 * cells, size), (4 * cells, size), (4 * cells,), (size, cells)
    scales = 2 * size**-0.5, 2 * size**-0.5, 0.3, 2 * cells**-0.5
    weights = {
        f"{name} {i}": draw.normal(*shape, scale=scale)
        for i in range(2)
        for name, shape, scale in zip(_LSTM, shapes, scales, strict=True)
    }
    lengths = torch.arange(batch, device="cpu") % (steps + 1)
    state = {"h": draw.normal(2, batch, size), "c": draw.normal(2, batch, cells)}
    return {"x": draw.normal(batch, steps, size), **weights, "lengths": lengths, **state}


def _projected_lstm(draw: Draw) -> list[Case]:
    """Build cases of ragged rows with a state and active clips, with and without gradients; then rows per tile size.

    300 rows have the widest tiles, which need the most shared memory.

    Next to a clip's bound, rounding decides whether a gradient passes. So in the first cases cells and projections stay
    far from the bounds: small weights keep the gates near 1/2, cells start at 8 or -8, all of a row alike, and every
    other projection adds them up. The others have clips that no number reaches.
    """

    def call(t: Tensors, how: How, clips: tuple[float, float] = (1.5, 1.0)) -> Tensors:
        weights = [LSTMWeights(*(t[f"{name} {i}"] for name in _LSTM)) for i in range(2)]
        settings: dict[str, Any] = {"residual": True, "cell_clip": clips[0], "projection_clip": clips[1], **how}
        out, (h, c) = projected_lstm([t["x"], t["x"]], weights, t["lengths"], (t["h"], t["c"]), **settings)
        return {"outputs": out, "last h": h, "last c": c}

    def unclipped(t: Tensors, how: How) -> Tensors:
        return call(t, how, (100.0, 100.0))

    clipped = lstm_layer(draw, 5, 3, 72, 136)
    for name, tensor in clipped.items():
        if name.startswith(("weight_ih", "weight_hh", "bias")):
            tensor *= 0.15
        elif name.startswith("weight_hr"):
            tensor *= 0.2
            tensor[::2] += 20 / tensor.shape[1]
    signs = 1 - 2 * (torch.arange(clipped["c"].shape[1], device="cpu") % 2)
    clipped["c"] = 8.0 * signs[:, None].expand_as(clipped["c"]).clone()
    larger = [lstm_layer(draw, rows, steps, 80, 144) for rows, steps in ((20, 2), (40, 2), (70, 1), (300, 1))]
    return [Case(clipped, call), Case(clipped, call, differentiates=False), *(Case(each, unclipped) for each in larger)]


def _sampled_softmax(draw: Draw) -> list[Case]:
    """Build cases of samples that are among the targets; gradients are sparse if the table has few words."""

    def call(t: Tensors, how: How) -> Tensors:
        how = {"sparse": t["weight"].shape[0] < 200, **how}
        arguments = t["hidden"], t["targets"], t["weight"], t["bias"], t["samples"]
        return {"losses": sampled_softmax(*arguments, 90, **how)}

    cases = []
    for rows, size, words in ((80, 80, 160), (70, 72, 333)):
        samples = torch.randperm(words, generator=draw.generator, device="cpu")[:rows]
        cases.append(Case({**draw.output_layer(rows, size, words), "samples": samples}, call))
    return cases


def _scalar_mix(draw: Draw) -> list[Case]:
    """Build cases of two mixes of three layers; then normalised over the valid positions, with dropout."""

    def call(t: Tensors, how: How) -> Tensors:
        more: dict[str, Any] = (
            {"layer_norm": True, "statistics_mask": t["mask"], "dropout": 0.3, "seed": 5} if "mask" in t else {}
        )
        return {"mixed": scalar_mix(_listed("layers", t), t["scalars"], t["gammas"], backend=how["backend"], **more)}

    odd, even = (
        {
            **_numbered("layers", [draw.normal(*shape) for _ in range(3)]),
            "scalars": draw.normal(2, 3),
            "gammas": draw.normal(2),
        }
        for shape in ((5, 7, 33), (5, 7, 48))
    )
    return [Case(odd, call), Case({**even, "mask": draw.integers(4, 5, 7) > 0}, call)]


def _unique_rows(draw: Draw) -> list[Case]:
    """Build cases of words of nine characters, some repeated, and rows of a table of seven, half of them one row."""

    def restored(t: Tensors, how: How) -> Tensors:
        """Return results that do not depend on the order of distinct rows, in which backends differ."""
        unique, inverse, count, _ = ordered_unique_rows(t["ids"], backend=how["backend"])
        behind = torch.arange(len(unique), device=unique.device)[:, None] >= count
        return {
            "unique[inverse]": unique[inverse].double(),
            "count": count.double(),
            "rows from count on": torch.where(behind, unique, 0).double(),
            "rows in use": torch.zeros_like(count).double() + (inverse.max() + 1),
        }

    def gathered(t: Tensors, how: How) -> Tensors:
        return {"rows": gather_rows(t["table"], t["inverse"], backend=how["backend"])}

    words, rows = draw.integers(3, 130, 9), draw.integers(7, 144)
    rows[::2] = 4
    words[::3] = words[1]
    odd, even = {"table": draw.normal(7, 33), "inverse": rows[:130]}, {"table": draw.normal(7, 48), "inverse": rows}
    return [Case({"ids": words}, restored, differentiates=False), Case(odd, gathered), Case(even, gathered)]


# Op -> (its cases, whether it takes a precision).
CASES: dict[str, tuple[Callable[[Draw], list[Case]], bool]] = {
    "adagrad": (_adagrad, False),
    "char_cnn": (_char_cnn, True),
    "full_softmax": (_full_softmax, True),
    "hierarchical_softmax": (_hierarchical_softmax, True),
    "highway": (_highway, True),
    "log_uniform_sample": (_log_uniform_sample, False),
    "negative_sampling": (_negative_sampling, True),
    "projected_lstm": (_projected_lstm, True),
    "sampled_softmax": (_sampled_softmax, True),
    "scalar_mix": (_scalar_mix, False),
    "unique_rows": (_unique_rows, False),
}
