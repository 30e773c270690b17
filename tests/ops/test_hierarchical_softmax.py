"""hierarchical_softmax: probabilities that sum to one, the loss by hand, gradients, precisions, on every backend."""

import math

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from elmo_fast.ops import HuffmanTree, _dispatch, _triton, hierarchical_softmax, huffman_tree
from tests.ops.output_layer import (
    OutputLayer,
    alone,
    every,
    leaves_of,
    needs_native,
)
from tests.support.backends import device_of


def tree_of(counts):
    """Huffman's tree, on the device of the test."""
    return huffman_tree(counts.cpu()).to(torch.get_default_device())


def zipf_tree(words):
    return tree_of(10**6 // torch.arange(1, words + 1))


def problem(count=7, width=6, words=40, dtype=torch.float64):
    """Arguments of a call."""
    sizes = (count, width), (words - 1, width), (words - 1,)
    hidden, weight, bias = (torch.randn(size, dtype=dtype) for size in sizes)
    targets = torch.randint(0, words, (count,))
    return {"hidden": hidden, "targets": targets, "weight": weight, "bias": bias, "tree": zipf_tree(words)}


def by_hand(hidden, targets, weight, bias, tree):
    """The formula, one row and one node at a time, in Python floats."""
    losses = []
    for h, t in zip(hidden.tolist(), targets.tolist(), strict=True):
        loss = 0.0
        for step in range(int(tree.first[t]), int(tree.first[t + 1])):
            node = int(tree.nodes[step])
            score = math.fsum(a * b for a, b in zip(h, weight[node].tolist(), strict=True)) + float(bias[node])
            x = -score if tree.codes[step] == 0 else score
            loss += max(x, 0.0) + math.log1p(math.exp(-abs(x)))
        losses.append(loss)
    return torch.tensor(losses, dtype=torch.float64)


class TestHierarchicalSoftmax(OutputLayer):
    """Both children, paths of every length."""

    loss, problem, by_hand = staticmethod(hierarchical_softmax), staticmethod(problem), staticmethod(by_hand)
    shapes = [(1, 1, 2), (3, 5, 9), (33, 33, 200), (7, 64, 500)]
    large = (20, 600, 700)
    ways = [{"sparse": False}, {"sparse": True}]
    test_chunks_change_nothing_but_rounding = None  # it has none
    cases = OutputLayer.cases | {
        "one row": lambda arguments: {"hidden": arguments["hidden"][:1], "targets": arguments["targets"][:1] * 0},
        "every word": lambda arguments: {
            "hidden": torch.randn(40, 6).to(arguments["hidden"]),
            "targets": torch.arange(40),
        },
    }
    small = OutputLayer.small | {"weight": torch.zeros(8, 3), "bias": torch.zeros(8), "tree": zipf_tree(9)}
    refusals = [
        ({"targets": torch.tensor([0, 9])}, "targets must be words from 0 to V - 1 = 8; got values from 0 to 9"),
        ({"targets": torch.zeros(3, dtype=torch.long)}, r"targets must have shape \[N=2\]"),
        ({"targets": torch.zeros(2, dtype=torch.int32)}, "targets must be int64"),
        ({"weight": torch.zeros(9, 3)}, r"weight must have shape \[V - 1=8, D=3\].*got \(9, 3\)"),
        ({"bias": torch.zeros(9)}, r"bias \[V - 1\]"),
        ({"tree": zipf_tree(9)._replace(codes=torch.zeros(3, dtype=torch.uint8))}, "tree.codes must have shape"),
        ({"tree": zipf_tree(9).to("meta")}, "targets, tree.first and tree.nodes must share"),
        ({"precision": "int8"}, "precision must be one of float32"),
    ]

    def used(self, arguments):
        """The nodes passed; behind a path's end its last one again."""
        tree = arguments["tree"]
        passed = [tree.nodes[tree.first[t] : tree.first[t + 1]] for t in arguments["targets"].tolist()]
        return torch.cat([torch.cat([path, path[-1:].expand(tree.longest - len(path))]) for path in passed])


@needs_native
def test_sparse_rows_of_a_large_tree_are_distinct_and_rise():
    """More than 2^11 nodes: one digit of the kernel's sort distinguishes no more."""
    arguments = problem(300, 3, 5000)
    leaves = leaves_of(arguments)
    losses = hierarchical_softmax(**arguments, sparse=True, backend="native")
    gradient = torch.autograd.grad(losses.sum(), leaves[1])[0]
    tree, nodes = arguments["tree"], []
    for word in arguments["targets"].tolist():
        nodes += tree.nodes[tree.first[word] : tree.first[word + 1]].tolist()
    assert max(nodes) >= 1 << 11
    assert gradient._indices()[0].tolist() == sorted(set(nodes))


@every
@pytest.mark.parametrize("score", [-1000.0, -60.0, 0.0, 60.0, 1000.0])
def test_large_scores_do_not_overflow(backend, score):
    """A choice that is all but sure costs nothing, its opposite its score; small losses keep their digits."""
    tree, bias = tree_of(torch.tensor([1, 1])), torch.zeros(1)
    losses = hierarchical_softmax(
        torch.ones(2, 1), torch.tensor([0, 1]), torch.tensor([[score]]), bias, tree, backend=backend
    )
    signed = [score * (1 - 2 * int(code)) for code in tree.codes]
    expected = [max(-x, 0.0) + math.log1p(math.exp(-abs(x))) for x in signed]
    assert losses.tolist() == pytest.approx(expected, rel=1e-4)


FAR = [-(2**63), 2**63 - 1, 2**31, -(2**31), 2**32 + 4, -1, 9, 10]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # numpy's, in the interpreter, of the NaNs that are expected
@alone
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
def test_no_path_leaves_the_tree(backend, targets, begin, node, damaged):
    """Any target and a damaged tree: losses are those of sound paths or NaN, and the table's NaN surroundings are never
    read."""
    with torch.device(device_of(backend)):
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
        actual = (hidden, torch.tensor(targets), table, edge[10:19])
        run = _dispatch.registered_op("hierarchical_softmax", backend)
        losses = run(*actual, *broken, "float32", True, True)[0]
        sound = [is_sound(t, broken) for t in targets]
        assert losses.isfinite().tolist() == sound
        (gradient,) = torch.autograd.grad(losses.sum(), table)
        passed = gradient._indices()[0]
        assert not len(passed) or (passed.min() >= 0 and passed.max() < 9)
        assert gradient._values().isfinite().all() or not all(sound)


def is_sound(target, tree):
    """True if the tree has this word, and its path lies in the tree."""
    if not 0 <= target < len(tree.first) - 1:
        return False
    begin, end = int(tree.first[target]), int(tree.first[target + 1])
    inside = 0 <= begin <= end <= len(tree.nodes) and end - begin <= tree.longest
    return inside and all(0 <= node < len(tree.first) - 2 for node in tree.nodes[begin:end].tolist())


@alone
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # numpy's, in the interpreter, of 0 times infinity
def test_a_slope_of_zero_reads_no_node_and_gives_zero(backend):
    """Steps past a path stay 0 even if the gradient and hidden states are infinite."""
    with torch.device(device_of(backend)):
        operands, ids, weight = torch.tensor([[math.inf, 1.0]]), torch.tensor([0, 2**40]), torch.ones(1, 2)
        backward = _triton.python_functions["hierarchical_softmax_backward"]
        saved, unread = [torch.tensor([[0.5, 0.0]]), operands, ids], torch.empty(0)
        arguments = saved, unread, unread, weight, unread, unread, "float32", True
        d_hidden, _, *rows = backward(torch.tensor([math.inf]), *arguments)
    assert [each.tolist() for each in (d_hidden, *rows)] == [
        [2 * [math.inf]],
        [2 * [math.inf], [0.0, 0.0]],
        [math.inf, 0.0],
    ]
