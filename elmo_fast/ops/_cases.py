"""Small, ragged calls of an op, by which its kernels are compared with the reference; each op has a `cases.py`."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from elmo_fast.ops import _tuned

# The precision and the backend, by these names.
How = Mapping[str, Any]
Tensors = Mapping[str, Tensor]


class Case(NamedTuple):
    """One call of an op: `call(tensors, how)` returns its results by name, of which only one value each is right."""

    tensors: Tensors
    """arguments on the CPU, floating-point ones in float32"""
    call: Callable[[Tensors, How], Tensors]
    differentiates: bool = True
    """whether floating-point tensors get gradients; if not, the call may write them in place"""
    choices: Mapping[str, int] = {}
    """that are made for it, as `_tuned.forced` takes them"""


class Replayed(NamedTuple):
    """The results of a CUDA graph and of the same launches, by name; their bits must be equal."""

    ours: Tensors
    """of the last replay"""
    theirs: Tensors
    """of the launches"""
    graphs: int
    """number of captured graphs"""


class Draw:
    """Random tensors of the CPU, the same on every machine."""

    def __init__(self, seed: int = 0) -> None:
        self.generator = torch.Generator("cpu").manual_seed(seed)

    def normal(self, *shape: int, scale: float = 1.0) -> Tensor:
        """Normal numbers of this standard deviation."""
        return scale * torch.randn(shape, generator=self.generator, device="cpu")

    def whole(self, below: int, *shape: int) -> Tensor:
        """Whole numbers from 0 to below - 1."""
        return torch.randint(0, below, shape, generator=self.generator, device="cpu")

    def distinct(self, count: int, below: int) -> Tensor:
        """Distinct whole numbers from 0 to below - 1."""
        return torch.randperm(below, generator=self.generator, device="cpu")[:count]

    def output_layer(self, rows: int, size: int, words: int, table: int | None = None) -> dict[str, Tensor]:
        """hidden [rows, size], weight [table or words, size], its bias and targets [rows] of a softmax or its likes."""
        table = words if table is None else table
        return {
            "hidden": self.normal(rows, size),
            "weight": self.normal(table, size, scale=size**-0.5),
            "bias": self.normal(table),
            "targets": self.whole(words, rows),
        }


def numbered(name: str, tensors: Sequence[Tensor]) -> dict[str, Tensor]:
    """A list among a case's tensors: "name 0", "name 1", ..."""
    return {f"{name} {i}": tensor for i, tensor in enumerate(tensors)}


def listed(name: str, tensors: Tensors) -> list[Tensor]:
    """The list from which `numbered` was made."""
    return [tensor for key, tensor in tensors.items() if key.rpartition(" ")[0] == name]


def with_other_tiles(op: str, cases: Callable[[Draw], list[Case]]) -> Callable[[Draw, str, torch.device], list[Case]]:
    """`cases_of_tiles` of a softmax or its likes: the first of `cases` with each tile but the first."""

    def cases_of_tiles(draw: Draw, precision: str, device: torch.device) -> list[Case]:
        from elmo_fast.ops import _softmax

        case, dtype = cases(draw)[0], getattr(torch, precision)
        (rows, width), words = case.tensors["hidden"].shape, len(case.tensors.get("samples", case.tensors["weight"]))
        known = _softmax.candidates(rows, words, width, dtype, device)
        name, places = _softmax.name_of(op, rows, width, dtype), [known.index(tile) for tile in dict.fromkeys(known)]
        return [case._replace(choices={name: place}) for place in places[1:]]

    return cases_of_tiles


def results(case: Case, how: How, device: torch.device, dtype: torch.dtype = torch.float32) -> dict[str, Tensor]:
    """All results and gradients of a case by name, on the CPU: run on `device`, floating-point tensors in `dtype`."""
    given = {
        name: tensor.to(device, dtype if tensor.is_floating_point() else tensor.dtype, copy=True)
        for name, tensor in case.tensors.items()
    }
    leaves = {name: tensor for name, tensor in given.items() if case.differentiates and tensor.is_floating_point()}
    for leaf in leaves.values():
        leaf.requires_grad_()
    with torch.enable_grad() if case.differentiates else torch.no_grad(), _tuned.forced(case.choices):
        found = case.call(given, how)
        outputs = [tensor for tensor in found.values() if tensor.requires_grad]
        draw = Draw(1)
        cotangents = [draw.normal(*output.shape).to(output) for output in outputs]
        gradients = torch.autograd.grad(outputs, list(leaves.values()), cotangents) if leaves else ()
    named = {**found, **{f"gradient of {name}": each for name, each in zip(leaves, gradients, strict=True)}}
    return {name: (each.to_dense() if each.is_sparse else each).detach().cpu() for name, each in named.items()}
