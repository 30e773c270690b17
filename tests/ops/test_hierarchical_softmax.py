"""hierarchical_softmax: probabilities that sum to one, the loss by hand, gradients, precisions, on every backend."""

import math

import pytest
import torch

from elmo_fast.errors import ElmoFastError
from elmo_fast.ops import _native, hierarchical_softmax, huffman_tree
from tests.backends import backends, needs
from tests.ops.derivatives import check_second_derivative, dense_of
from tests.ops.exact import assert_exactly, exact
from tests.threads import with_one_and_two
from tests.tolerances import assert_close, assert_no_worse

needs_native = pytest.mark.skipif(_native.WHY_NOT is not None, reason=str(_native.WHY_NOT))
kernels = pytest.mark.parametrize("backend", backends("hierarchical_softmax"))
every = pytest.mark.parametrize("backend", backends("hierarchical_softmax", reference=True))
doubles = pytest.mark.parametrize("backend", ["reference", pytest.param("native", marks=needs_native)])
SHAPES = [(1, 1, 2), (3, 5, 9), (33, 33, 200), (7, 64, 500)]  # N, D, V


def tree_of(counts):
    """Huffman's tree, on the device of the test."""
    return huffman_tree(counts.cpu()).to(torch.get_default_device())


def zipf_tree(words):
    return tree_of(10**6 // torch.arange(1, words + 1))


def problem(count=7, width=6, words=40, dtype=torch.float64, grad=False):
    hidden, weight, bias = torch.randn(count, width), torch.randn(words - 1, width), torch.randn(words - 1)
    hidden, weight, bias = (x.to(dtype).requires_grad_(grad) for x in (hidden, weight, bias))
    return hidden, torch.randint(0, words, (count,)), weight, bias, zipf_tree(words)


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


@every
@pytest.mark.parametrize("shape", SHAPES)
def test_loss_by_hand(backend, shape):
    """Every term of the formula: biases, both children, paths of every length."""
    arguments = problem(*shape, dtype=exact(backend))
    assert_exactly("losses", hierarchical_softmax(*arguments, backend=backend), by_hand(*arguments), backend)


@every
@pytest.mark.parametrize("words", [1, 2, 3, 17, 1000])
def test_probabilities_sum_to_one(backend, words):
    """exp(-loss) over the vocabulary, for rows of any size."""
    words = min(words, 40) if backend == "triton" else words  # the interpreter runs a program for each row
    _, _, weight, bias, tree = problem(words=words, dtype=exact(backend))
    for scale in (0.1, 1.0, 5.0):
        hidden = (scale * torch.randn(1, 6, dtype=exact(backend))).expand(words, 6)
        losses = hierarchical_softmax(hidden, torch.arange(words), weight, bias, tree, backend=backend)
        assert_exactly("sum", (-losses).exp().sum(), torch.ones(()), backend)


@doubles
def test_gradcheck(backend):
    """Gradients to hidden, nodes and biases."""
    hidden, targets, weight, bias, tree = problem(grad=True)

    def f(hidden, weight, bias):
        return hierarchical_softmax(hidden, targets, weight, bias, tree, backend=backend)

    assert torch.autograd.gradcheck(f, (hidden, weight, bias))


@kernels
@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_gradients_read_what_was_multiplied(precision, backend):
    """Rounded hidden states and nodes, as in the definition; without the rounding they would be nearer to the truth."""
    needs("hierarchical_softmax", backend, precision)
    hidden, targets, weight, bias, tree = problem(33, 70, 90, torch.float32, grad=True)
    g = torch.rand(33)
    found = [
        torch.autograd.grad(
            hierarchical_softmax(hidden, targets, weight, bias, tree, precision=precision, backend=each),
            (hidden, weight, bias),
            g,
        )
        for each in (backend, "reference")
    ]
    for name, ours, wanted in zip(("hidden", "weight", "bias"), *found, strict=True):
        assert_close(name, ours, wanted)


@every
@pytest.mark.parametrize("case", ["mixed", "all targets equal", "one row", "every word"])
def test_sparse_gradients_are_the_dense_ones(backend, case):
    """Same numbers; indices are the distinct nodes passed, in order, and the flag can be had without another sort."""
    hidden, targets, weight, bias, tree = problem(7, grad=True, dtype=exact(backend))
    if case == "all targets equal":
        targets = torch.full_like(targets, 39)
    elif case == "one row":
        hidden, targets = hidden.detach()[:1].requires_grad_(), targets[:1] * 0  # the shortest path
    elif case == "every word":
        hidden, targets = torch.randn(40, 6, dtype=exact(backend), requires_grad=True), torch.arange(40)
    gradients = []
    for sparse in (False, True):
        hidden.grad = weight.grad = bias.grad = None
        losses = hierarchical_softmax(hidden, targets, weight, bias, tree, sparse=sparse, backend=backend)
        (losses * torch.arange(1.0, len(targets) + 1)).sum().backward()
        gradients.append((hidden.grad, weight.grad, bias.grad))
    passed = [tree.nodes[tree.first[t] : tree.first[t + 1]] for t in targets.tolist()]
    passed = torch.cat([torch.cat([path, path[-1:].expand(tree.longest - len(path))]) for path in passed])
    for name, dense, sparse in zip(("hidden", "weight", "bias"), *gradients, strict=True):
        if name != "hidden":
            sparse = dense_of(sparse, passed)
        assert_exactly(name, sparse, dense, backend)


@every
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("shape", [(0, 6, 40), (5, 6, 1), (0, 6, 1)])
def test_nothing_to_do(backend, shape, sparse):
    """No row, or a vocabulary of one word: zero losses, zero gradients."""
    hidden, targets, weight, bias, tree = problem(*shape, grad=True, dtype=exact(backend))
    losses = hierarchical_softmax(hidden, targets, weight, bias, tree, sparse=sparse, backend=backend)
    assert torch.equal(losses, torch.zeros(shape[0], dtype=exact(backend)))
    gradients = torch.autograd.grad(losses.sum(), (hidden, weight, bias), allow_unused=True)
    assert not any(g.to_dense().any() for g in gradients if g is not None)


@every
def test_strided_views(backend):
    """Transposed hidden and nodes, every second target, bias and incoming gradient: losses and gradients."""
    hidden, targets, weight, bias, tree = problem(dtype=exact(backend))
    leaves = [x.requires_grad_() for x in (hidden, weight, bias)]
    wanted = hierarchical_softmax(hidden, targets, weight, bias, tree, backend=backend)
    seeds = torch.rand(7, 2, dtype=exact(backend))[:, 1]
    wanted_gradients = torch.autograd.grad(wanted, leaves, seeds.contiguous())
    views = [x.detach().mT.contiguous().mT.requires_grad_() for x in (hidden, weight)]
    second = [torch.stack([x, x], -1)[:, 0] for x in (targets, bias.detach())]
    second[1].requires_grad_()
    found = hierarchical_softmax(views[0], second[0], views[1], second[1], tree, backend=backend)
    assert_exactly("losses", found, wanted, backend)
    gradients = torch.autograd.grad(found, (*views, second[1]), seeds)
    for name, a, b in zip("hwb", gradients, wanted_gradients, strict=True):
        assert_exactly(name, a, b, backend)


def losses_and_gradients(arguments, dtype, precision, backend, sparse=False):
    hidden, targets, weight, bias, tree = arguments
    leaves = [x.detach().to(dtype).requires_grad_() for x in (hidden, weight, bias)]
    options = {"precision": precision, "backend": backend, "sparse": sparse}
    losses = hierarchical_softmax(leaves[0], targets, *leaves[1:], tree, **options)
    return [losses.detach(), *(g.to_dense() for g in torch.autograd.grad(losses.mean(), leaves))]


@kernels
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("precision", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("shape", [*SHAPES[1:], (20, 600, 700)])
def test_no_worse_than_torch(shape, precision, sparse, backend):
    """Losses and gradients of a mean against float64; torch's with the same operands rounded."""
    needs("hierarchical_softmax", backend, precision)
    arguments = problem(*shape, dtype=torch.float32)
    truth = losses_and_gradients(arguments, torch.float64, "float32", "reference")
    plain = losses_and_gradients(arguments, torch.float32, precision, "reference")
    ours = losses_and_gradients(arguments, torch.float32, precision, backend, sparse)
    for name, *triple in zip(("losses", "hidden", "weight", "bias"), ours, plain, truth, strict=True):
        assert_no_worse(name, *triple, precision)


@every
@pytest.mark.parametrize("score", [-1000.0, -60.0, 0.0, 60.0, 1000.0])
def test_large_scores_do_not_overflow(backend, score):
    """A choice that is all but sure costs nothing, its opposite its score; small losses keep their digits."""
    tree, bias = tree_of(torch.tensor([1, 1])), torch.zeros(1)
    losses = hierarchical_softmax(
        torch.ones(2, 1), torch.tensor([0, 1]), torch.tensor([[score]]), bias, tree, backend=backend
    )
    signed = [score * (1 - 2 * int(code)) for code in tree.codes]
    wanted = [max(-x, 0.0) + math.log1p(math.exp(-abs(x))) for x in signed]
    assert losses.tolist() == pytest.approx(wanted, rel=1e-4)


@needs_native
@pytest.mark.parametrize("sparse", [False, True])
def test_threads(sparse):
    """One thread and two give the same numbers to rounding."""
    arguments = problem(60, 16, 1000, dtype=torch.float32)
    results = with_one_and_two(lambda: losses_and_gradients(arguments, torch.float32, "float32", "native", sparse))
    for name, a, b in zip("lhwb", *results, strict=True):
        assert_close(name, a, b)


@every
def test_second_derivatives(backend):
    hidden, *arguments = problem(grad=True, dtype=exact(backend))
    check_second_derivative(hierarchical_softmax(hidden, *arguments, backend=backend), hidden, backend)


@pytest.mark.parametrize(
    ("change", "wanted"),
    [
        ({"targets": torch.tensor([0, 9])}, "targets must be words from 0 to V - 1 = 8; got values from 0 to 9"),
        ({"targets": torch.zeros(3, dtype=torch.long)}, r"targets must have shape \[N=2\]"),
        ({"targets": torch.zeros(2, dtype=torch.int32)}, "targets must be int64"),
        ({"weight": torch.zeros(9, 3)}, r"weight must have shape \[V - 1=8, D=3\].*got \(9, 3\)"),
        ({"bias": torch.zeros(9)}, r"bias \[V - 1\]"),
        ({"bias": torch.zeros(8).double()}, "share one device and dtype"),
        ({"tree": zipf_tree(9)._replace(codes=torch.zeros(3, dtype=torch.uint8))}, "tree.codes must have shape"),
        ({"tree": zipf_tree(9).to("meta")}, "targets, tree.first and tree.nodes must share"),
        ({"precision": "int8"}, "precision must be one of float32"),
    ],
)
def test_bad_arguments_are_refused(change, wanted):
    """Each in one sentence: argument, wanted, given."""
    given = {
        "hidden": torch.zeros(2, 3),
        "targets": torch.tensor([0, 1]),
        "weight": torch.zeros(8, 3),
        "bias": torch.zeros(8),
        "tree": zipf_tree(9),
    } | change
    with pytest.raises(ElmoFastError, match=wanted):
        hierarchical_softmax(**given)


@needs_native
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_opcheck_native(precision, sparse):
    """Every registered op agrees with its fake, its schema and its autograd."""
    hidden, targets, weight, bias, tree = problem(dtype=torch.float32)
    ops, options = torch.ops.elmo_fast, (tree.longest, precision, sparse)
    inputs = [x.detach().requires_grad_(not sparse) for x in (hidden, weight, bias)]
    torch.library.opcheck(ops.hierarchical_softmax.default, (inputs[0], targets, *inputs[1:], *tree[:3], *options))
    slopes = ops.hierarchical_softmax(hidden, targets, weight, bias, *tree[:3], *options)[1]
    arguments = (torch.ones(7), hidden, targets, weight, slopes, *tree[:2], precision, sparse)
    torch.library.opcheck(ops.hierarchical_softmax_backward.default, arguments)


@needs_native
def test_a_tree_that_leaves_its_nodes_is_an_error():
    """The kernel looks at every step before it reads memory there."""
    hidden, targets, weight, bias, tree = problem(dtype=torch.float32)
    nodes = tree.nodes.clone()
    nodes[tree.first[targets[0]]] = 39
    with pytest.raises(IndexError, match=r"node 39 of a tree with 39 inner nodes"):
        hierarchical_softmax(hidden, targets, weight, bias, tree._replace(nodes=nodes), backend="native")
    with pytest.raises(IndexError, match=r"the path of word .* has .* steps"):
        hierarchical_softmax(hidden, targets, weight, bias, tree._replace(longest=2), backend="native")


@every
def test_the_dense_form_compiles_without_a_break(backend):
    """fullgraph=True, forward and backward."""
    hidden, targets, weight, bias, tree = problem(grad=True, dtype=exact(backend))

    def f(hidden, weight, bias, targets):
        return hierarchical_softmax(hidden, targets, weight, bias, tree, backend=backend)

    results = []
    for g in (f, torch.compile(f, fullgraph=True, backend="aot_eager")):
        losses = g(hidden, weight, bias, targets)
        results.append([losses.detach(), *torch.autograd.grad(losses.sum(), (hidden, weight, bias))])
    for name, a, b in zip("lhwb", *results, strict=True):
        assert_exactly(name, a, b, backend)
