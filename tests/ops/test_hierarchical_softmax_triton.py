"""hierarchical_softmax in Triton, beyond what every backend shares: addresses, no host sync."""

import math

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from elmo_fast.ops import HuffmanTree, _triton
from tests.backends import device_of
from tests.ops.test_hierarchical_softmax import zipf_tree

if _triton.WHY_NOT is not None:
    pytest.skip(_triton.WHY_NOT, allow_module_level=True)

from elmo_fast.ops.hierarchical_softmax import triton
from elmo_fast.ops.hierarchical_softmax.op import HierarchicalSoftmaxArguments

FAR = [-(2**63), 2**63 - 1, 2**31, -(2**31), 2**32 + 4, -1, 9, 10]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # numpy's, in the interpreter, of the NaNs that are wanted
@settings(max_examples=8, deadline=None)
@given(
    targets=st.lists(st.one_of(st.integers(0, 9), st.sampled_from(FAR)), min_size=1, max_size=3),
    begin=st.tuples(st.integers(0, 10), st.sampled_from(FAR)),
    node=st.tuples(st.integers(0, 33), st.sampled_from(FAR)),
    damaged=st.sampled_from(["nothing", "first", "nodes", "longest", "steps"]),
)
@example(targets=[-1, 10, 3], begin=(0, 0), node=(0, 0), damaged="nothing")
@example(targets=[0, 1], begin=(0, -1), node=(0, 0), damaged="first")
@example(targets=[1, 2], begin=(1, 9), node=(0, 0), damaged="first")
@example(targets=[0, 9], begin=(0, 0), node=(0, 9), damaged="nodes")
@example(targets=[0, 9], begin=(0, 0), node=(0, -1), damaged="nodes")
@example(targets=[0, 9], begin=(0, 0), node=(0, 0), damaged="longest")
@example(targets=[0, 9], begin=(0, 0), node=(0, 0), damaged="steps")
def test_no_path_leaves_the_tree(targets, begin, node, damaged):
    """Any target and a damaged tree: losses are those of sound paths or NaN, and the table's NaN surroundings are never
    read."""
    with torch.device(device_of("triton")):
        around, edge = torch.full((29, 4), torch.nan), torch.full((29,), torch.nan)
        around[10:19], edge[10:19] = torch.linspace(-1, 1, 36).view(9, 4), 0.5
        table, tree = around[10:19].requires_grad_(), zipf_tree(10)
        first, nodes, codes = (each.clone() for each in tree[:3])
        if damaged == "first":
            first[begin[0]] = begin[1]
        elif damaged == "nodes":
            nodes[node[0] % len(nodes)] = node[1]
        elif damaged == "steps":
            nodes, codes = nodes[:-1], codes[:-1]
        longest = 2 if damaged == "longest" else tree.longest
        hidden = torch.linspace(-2, 2, 4 * len(targets)).view(-1, 4)
        broken = HuffmanTree(first, nodes, codes, longest)
        found = (hidden, torch.tensor(targets), table, edge[10:19])
        losses = triton.run(HierarchicalSoftmaxArguments(*found, *broken, "float32", True))
        sound = [is_sound(t, broken) for t in targets]
        assert losses.isfinite().tolist() == sound
        (gradient,) = torch.autograd.grad(losses.sum(), table)
        passed = gradient._indices()[0]
        assert not len(passed) or (passed.min() >= 0 and passed.max() < 9)
        assert gradient._values().isfinite().all() or not all(sound)


def is_sound(target, tree):
    """Whether the tree has this word, and its path lies in the tree."""
    if not 0 <= target < len(tree.first) - 1:
        return False
    begin, end = int(tree.first[target]), int(tree.first[target + 1])
    inside = 0 <= begin <= end <= len(tree.nodes) and end - begin <= tree.longest
    return inside and all(0 <= node < len(tree.first) - 2 for node in tree.nodes[begin:end].tolist())


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # numpy's, in the interpreter, of 0 times infinity
def test_a_slope_of_zero_reads_no_node_and_gives_zero():
    """Steps past a path stay 0 beside a gradient and hidden states that are infinite."""
    with torch.device(device_of("triton")):
        operands, ids, weight = torch.tensor([[math.inf, 1.0]]), torch.tensor([0, 2**40]), torch.ones(1, 2)
        backward = _triton.undispatched("hierarchical_softmax_backward")
        found = backward(torch.tensor([math.inf]), torch.tensor([[0.5, 0.0]]), operands, ids, weight, True)
    assert [each.tolist() for each in found] == [[2 * [math.inf]], [2 * [math.inf], [0.0, 0.0]], [math.inf, 0.0]]
