"""char_cnn as an op: strides, threads, batches, saved tensors, compilation, opcheck, and what it refuses."""

import pytest
import torch
from torch import Tensor

from elmo_fast.errors import ElmoFastError
from elmo_fast.ops import PRECISIONS, _native, char_cnn
from tests.backends import needs, needs_rows_alone
from tests.ops.char_cnn_cases import FEW, KERNELS, PAD, TRITON, Case, case, few, gradients
from tests.ops.encoder_op import EncoderOp


class TestCharCnn(EncoderOp):
    """Weights and biases of three filters; gradients are asked for by kind."""

    op, case, gradients = staticmethod(char_cnn), staticmethod(case), staticmethod(gradients)
    few = {"slots": 9, "widths": FEW}
    small = {"slots": 9}
    kept = (5, 42)
    subsets = [
        [i for i, kind in enumerate((0, 1, 1, 1, 2, 2, 2)) if kind in kinds]
        for kinds in ((0,), (1,), (2,), (0, 1), (0, 2), (1, 2), (0, 1, 2))
    ]
    refusals = [
        ({"ids": torch.zeros(3, 4, 5, dtype=torch.int64)}, r"ids must have shape \[N, C\]"),
        ({"ids": torch.zeros(3, 9)}, "ids must be int64 or int32"),
        ({"ids": torch.zeros(3, 6, dtype=torch.int64)}, r"width of weights\[4\] must be from 1 to 6"),
        ({"ids": torch.full((3, 9), -1)}, "ids must lie from 0 to 30"),
        ({"embedding": torch.zeros(31, 8)}, r"weights\[0\] must have shape \[filters, E=8, width\]"),
        ({"embedding": torch.zeros(31, 16, dtype=torch.int64)}, "embedding must hold floating-point numbers"),
        ({"embedding": torch.zeros(31, 16).double()}, "must share one device and dtype"),
        ({"biases": [torch.zeros(5)]}, "one tensor per width each; got 5 and 1"),
        ({"biases": [torch.zeros(5)] * 5}, r"biases\[1\] must have shape \[filters=3\]"),
        ({"activation": "gelu"}, "activation must be one of relu, tanh; got 'gelu'"),
        ({"precision": "fp16"}, "precision must be one of"),
        ({"backend": "tpu"}, "backend must be one of auto, native, .*reference"),
        ({"count": torch.zeros(1, dtype=torch.int64)}, r"count must have shape \[\]"),
        ({"count": torch.zeros(())}, "count must be int64"),
    ]


@pytest.mark.parametrize("backend", KERNELS)
@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_word_is_the_same_in_any_batch(precision: str, backend: str) -> None:
    """Bit-equal alone, in any order and among any others: encoding unique words only changes no bit."""
    needs("char_cnn", backend, precision)
    needs_rows_alone(backend)
    c = case("mixed", 67, 9, widths=few(backend))
    options = {"precision": precision, "backend": backend}
    everything = char_cnn(c.ids, *c[1:], **options)
    shuffled = torch.randperm(67)
    assert torch.equal(char_cnn(c.ids[shuffled], *c[1:], **options), everything[shuffled])
    for rows in (1, 3, 40):
        assert torch.equal(char_cnn(c.ids[:rows], *c[1:], **options), everything[:rows])


@pytest.mark.parametrize("backend", TRITON)
def test_gradients_are_the_same_on_every_run(backend: str) -> None:
    c = case("mixed", 66, 6, 5, ((1, 5), (3, 20)))
    (_, one), (_, two) = (gradients(c.to(torch.float32), backend=backend, precision="float16") for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(one, two, strict=True))


@pytest.mark.parametrize("backend", TRITON)
def test_filters_are_packed_once(backend: str) -> None:
    """Forward, backward and the next forward read one copy; a step of an optimizer makes it anew, in its place."""
    from elmo_fast.ops import _weights

    _weights.clear_packed()
    c = case("mixed", 5, 9, 4, ((1, 3), (3, 5))).to(torch.float32)
    gradients(c, backend=backend)
    (entry,) = _weights._kept.values()
    filters = entry.copies[1].clone()
    gradients(c, backend=backend)
    assert list(_weights._kept.values()) == [entry]
    with torch.no_grad():
        c.weights[0].neg_()
    place = entry.copies[1].data_ptr()
    gradients(c, backend=backend)
    assert entry.copies[1].data_ptr() == place
    assert not torch.equal(entry.copies[1], filters)
    del c
    assert not _weights._kept


@pytest.mark.parametrize("backend", KERNELS)
def test_strided_views(backend: str) -> None:
    """Transposed ids, every second embedding column, permuted weights, strided biases and an expanded gradient."""
    c = case("mixed", 24, 20, 4, ((2, 6), (3, 4)))
    wanted = char_cnn(*c, backend=backend)
    strided = Case(
        c.ids.t().contiguous().t(),
        torch.stack([c.embedding, c.embedding], 2).flatten(1)[:, ::2],
        [w.permute(2, 0, 1).contiguous().permute(1, 2, 0) for w in c.weights],
        [torch.stack([b, b], 1)[:, 0] for b in c.biases],
    )
    assert not any(t.is_contiguous() for t in (strided.ids, *strided.tensors()))
    parameters = [t.requires_grad_() for t in strided.tensors()]
    features = char_cnn(*strided, backend=backend)
    assert torch.equal(features, wanted)
    plain = c.to(torch.float32)
    expected = torch.autograd.grad(char_cnn(*plain, backend="reference").sum(), plain.tensors())
    for ours, theirs in zip(torch.autograd.grad(features.sum(), parameters), expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("backend", KERNELS)
def test_int32_ids(backend: str) -> None:
    c = case("mixed", 12, 9, widths=FEW)
    assert torch.equal(char_cnn(c.ids.int(), *c[1:], backend=backend), char_cnn(*c, backend=backend))


def test_weights_changed_in_place_are_seen() -> None:
    c = case("mixed", 12).to(torch.float32)
    char_cnn(*c)
    with torch.no_grad():
        c.weights[2].mul_(-1)
        c.weights[3].data[5, 2, 1] += 1
        c.weights[3].data.neg_()
    torch.testing.assert_close(char_cnn(*c), char_cnn(*c, backend="reference"), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("save", [True, False])
def test_opcheck(save: bool) -> None:
    c = case("two tails", 5, 9, 4, ((1, 3), (4, 5)))
    c = c.to(torch.float32) if save else c
    torch.library.opcheck(torch.ops.elmo_fast.char_cnn.default, (*c, False, "float32", save))


@pytest.mark.parametrize("backend", TRITON)
@pytest.mark.parametrize("counted", [True, False])
def test_opcheck_triton(backend: str, counted: bool) -> None:
    ops, count = torch.ops.elmo_fast_triton, torch.tensor(4) if counted else None
    c = case("two tails", 3, 5, 4, ((1, 3), (3, 5)))
    torch.library.opcheck(ops.char_cnn.default, (*c, count, False, "float32", False))
    c = c.to(torch.float32)
    torch.library.opcheck(ops.char_cnn.default, (*c, count, False, "float16", True))
    features, winners = (t.detach() for t in ops.char_cnn(*c, count, True, "float16", True))
    plain = [features, winners, *c[:3], list(c.biases), count, True, "float16"]
    plain = [t.detach() if isinstance(t, Tensor) else t for t in plain]
    plain[4:6] = [[t.detach() for t in each] for each in plain[4:6]]
    upstream = torch.randn_like(features)
    torch.library.opcheck(ops.char_cnn_backward.default, (upstream, *plain, True, True))
    for asked in () if counted else ((True, False), (False, True)):  # which results there are, the fake alone must know
        torch.library.opcheck(
            ops.char_cnn_backward.default, (upstream, *plain, *asked), test_utils=("test_schema", "test_faketensor")
        )


@pytest.mark.parametrize("needs", [(True, True), (True, False), (False, True)])
def test_opcheck_backward(needs: tuple[bool, bool]) -> None:
    c = case("two tails", 5, 9, 4, ((1, 3), (4, 5)))
    features, winners = torch.ops.elmo_fast.char_cnn(*c, True, "bfloat16", True)
    arguments = (torch.randn_like(features), features, winners, *c[:3], True, "bfloat16", *needs)
    torch.library.opcheck(torch.ops.elmo_fast.char_cnn_backward.default, arguments)


def test_an_id_outside_the_embedding_is_named_even_when_compiled() -> None:
    c = case("mixed", 6, 12)
    c.ids[3, 3] = PAD + 1
    with pytest.raises(
        ElmoFastError, match="ids must lie from 0 to 30, the rows of embedding; got values from 0 to 31"
    ):
        char_cnn(*c)
    with pytest.raises(IndexError, match="ids must lie from 0 to 30"):
        torch.ops.elmo_fast.char_cnn(*c, False, "float32", False)


@pytest.mark.skipif(_native.C is None, reason=str(_native.WHY_NOT))
def test_more_slots_than_the_kernel_counts_are_left_to_the_reference() -> None:
    ids, weights = torch.zeros(1, 2**15, dtype=torch.int64), [torch.ones(1, 1, 1)]
    with pytest.raises(ElmoFastError, match=r"ids of at most 32,767 slots; got shape \(1, 32768\)"):
        char_cnn(ids, torch.ones(1, 1), weights, [torch.zeros(1)], backend="native")
    assert char_cnn(ids, torch.ones(1, 1), weights, [torch.zeros(1)], backend="reference").item() == 1
    assert char_cnn(ids[:, 1:], torch.ones(1, 1), weights, [torch.zeros(1)], backend="native").item() == 1
