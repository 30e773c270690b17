"""What char_cnn and highway are held to as ops: a class of tests, whose subclasses say which op it is."""

import pytest
import torch

from elmo_fast.errors import ElmoFastError
from elmo_fast.ops import PRECISIONS, _native
from tests.backends import backends, needs
from tests.ops.saved import outputs_of
from tests.threads import with_one_and_two


def with_reference(test):
    """A test of every backend; without it, of the kernels."""
    test.of_reference = True
    return test


class EncoderOp:
    """A subclass has `op`, `case` (with `to` and `tensors`), and `gradients` (of a case: results, gradients)."""

    variants = ({},)  # arguments of `case`
    few = {}  # of `case` where the interpreter would take long

    def pytest_generate_tests(self, metafunc):
        """These parameters have a class's own values."""
        if "backend" in metafunc.fixturenames:
            reference = hasattr(metafunc.function, "of_reference")
            metafunc.parametrize("backend", backends(self.op.__name__, reference=reference))
        for name, values in {"variant": self.variants, "chosen": self.subsets, "refusal": self.refusals}.items():
            if name in metafunc.fixturenames:
                metafunc.parametrize(name, values, ids=str)

    @with_reference
    @pytest.mark.parametrize("precision", PRECISIONS)
    def test_no_rows(self, backend, variant, precision):
        needs(self.op.__name__, backend, precision)
        c = self.case(rows=0, **variant).to(torch.float32)
        found, gradients = self.gradients(c, backend=backend, precision=precision)
        assert found.shape[0] == 0
        assert all(g.shape == t.shape and g.eq(0).all() for g, t in zip(gradients, c.tensors(), strict=True))

    @pytest.mark.parametrize("precision", PRECISIONS)
    def test_threads_change_nothing(self, precision):
        c = self.case(rows=130).to(torch.float32)
        (one, d_one), (two, d_two) = with_one_and_two(lambda: self.gradients(c, precision=precision))
        assert torch.equal(one, two)
        assert all(torch.equal(a, b) for a, b in zip(d_one, d_two, strict=True))

    @pytest.mark.parametrize("precision", PRECISIONS)
    def test_saving_for_backward_changes_nothing(self, backend, variant, precision):
        needs(self.op.__name__, backend, precision)
        c = self.case(rows=20, **self.few | variant).to(torch.float32)
        with torch.no_grad():
            without = self.op(*c, precision=precision, backend=backend)
        assert torch.equal(without, self.op(*c, precision=precision, backend=backend))

    def test_some_gradients_only(self, backend, chosen):
        """Any subset of the tensors may be asked for."""
        c = self.case(rows=12, **self.few).to(torch.float32)
        found, everything = self.gradients(c, backend=backend)
        for i, tensor in enumerate(c.tensors()):
            tensor.requires_grad_(i in chosen)
        self.op(*c, backend=backend).backward(fixed(found))
        for i, tensor in enumerate(c.tensors()):
            assert torch.equal(tensor.grad, everything[i]) if i in chosen else tensor.grad is None

    def test_second_derivative_is_refused(self, backend):
        c = self.case(rows=5, **self.few).to(torch.float32)
        tensor = c.tensors()[0]
        (grad,) = torch.autograd.grad(self.op(*c, backend=backend).square().sum(), tensor, create_graph=True)
        with pytest.raises(RuntimeError, match='backend="reference"'):
            grad.sum().backward()

    @with_reference
    @pytest.mark.parametrize("count", [None, 4])
    def test_compiles_to_one_graph(self, backend, count):
        c = self.case(rows=6, **self.few).to(torch.float32)
        options = {"backend": backend, "count": None if count is None else torch.tensor(count)}
        expected, d_expected = self.gradients(c, **options)
        found = torch.compile(self.op, fullgraph=True, backend="aot_eager")(*c, **options)
        torch.testing.assert_close(found, expected)
        for ours, theirs in zip(torch.autograd.grad(found, c.tensors(), fixed(found)), d_expected, strict=True):
            torch.testing.assert_close(ours, theirs)

    def test_errors_name_the_argument(self, refusal):
        change, message = refusal
        with pytest.raises(ElmoFastError, match=message):
            self.op(**self.case(**self.small)._asdict() | change)

    def test_float64_with_rounded_operands_is_left_to_the_reference(self):
        c = self.case(rows=3).to(torch.float64)
        with pytest.raises(ElmoFastError, match="float64"):
            self.op(*c, precision="float16", backend="native")
        assert self.op(*c, precision="float16", backend="reference").dtype == torch.float64

    @pytest.mark.skipif(_native.WHY_NOT is not None, reason=str(_native.WHY_NOT))
    def test_what_backward_needs_is_kept_only_where_a_gradient_is_wanted(self):
        c = self.case(rows=5, **self.few)

        def kept(asked):
            return outputs_of(self.op.__name__, lambda: self.op(*asked, backend="native"))[1].shape

        assert tuple(kept(c.to(torch.float32))) == self.kept
        assert 0 in kept(c)
        with torch.no_grad():
            assert 0 in kept(c.to(torch.float32))


def fixed(like):
    """The same numbers on every device."""
    return torch.randn(like.shape, generator=torch.Generator().manual_seed(1), device="cpu").to(like)
