"""Tests of every loss over a vocabulary: a class, whose subclasses name the loss."""

import pytest
import torch
from hypothesis import strategies as st

from elmo_fast.errors import ElmoFastError
from elmo_fast.ops import _native, coalesced
from tests.ops.exact import assert_exactly, exact
from tests.support.backends import backends, device_of, needs
from tests.support.tolerances import assert_close, assert_no_worse

LEAVES = "hidden", "weight", "bias"
needs_native = pytest.mark.skipif(_native.WHY_NOT is not None, reason=str(_native.WHY_NOT))
# All of these losses have the same backends.
kernels = pytest.mark.parametrize("backend", backends("full_softmax"))
every = pytest.mark.parametrize("backend", backends("full_softmax", reference=True))
doubles = pytest.mark.parametrize("backend", ["reference", pytest.param("native", marks=needs_native)])
alone = pytest.mark.parametrize("backend", [each for each in backends("full_softmax") if each.values == ("triton",)])


def leaves_of(arguments):
    """The tensors of a call that have gradients, from now on."""
    return [arguments[name].requires_grad_() for name in LEAVES]


def losses_and_gradients(loss, arguments, dtype, **options):
    """By name: losses, and the gradients of their weighted mean, of tensors in a dtype."""
    arguments = {
        name: x.detach().to(dtype) if torch.is_tensor(x) and x.is_floating_point() else x
        for name, x in arguments.items()
    }
    leaves = leaves_of(arguments)
    losses = loss(**arguments | {"backend": "reference"} | options)
    weights = torch.linspace(-1, 2, len(losses), dtype=dtype) / max(1, len(losses))
    gradients = torch.autograd.grad((losses * weights).sum(), leaves)
    return dict(zip(("losses", *LEAVES), (losses.detach(), *(each.to_dense() for each in gradients)), strict=True))


def dense_of(gradient, words):
    """A sparse gradient as a dense one: its indices are the distinct words, in order, and the flag can be had without
    another sort; on a GPU they are the words as they came."""
    if gradient.device.type != "cpu":
        assert torch.equal(gradient._indices()[0], words)
        return gradient.to_dense()
    assert torch.equal(gradient._indices()[0], words.unique())
    values, gradient = gradient._values(), coalesced(gradient)
    assert gradient._values().data_ptr() == values.data_ptr()
    return gradient.to_dense()


IDS = st.one_of(st.integers(-3, 12), st.sampled_from([-(2**63), 2**63 - 1, 2**31, -(2**31), 2**32 + 4, 9, 10]))
SOME_IDS = st.lists(IDS, min_size=1, max_size=5)


def check_no_word_leaves_the_table(call, targets, samples):
    """Results for any ids are those of the clamped word or NaN, and the table's NaN surroundings are never read.

    call: of (hidden, targets, table, bias, samples), with sparse gradients.
    """
    with torch.device(device_of("triton")):
        around, edge = torch.full((30, 4), torch.nan), torch.full((30,), torch.nan)
        around[10:20], edge[10:20] = torch.linspace(-1, 1, 40).view(10, 4), 0.5
        table, hidden = around[10:20].requires_grad_(), torch.linspace(-2, 2, 4 * len(targets)).view(-1, 4)
        losses = call(hidden, torch.tensor(targets), table, edge[10:20], torch.tensor(samples))
        inside = [0 <= t < 10 and all(0 <= s < 10 for s in samples) for t in targets]
        assert losses.isfinite().tolist() == inside
        (gradient,) = torch.autograd.grad(losses.sum(), table)
        actual = gradient._indices()[0]
        assert actual.min() >= 0
        assert actual.max() < 10
        if all(inside):
            assert gradient._values().isfinite().all()


class OutputLayer:
    """A subclass has `loss`, `problem` (a call's arguments by name) and `by_hand` (of them: the formula in float64)."""

    shapes = [(1, 1, 2), (3, 5, 9), (129, 33, 200)]  # N, D, V
    large = (130, 40, 700)
    ways = [{"chunk_bytes": 4096}, {"chunk_bytes": 2**25}]
    chunks = [{"chunk_bytes": 1}, {"chunk_bytes": 200}, {"chunk_bytes": 2**25}]
    cases = {"mixed": lambda arguments: {}, "all targets equal": lambda arguments: {"targets": torch.full((7,), 39)}}
    small = {
        "hidden": torch.zeros(2, 3), "targets": torch.tensor([0, 1]), "weight": torch.zeros(9, 3),
        "bias": torch.zeros(9),
    }  # fmt: skip

    def pytest_generate_tests(self, metafunc):
        """These parameters have a class's own values."""
        lists = {
            "shape": self.shapes, "larger": [*self.shapes[1:], self.large], "case": self.cases,
            "refusal": getattr(self, "refusals", {}),
        }  # fmt: skip
        for name in lists.keys() & set(metafunc.fixturenames):
            metafunc.parametrize(name, list(lists[name]), ids=str)

    def used(self, arguments):
        """The rows of the table that a call reads, in the order of a sparse gradient's entries."""
        return torch.cat([arguments["targets"], arguments["samples"]])

    @every
    def test_loss_by_hand(self, backend, shape):
        """Every term of the formula."""
        arguments = self.problem(*shape, dtype=exact(backend))
        assert_exactly("losses", self.loss(**arguments, backend=backend), self.by_hand(**arguments), backend)

    @every
    def test_sparse_gradients_are_the_dense_ones(self, backend, case):
        """Same numbers; indices are the distinct rows used, in order, and the flag can be had without another sort."""
        arguments = self.problem(dtype=exact(backend))
        arguments |= self.cases[case](arguments)
        leaves, gradients = leaves_of(arguments), []
        for sparse in (False, True):
            losses = self.loss(**arguments, sparse=sparse, backend=backend)
            seeds = torch.arange(1.0, len(losses) + 1, dtype=losses.dtype)
            gradients.append(torch.autograd.grad((losses * seeds).sum(), leaves))
        for name, dense, sparse in zip(LEAVES, *gradients, strict=True):
            actual = sparse if name == "hidden" else dense_of(sparse, self.used(arguments))
            assert_exactly(name, actual, dense, backend)

    @kernels
    @pytest.mark.parametrize("precision", ["float32", "bfloat16", "float16"])
    def test_no_worse_than_torch(self, larger, precision, backend):
        """Losses and gradients of a weighted mean against float64; torch's with the same operands rounded."""
        needs(self.loss.__name__, backend, precision)
        arguments = self.problem(*larger, dtype=torch.float32)
        truth = losses_and_gradients(self.loss, arguments, torch.float64)
        plain = losses_and_gradients(self.loss, arguments, torch.float32, precision=precision)
        for way in self.ways:
            result = losses_and_gradients(
                self.loss, arguments, torch.float32, precision=precision, backend=backend, **way
            )
            for name in truth:
                assert_no_worse(f"{name}, {way}", result[name], plain[name], truth[name], precision)

    @every
    def test_chunks_change_nothing_but_rounding(self, backend):
        """One row (or word, or tile) at a time, a few, all at once."""
        arguments = self.problem(70, 8, 100, dtype=torch.float32)
        one, *others = (
            losses_and_gradients(self.loss, arguments, torch.float32, backend=backend, **chunk) for chunk in self.chunks
        )
        for other in others:
            for name in one:
                assert_close(name, other[name], one[name])

    def test_bad_arguments_are_refused(self, refusal):
        """Each in one sentence: argument, expected, actual."""
        change, expected = refusal
        with pytest.raises(ElmoFastError, match=expected):
            self.loss(**self.small | change)


class SampledLayer(OutputLayer):
    """A loss over a shared sample of the vocabulary."""

    cases = OutputLayer.cases | {"all targets sampled": lambda arguments: {"targets": arguments["samples"][:7]}}
    small = OutputLayer.small | {"samples": torch.tensor([4])}
    refusals = [
        ({"targets": torch.tensor([0, 9])}, "targets must be words from 0 to V - 1 = 8; got values from 0 to 9"),
        ({"targets": torch.zeros(3, dtype=torch.long)}, r"targets must have shape \[N=2\]"),
        ({"targets": torch.zeros(2, dtype=torch.int32)}, "share one device and dtype"),
        ({"samples": torch.tensor([9])}, "samples must be words"),
        ({"samples": torch.zeros(0, dtype=torch.long)}, "at least one word"),
        ({"weight": torch.zeros(0, 3), "bias": torch.zeros(0)}, "weight must hold at least one word"),
        ({"precision": "int8"}, "precision must be one of float32"),
        ({"chunk_bytes": 0}, "chunk_bytes must be at least 1"),
    ]

    @alone
    @pytest.mark.parametrize("precision", ["float32", "float16", "bfloat16"])
    def test_gradients_scale_exactly_by_powers_of_two(self, backend, precision):
        """float16's scale follows the incoming gradient; zero stays zero; every run gives the same bits."""
        needs(self.loss.__name__, backend, precision)
        if (backend, precision) == ("triton", "float16"):
            pytest.skip("for inference alone")
        arguments = self.problem(40, 16, 200, dtype=torch.float32)
        leaves, seeds = leaves_of(arguments), torch.rand(40) + 0.5
        losses = self.loss(**arguments, precision=precision, backend=backend, chunk_bytes=4096)
        base = torch.autograd.grad(losses, leaves, seeds, retain_graph=True)
        for power in (0.0, -60.0, -14.0, 3.0, 40.0):
            scaled = torch.autograd.grad(losses, leaves, seeds * 2**power, retain_graph=True)
            for a, b in zip(scaled, base, strict=True):
                assert torch.equal(a, b * 2**power)
        for gradient in torch.autograd.grad(losses, leaves, torch.zeros(40)):
            assert not gradient.any()
