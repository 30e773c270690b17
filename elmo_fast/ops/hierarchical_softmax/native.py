"""hierarchical_softmax in C++: path by path over the table itself; no row of it is gathered first."""

from typing import Any

import torch
from torch import Tensor

from elmo_fast.ops._autograd import Backward
from elmo_fast.ops._native import describe
from elmo_fast.ops.hierarchical_softmax.op import HierarchicalSoftmaxArguments


def tree(counts: Tensor, order: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return torch.ops.elmo_fast.huffman_tree(counts, order)


def run(a: HierarchicalSoftmaxArguments) -> Tensor:
    return torch.ops.elmo_fast.hierarchical_softmax(*a)[0]


def _fake_tree(a: Any) -> tuple[Tensor, Tensor, Tensor]:
    steps, new = torch.library.get_ctx().new_dynamic_size(), a.counts.new_empty
    return new(a.counts.shape[0] + 1), new(steps), new(steps, dtype=torch.uint8)


def _fake(a: Any) -> tuple[Tensor, Tensor]:
    return a.hidden.new_empty(a.hidden.shape[0]), a.hidden.new_empty(a.hidden.shape[0], a.longest)


def _shapes(a: Any) -> dict[str, Any]:
    passed = torch.library.get_ctx().new_dynamic_size() if a.sparse else a.weight.shape[0]
    ids = a.first.new_empty(passed if a.sparse else 0)
    return {"ids": ids, "weight": (passed, a.hidden.shape[1]), "bias": (passed,)}


def _tables(a: Any, gradients: dict[str, Any]) -> dict[str, Any]:
    """Return sparse gradients from rows of the distinct nodes `ids`, in order."""
    if not a.sparse:
        return gradients
    options: dict[str, Any] = {"device": a.weight.device, "is_coalesced": True, "check_invariants": False}
    ids, words = gradients["ids"].unsqueeze(0), a.weight.shape[0]
    return {
        "hidden": gradients["hidden"],
        "weight": torch.sparse_coo_tensor(ids, gradients["weight"], a.weight.shape, **options),
        "bias": torch.sparse_coo_tensor(ids, gradients["bias"], (words,), **options),
    }


describe("huffman_tree", _fake_tree)
describe("hierarchical_softmax", _fake, Backward(shapes=_shapes, finish=_tables))
