"""Small, ragged calls of every op with a GPU kernel, compared with the reference by `elmo-fast check` and the tests.

The one table of tolerances is here too.

Triton compiles sizes that 16 divides to different code, so most ops have both.
"""

import functools
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
    """Call of an op; each result has one right value."""

    tensors: Tensors
    """arguments by name, on the CPU, floating-point ones in float32; those with a number are the tensors of a list"""
    run: Callable[..., Tensor | Tensors]
    """takes the arguments, backend and precision by name, and returns the result, or results by name"""
    differentiates: bool = True
    """whether floating-point tensors get gradients; if not, the call may write them in place"""

    def call(self, tensors: Tensors, how: How) -> Tensors:
        """Return the results by name."""
        arguments: dict[str, Any] = {}
        for name, tensor in tensors.items():
            key, _, number = name.partition(" ")
            if number:
                arguments.setdefault(key, []).append(tensor)
            else:
                arguments[key] = tensor
        results = self.run(**arguments, **how)
        return {"result": results} if isinstance(results, Tensor) else results


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
        **_numbered("weights", weights),
        **_numbered("sums", [0.5 + each.square() for each in sums]),
        **_numbered("gradients", gradients),
    }

    def dense(
        weights: list[Tensor], sums: list[Tensor], gradients: list[Tensor], backend: str, precision: str
    ) -> Tensors:
        square = square_norm(gradients, backend=backend)
        adagrad_(weights, sums, gradients, 0.1, clip_scale(square.sqrt(), 1.0), backend=backend)
        return {"square norm": square, **_numbered("updated weights", weights), **_numbered("updated sums", sums)}

    def of_rows(table: Tensor, sums: Tensor, ids: Tensor, rows: Tensor, backend: str, precision: str) -> Tensors:
        square = merged_square_norm(ids, rows, table.shape[0], backend=backend)
        adagrad_rows_(table, sums, ids, rows, 0.1, clip_scale(square.sqrt(), 1.0), backend=backend)
        return {"square norm of rows": square, "updated table": table, "updated sums": sums}

    cases = [Case(tensors, dense, differentiates=False)]
    for number, width in ((200, 33), (208, 48)):
        ids = draw.integers(12, number)
        ids[::2] = 5
        table = {"table": draw.normal(12, width), "sums": 0.5 + draw.normal(12, width).square()}
        cases.append(Case({**table, "ids": ids, "rows": draw.normal(number, width)}, of_rows, differentiates=False))
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
    counted = {**tensors, "count": draw.integers(1) + 21}
    return [Case({**tensors, "ids": ids[:35]}, char_cnn), Case(counted, functools.partial(char_cnn, activation="tanh"))]


def _full_softmax(draw: Draw) -> list[Case]:
    """Build cases with chunks of some hundred words."""
    run = functools.partial(full_softmax, chunk_bytes=2**14)
    return [Case(draw.output_layer(*sizes), run) for sizes in ((80, 80, 336), (70, 72, 333))]


def _hierarchical_softmax(draw: Draw) -> list[Case]:
    """Build cases of words with long and short paths, by Zipf's law."""
    words = 150
    tree = huffman_tree(10**6 // torch.arange(1, words + 1, device="cpu"))

    def run(hidden: Tensor, **options: Any) -> Tensor:
        return hierarchical_softmax(hidden, tree=tree.to(hidden.device), **options)

    return [Case(draw.output_layer(rows, size, words, words - 1), run) for rows, size in ((45, 40), (48, 48))]


def _highway(draw: Draw) -> list[Case]:
    """Build cases of two layers and a projection; 33 of 70 rows count, then all of 80."""
    cases = []
    for rows, width, size, counted in ((70, 40, 24, {"count": torch.tensor(33, device="cpu")}), (80, 144, 48, {})):
        tensors = {
            "x": draw.normal(rows, width),
            **_numbered("weights", [draw.normal(2 * width, width, scale=width**-0.5) for _ in range(2)]),
            **_numbered("biases", [draw.normal(2 * width, scale=2) for _ in range(2)]),
            "projection_weight": draw.normal(size, width, scale=width**-0.5),
            "projection_bias": draw.normal(size),
        }
        cases.append(Case({**tensors, **counted}, highway))
    return cases


def _log_uniform_sample(draw: Draw) -> list[Case]:
    """Build a case that samples half of the words: ids, order and tries are equal on every backend."""

    def run(offset: Tensor, backend: str, precision: str) -> Tensors:
        at = offset if backend == "triton" else int(offset)
        ids, tries = log_uniform_sample(150, 300, seed=7, offset=at, device=offset.device, backend=backend)
        return {"ids": ids.double(), "tries": tries.double()}

    return [Case({"offset": draw.integers(2**31)}, run, differentiates=False)]


def _negative_sampling(draw: Draw) -> list[Case]:
    """Build cases of noise words that repeat and are among the targets; five negatives for each row."""
    run = functools.partial(negative_sampling, negatives=5.0)
    return [
        Case({**draw.output_layer(rows, size, words), "samples": draw.integers(words, rows)}, run)
        for rows, size, words in ((80, 80, 160), (70, 72, 150))
    ]


def _lstm_layer(draw: Draw, batch: int, steps: int, size: int, cells: int) -> dict[str, Tensor]:
    """Sample a layer of two directions: inputs, weights, lengths (some are 0) and the state to start from."""
    shapes = {"weight_ih": (4 * cells, size), "weight_hh": (4 * cells, size), "bias": (4 * cells,)}
    scales = 2 * size**-0.5, 2 * size**-0.5, 0.3, 2 * cells**-0.5
    weights = {
        f"{name} {i}": draw.normal(*shape, scale=scale)
        for i in range(2)
        for (name, shape), scale in zip({**shapes, "weight_hr": (size, cells)}.items(), scales, strict=True)
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

    def run(
        x: Tensor, lengths: Tensor, h: Tensor, c: Tensor, *, clips: tuple[float, float], backend: str, precision: str,
        **weights: list[Tensor],
    ) -> Tensors:  # fmt: skip
        layers = [LSTMWeights(*each) for each in zip(*(weights[name] for name in LSTMWeights._fields), strict=True)]
        out, (h, c) = projected_lstm(
            [x, x], layers, lengths, (h, c), residual=True, cell_clip=clips[0], projection_clip=clips[1],
            backend=backend, precision=precision,
        )  # fmt: skip
        return {"outputs": out, "last h": h, "last c": c}

    clipped = _lstm_layer(draw, 5, 3, 72, 136)
    for name, tensor in clipped.items():
        if name.startswith(("weight_ih", "weight_hh", "bias")):
            tensor *= 0.15
        elif name.startswith("weight_hr"):
            tensor *= 0.2
            tensor[::2] += 20 / tensor.shape[1]
    signs = 1 - 2 * (torch.arange(clipped["c"].shape[1], device="cpu") % 2)
    clipped["c"] = 8.0 * signs[:, None].expand_as(clipped["c"]).clone()
    larger = [_lstm_layer(draw, rows, steps, 80, 144) for rows, steps in ((20, 2), (40, 2), (70, 1), (300, 1))]
    near, far = (functools.partial(run, clips=clips) for clips in ((1.5, 1.0), (100.0, 100.0)))
    return [Case(clipped, near), Case(clipped, near, differentiates=False), *(Case(each, far) for each in larger)]


def _sampled_softmax(draw: Draw) -> list[Case]:
    """Build cases of samples that are among the targets; gradients are sparse, then dense."""
    cases = []
    for rows, size, words, sparse in ((80, 80, 160, True), (70, 72, 333, False)):
        samples = torch.randperm(words, generator=draw.generator, device="cpu")[:rows]
        run = functools.partial(sampled_softmax, tries=90, sparse=sparse)
        cases.append(Case({**draw.output_layer(rows, size, words), "samples": samples}, run))
    return cases


def _scalar_mix(draw: Draw) -> list[Case]:
    """Build cases of two mixes of three layers; then normalised over the valid positions, with dropout."""

    def run(precision: str, **arguments: Any) -> Tensor:
        return scalar_mix(**arguments)

    odd, even = (
        {
            **_numbered("layers", [draw.normal(*shape) for _ in range(3)]),
            "scalars": draw.normal(2, 3),
            "gammas": draw.normal(2),
        }
        for shape in ((5, 7, 33), (5, 7, 48))
    )
    normalised = functools.partial(run, layer_norm=True, dropout=0.3, seed=5)
    return [Case(odd, run), Case({**even, "statistics_mask": draw.integers(4, 5, 7) > 0}, normalised)]


def _unique_rows(draw: Draw) -> list[Case]:
    """Build cases of words of nine characters, some repeated, and rows of a table of seven, half of them one row."""

    def restored(ids: Tensor, backend: str, precision: str) -> Tensors:
        """Return results that do not depend on the order of distinct rows, in which backends differ."""
        unique, inverse, count, _ = ordered_unique_rows(ids, backend=backend)
        behind = torch.arange(len(unique), device=unique.device)[:, None] >= count
        return {
            "unique[inverse]": unique[inverse].double(),
            "count": count.double(),
            "rows from count on": torch.where(behind, unique, 0).double(),
            "rows in use": torch.zeros_like(count).double() + (inverse.max() + 1),
        }

    def gathered(precision: str, **arguments: Any) -> Tensor:
        return gather_rows(**arguments)

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
