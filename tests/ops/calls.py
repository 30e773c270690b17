"""Tiny calls of every op that has gradients, for the promises that all of them share."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

from elmo_fast.ops import (
    LSTMWeights,
    _dispatch,
    char_cnn,
    full_softmax,
    gather_rows,
    hierarchical_softmax,
    highway,
    huffman_tree,
    negative_sampling,
    projected_lstm,
    sampled_softmax,
    scalar_mix,
)
from tests.support.backends import backends, device_of, needs

TREE = huffman_tree(torch.arange(9))
TARGETS, SAMPLES = torch.tensor([0, 3, 7, 3]), torch.tensor([3, 1, 7, 2])
IDS = torch.tensor([[1, 2, 3, 0, 0], [4, 1, 0, 0, 0], [5, 5, 2, 3, 4], [1, 0, 0, 0, 0]])
LENGTHS, COUNT = torch.tensor([3, 2, 0, 3]), torch.tensor(3)
MASK = torch.tensor([True, True, False, True])


class Recorded(TorchDispatchMode):
    """The calls of this package's registered ops: the op, its arguments and its results."""

    def __init__(self):
        super().__init__()
        self.calls = []

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        copies = tree_map_only(
            torch.Tensor, lambda each: each.detach().clone().requires_grad_(each.requires_grad), args
        )
        results = op(*args, **(kwargs or {}))
        if op.namespace.startswith("elmo_fast"):
            self.calls.append((op, copies, results))
        return results


class Call(NamedTuple):
    """A call with the shapes of its tensors by name; `run(*tensors, **options)` returns its results.

    rows: the tensors whose rows, and those of the results, belong to each other.
    """

    op: str
    shapes: dict[str, Sequence[int]]
    run: Callable[..., Sequence[Tensor]]
    rows: Sequence[str] = ()

    @property
    def rounds(self) -> bool:
        """True if the op takes a precision."""
        return self.op not in ("scalar_mix", "unique_rows")

    def tensors(self) -> dict[str, Tensor]:
        """The same numbers on every machine, on the CPU."""
        generator = torch.Generator("cpu").manual_seed(3)
        return {name: torch.randn(shape, generator=generator, device="cpu") for name, shape in self.shapes.items()}

    def results(self, tensors: dict[str, Tensor], **options: Any) -> tuple[list[Tensor], dict[str, Tensor]]:
        """The results, and the gradient of a weighted sum of them to each tensor, dense."""
        leaves = {name: tensor.detach().requires_grad_() for name, tensor in tensors.items()}
        actual = self.run(*leaves.values(), **options)
        gradients = torch.autograd.grad(weighted_sum(actual), list(leaves.values()))
        dense = [each.to_dense() if each.is_sparse else each for each in gradients]
        return [out.detach() for out in actual], dict(zip(leaves, dense, strict=True))


def weighted_sum(results: Sequence[Tensor]) -> Tensor:
    weights = [torch.linspace(1, 2, out.numel(), device=out.device).view(out.shape) for out in results]
    return torch.stack([(out * weight).sum() for out, weight in zip(results, weights, strict=True)]).sum()


def lstm(x, weight_ih, weight_hh, bias, weight_hr, h=None, c=None, clip=3.0, **options):
    """Outputs, then the states by row: lengths 3, 2, 0, 3."""
    weights, lengths = LSTMWeights(weight_ih, weight_hh, bias, weight_hr), LENGTHS.to(x.device)[: len(x)]
    state = None if h is None else (h[None], c[None])
    clips = {"cell_clip": clip, "projection_clip": clip, "reverse": [True]}
    outputs, (h, c) = projected_lstm([x], [weights], lengths, state, **clips, **options)
    return outputs[0], h[0], c[0]


def words(e, *filters, **options):
    half = len(filters) // 2
    return [char_cnn(IDS.to(e.device), e, filters[:half], filters[half:], **options)]


def layers(x, w, b, pw=None, pb=None, **options):
    return [highway(x, [w, w], [b, b], pw, pb, **options)]


def full(h, w, b, **options):
    return [full_softmax(h, TARGETS.to(h.device)[: len(h)], w, b, chunk_bytes=64, **options)]


def sampled(h, w, b, **options):
    return [sampled_softmax(h, TARGETS.to(h.device)[: len(h)], w, b, SAMPLES.to(h.device), 5, **options)]


def negatives(h, w, b, noise=False, **options):
    law = torch.full((9,), -2.0, device=w.device, dtype=w.dtype) if noise else None
    return [negative_sampling(h, TARGETS.to(h.device)[: len(h)], w, b, SAMPLES.to(h.device), log_noise=law, **options)]


def paths(h, w, b, **options):
    return [hierarchical_softmax(h, TARGETS.to(h.device)[: len(h)], w, b, TREE.to(h.device), **options)]


def taken(table, **options):
    """By strided places, and read transposed."""
    places = torch.tensor([4, 9, 0, 9, 0, 9, 2], device=table.device)[::2]
    return [gather_rows(table, places, **options).t()]


def mixed(a, b, s, g, **options):
    """One tensor of layers, read transposed."""
    return [scalar_mix(torch.stack([a, b]), s, g, **options).transpose(0, 1)]


def normalized(a, b, s, g, **options):
    return [scalar_mix([a, b], s, g, layer_norm=True, statistics_mask=MASK.to(a.device), **options)]


LSTM = {"x": (4, 3, 7), "ih": (24, 7), "hh": (24, 5), "b": (24,), "hr": (5, 6)}
STATE = {"h": (4, 5), "c": (4, 6)}
LAYER = {"hidden": (4, 5), "weight": (9, 5), "bias": (9,)}
NODES = {"hidden": (4, 5), "weight": (8, 5), "bias": (8,)}
FILTERS = {"embedding": (6, 2), "w1": (4, 2, 1), "w3": (70, 2, 3), "b1": (4,), "b3": (70,)}
HIGHWAY = {"x": (4, 5), "w": (10, 5), "b": (10,), "pw": (3, 5), "pb": (3,)}
MIX = {"first": (4, 3), "second": (4, 3), "scalars": (5, 2), "gammas": (5,)}

CALLS = {
    "char_cnn": Call("char_cnn", FILTERS, words),
    "char_cnn tanh": Call(
        "char_cnn", {"embedding": (6, 3), "w": (4, 3, 2), "b": (4,)}, lambda *t, **o: words(*t, activation="tanh", **o)
    ),
    "highway": Call("highway", HIGHWAY, layers, ("x",)),
    "projected_lstm": Call("projected_lstm", LSTM, lstm, ("x",)),
    "projected_lstm state": Call("projected_lstm", LSTM | STATE, lstm, ("x", "h", "c")),
    "projected_lstm no clip": Call(
        "projected_lstm", LSTM | STATE, lambda *t, **o: lstm(*t, clip=None, **o), ("x", "h", "c")
    ),
    "full_softmax": Call("full_softmax", LAYER, full, ("hidden",)),
    "sampled_softmax": Call("sampled_softmax", LAYER, sampled, ("hidden",)),
    "sampled_softmax computed again": Call(
        "sampled_softmax", LAYER, lambda *t, **o: sampled(*t, chunk_bytes=32, **o), ("hidden",)
    ),
    "negative_sampling": Call("negative_sampling", LAYER, negatives, ("hidden",)),
    "negative_sampling noise": Call(
        "negative_sampling", LAYER, lambda *t, **o: negatives(*t, noise=True, **o), ("hidden",)
    ),
    "hierarchical_softmax": Call("hierarchical_softmax", NODES, paths, ("hidden",)),
    "gather_rows": Call("unique_rows", {"table": (5, 3)}, taken),
    "scalar_mix": Call("scalar_mix", MIX | {"first": (4, 2, 3), "second": (4, 2, 3)}, mixed, ("first", "second")),
    "scalar_mix norm": Call("scalar_mix", MIX, normalized),
}
# Other paths through the same ops.
VARIANTS = {
    "char_cnn counted": Call("char_cnn", FILTERS, lambda *t, **o: words(*t, count=COUNT.to(t[0].device), **o)),
    "highway counted": Call("highway", HIGHWAY, lambda *t, **o: layers(*t, count=COUNT.to(t[0].device), **o)),
    "highway without projection": Call("highway", {name: HIGHWAY[name] for name in "xwb"}, layers),
    "projected_lstm without projection": Call(
        "projected_lstm",
        {"x": (4, 3, 7), "ih": (20, 7), "hh": (20, 5), "b": (20,)},
        lambda *t, **o: lstm(*t, None, **o),
    ),
    **{
        f"{name} sparse": Call(name, shapes, lambda *t, run=run, **o: run(*t, sparse=True, **o))
        for name, shapes, run in (
            ("sampled_softmax", LAYER, sampled),
            ("negative_sampling", LAYER, negatives),
            ("hierarchical_softmax", NODES, paths),
        )
    },
    "scalar_mix dropout": Call("scalar_mix", MIX, lambda *t, **o: normalized(*t, dropout=0.5, seed=5, **o)),
}  # fmt: skip
ALL = CALLS | VARIANTS
# Triton's interpreter takes seconds for these, and has others of their ops.
LONG = ("projected_lstm", "projected_lstm no clip", "char_cnn", "char_cnn tanh")


def pairs(calls=ALL, *, reference: bool = False, only: str | None = None, registered: bool = False) -> list:
    """A parameter (name, backend) for each call and each backend of its op, marked to skip where it cannot run.

    registered: those alone that run a registered op with a backward op."""
    return [
        pytest.param(name, *each.values, marks=each.marks, id=f"{name}-{each.values[0]}")
        for name, call in calls.items()
        for each in backends(call.op, reference=reference, only=only)
        if name not in LONG or each.values != ("triton",)
        if not registered or registers_gradients(name, *each.values)
    ]


def at_each_precision(*precisions: str, **options: Any) -> list:
    """A parameter (name, backend, precision) for each of `pairs`; float32 alone for an op that rounds nothing."""
    return [
        pytest.param(*pair.values, precision, marks=pair.marks, id=f"{pair.id}-{precision}")
        for pair in pairs(**options)
        for precision in precisions
        if precision == "float32" or ALL[pair.values[0]].rounds
    ]


def placed(name: str, backend: str, precision: str = "float32") -> tuple[Call, dict[str, Tensor], dict[str, str]]:
    """A call, its tensors where the backend runs, and the options; skips what the backend does not serve."""
    call = ALL[name]
    if call.rounds:
        needs(call.op, backend, precision)
    tensors = {key: tensor.to(device_of(backend)) for key, tensor in call.tensors().items()}
    return call, tensors, {"backend": backend} | ({"precision": precision} if call.rounds else {})


def registers_gradients(name: str, backend: str) -> bool:
    """True if the call runs a registered op with a backward op."""
    return backend != "reference" and backend in _dispatch.backends_of(ALL[name].op)
