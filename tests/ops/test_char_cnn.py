"""char_cnn: every backend's kernels against the definition in float64, on words of every length, in every precision."""

import itertools
from collections.abc import Iterator
from typing import NamedTuple

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from elmo_fast.errors import ElmoFastError
from elmo_fast.ops import PRECISIONS, _native, char_cnn
from elmo_fast.ops._dispatch import _REGISTRY
from tests.backends import GPU, HAS_CUDA, backends, device_of, needs_rows_alone
from tests.ops.saved import outputs_of
from tests.tolerances import assert_no_worse

BACKENDS = backends("char_cnn", reference=True)
KERNELS = backends("char_cnn")
TRITON = [p for p in KERNELS if p.values == ("triton",)]
FLOAT64 = ["reference", "native"]
WIDTHS = ((1, 5), (2, 3), (3, 64), (5, 70), (7, 20))  # (width, filters): less than, exactly and more than a block of 64
PAD = 30
# The interpreter takes a millisecond per tile and window; there a few filters have to do.
INTERPRETED = not HAS_CUDA
FEW = ((1, 5), (3, 20), (6, 17))


class Case(NamedTuple):
    ids: Tensor
    embedding: Tensor
    weights: list[Tensor]
    biases: list[Tensor]

    def to(self, dtype: torch.dtype) -> "Case":
        """Copies in `dtype` that require gradients."""
        embedding, *rest = (
            t.detach().to(dtype).requires_grad_() for t in (self.embedding, *self.weights, *self.biases)
        )
        return Case(self.ids, embedding, rest[: len(self.weights)], rest[len(self.weights) :])

    def parameters(self) -> list[Tensor]:
        return [self.embedding, *self.weights, *self.biases]


def words(kind: str, rows: int, slots: int) -> Tensor:
    """Rows of ids 0..30; PAD fills what a word leaves, except where the kind says otherwise."""
    ids = torch.randint(0, PAD, (rows, slots))
    position = torch.arange(slots)
    if kind == "mixed":
        lengths = torch.randint(0, slots + 1, (rows, 1))
        return torch.where(position < lengths, ids, PAD)
    if kind == "short":
        return torch.where(position < torch.randint(1, 6, (rows, 1)), ids, PAD)
    if kind == "padding rows":
        ids[1::2] = 0
        return torch.where((position < 4) | (ids == 0), ids, PAD)
    if kind == "two tails":
        return torch.where(position < torch.randint(0, slots, (rows, 1)), ids, torch.randint(0, 2, (rows, 1)) * PAD)
    assert kind == "full"
    return ids


def case(kind: str = "mixed", rows: int = 129, slots: int = 50, size: int = 16, widths: tuple = WIDTHS) -> Case:
    weights = [torch.randn(n, size, k) / (size * k) ** 0.5 for k, n in widths]
    return Case(words(kind, rows, slots), torch.randn(PAD + 1, size), weights, [torch.randn(n) for _, n in widths])


def gradients(c: Case, **options) -> tuple[Tensor, list[Tensor]]:
    features = char_cnn(c.ids, c.embedding, c.weights, c.biases, **options)
    generator = torch.Generator(torch.get_default_device()).manual_seed(1)
    grad = torch.randn(features.shape, generator=generator).to(features.dtype)
    return features, list(torch.autograd.grad(features, c.parameters(), grad))


def few(backend: str, widths: tuple = WIDTHS) -> tuple:
    return FEW if backend in GPU and INTERPRETED else widths


def served(backend: str, precision: str) -> None:
    """Skips what the backend does not serve here, with its own sentence."""
    if why := _REGISTRY["char_cnn"][backend].unsupported(device_of(backend), torch.float32, precision):
        pytest.skip(why)


def assert_matches_truth(c: Case, backend: str, precision: str = "float32", activation: str = "relu") -> None:
    served(backend, precision)
    truth, d_truth = gradients(c.to(torch.float64), activation=activation, backend="reference")
    torchs, d_torchs = gradients(c.to(torch.float32), activation=activation, precision=precision, backend="reference")
    ours, d_ours = gradients(c.to(torch.float32), activation=activation, precision=precision, backend=backend)
    assert_no_worse("features", ours, torchs, truth, precision)
    names = [
        "embedding",
        *(f"weights[{k}]" for k, _ in enumerate(c.weights)),
        *(f"biases[{k}]" for k, _ in enumerate(c.biases)),
    ]
    for name, one, other, true in zip(names, d_ours, d_torchs, d_truth, strict=True):
        assert_no_worse(f"gradient of {name}", one, other, true, precision)


@pytest.fixture
def no_block_kernels() -> Iterator[None]:
    assert _native.C is not None
    _native.C.disable_block_kernels(True)
    yield
    _native.C.disable_block_kernels(False)


@pytest.mark.parametrize("backend", KERNELS)
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("kind", ["mixed", "short", "full", "padding rows", "two tails"])
def test_no_worse_than_torch(kind: str, precision: str, backend: str) -> None:
    rows, slots = (20, 9) if backend in GPU and INTERPRETED else (129, 50)
    assert_matches_truth(case(kind, rows, slots, widths=few(backend)), backend, precision)


@pytest.mark.parametrize("backend", KERNELS)
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize(("rows", "slots", "size"), [(1, 50, 16), (3, 7, 3), (129, 9, 5), (33, 300, 1), (65, 8, 16)])
def test_awkward_sizes(rows: int, slots: int, size: int, precision: str, backend: str) -> None:
    """One row; windows as wide as the row; odd and single embedding sizes; more slots than a byte counts."""
    widths = WIDTHS
    if backend in GPU and INTERPRETED:
        rows = 67 if rows == 129 else min(rows, 5)
        widths = FEW[: 1 if slots == 300 else 2 if rows == 67 else 3]
    assert_matches_truth(case("mixed", rows, slots, size, widths), backend, precision)


@pytest.mark.parametrize("backend", KERNELS)
@pytest.mark.parametrize("precision", ["float32", "float16"])
@pytest.mark.parametrize(("size", "widths"), [(40, ((7, 33), (1, 20))), (130, ((3, 5),))])
def test_windows_of_more_than_256_numbers(size: int, widths: tuple, precision: str, backend: str) -> None:
    """Too many to lie whole in shared memory; one character wider than what is multiplied at a time."""
    assert_matches_truth(case("mixed", 5, 9, size, widths), backend, precision)


@pytest.mark.parametrize("backend", KERNELS)
@pytest.mark.parametrize("widths", [((1, 4),), ((6, 130),), ((3, 4), (3, 4)), ((7, 8), (1, 150), (2, 3))])
def test_any_set_of_widths(widths: tuple, backend: str) -> None:
    assert_matches_truth(case("mixed", 9 if backend in GPU and INTERPRETED else 40, 12, widths=widths), backend)


@pytest.mark.parametrize("backend", KERNELS)
@pytest.mark.parametrize("precision", PRECISIONS)
def test_tanh(precision: str, backend: str) -> None:
    assert_matches_truth(case("mixed", 20, 8, widths=few(backend)), backend, precision, "tanh")


@pytest.mark.skipif(_native.C is None, reason=str(_native.WHY_NOT))
def test_the_gradient_of_the_embedding_is_no_single_chain_of_sums() -> None:
    """One character fills all slots of 256 words: alike terms, each of which would round at the whole's size."""
    ids, weight = torch.zeros(256, 32, dtype=torch.int64), torch.full((64, 1, 32), 0.7)

    def gradient(dtype: torch.dtype, backend: str) -> Tensor:
        embedding = torch.full((1, 1), 0.3, dtype=dtype, requires_grad=True)
        out = char_cnn(ids, embedding, [weight.to(dtype)], [torch.zeros(64, dtype=dtype)], backend=backend)
        return torch.autograd.grad(out.sum(), embedding)[0]

    truth = gradient(torch.float64, "reference")
    assert_no_worse("embedding", gradient(torch.float32, "native"), truth.float(), truth, "float32")


@pytest.mark.parametrize("backend", KERNELS)
@pytest.mark.parametrize("scale", [1e-12, 1e-30, 1e12])
def test_tiny_and_huge_gradients_keep_their_digits(scale: float, backend: str) -> None:
    """Of a size that float16 has no numbers for: the operands of backward are scaled."""
    c = case("mixed", 9, 7, widths=FEW)
    _, plain = gradients(c.to(torch.float32), precision="float16", backend=backend)
    copy = c.to(torch.float32)
    features = char_cnn(*copy, precision="float16", backend=backend)
    grad = torch.randn(features.shape, generator=torch.Generator().manual_seed(1), device="cpu").to(features) * scale
    for one, other in zip(plain, torch.autograd.grad(features, copy.parameters(), grad), strict=True):
        torch.testing.assert_close(other / scale, one, rtol=1e-3, atol=1e-3 * float(one.abs().max()))


@pytest.mark.parametrize("backend", KERNELS)
@pytest.mark.parametrize("activation", ["relu", "tanh"])
@pytest.mark.parametrize("number", [-3, 0, 64, 65, 1000])
def test_rows_from_count_on_are_zero_and_pass_no_gradient(number: int, activation: str, backend: str) -> None:
    """As the definition on the rows before; whatever the others hold."""
    c, count = case("mixed", 70, 6, 4, ((1, 3), (3, 5))), torch.tensor(number)
    features, grads = gradients(c.to(torch.float32), activation=activation, backend=backend, count=count)
    kept = max(0, min(70, number))
    copy = c.to(torch.float32)
    wanted = char_cnn(copy.ids[:kept], *copy[1:], activation=activation, backend="reference")
    torch.testing.assert_close(features[:kept], wanted)
    assert not features[kept:].any()
    grad = torch.randn(features.shape, generator=torch.Generator().manual_seed(1), device="cpu").to(features)[:kept]
    wanted_grads = torch.autograd.grad(wanted, copy.parameters(), grad)
    for ours, theirs in zip(grads, wanted_grads, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)
    with torch.no_grad():
        assert torch.equal(char_cnn(*c, activation=activation, backend=backend, count=count), features)


@pytest.mark.parametrize("backend", TRITON)
@settings(max_examples=10, deadline=None)
@given(st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(-2, 6), min_size=3, max_size=18), st.booleans())
def test_words_with_ids_outside_the_table_are_nan_and_no_other(backend: str, numbers: list[int], narrow: bool) -> None:
    """The public function looks for them on the CPU; the kernels, which cannot, read nothing outside the table."""
    device = device_of(backend)
    ids = torch.tensor(numbers[: len(numbers) // 3 * 3], device=device).reshape(-1, 3)
    ids = ids.int() if narrow else ids
    bad = ((ids < 0) | (ids > 4)).any(1)
    c = case("mixed", 1, 3, 3, ((1, 4), (3, 2))).to(torch.float32)
    tensors = [c.embedding, *c.weights, *c.biases] if device.type == "cpu" else [t.to(device) for t in c.parameters()]
    embedding, weights, biases = tensors[0][:5].detach().requires_grad_(), tensors[1:3], tensors[3:]
    features, winners = torch.ops.elmo_fast_triton.char_cnn(
        ids, embedding, weights, biases, None, True, "float32", True
    )
    assert features[bad].isnan().all()
    good = char_cnn(ids[~bad], embedding, weights, biases, activation="tanh", backend="reference")
    torch.testing.assert_close(features[~bad], good)
    grad = torch.ones_like(features)
    wild = torch.randint(-(2**15), 2**15, winners.shape, device=device).to(torch.int16)
    for w in (winners, wild):
        torch.ops.elmo_fast_triton.char_cnn_backward(
            grad, features.detach(), w, ids, embedding, weights, biases, None, True, "float32", True, True
        )


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.usefixtures("no_block_kernels")
def test_fall_back_without_block_kernels(precision: str) -> None:
    assert_matches_truth(case("mixed", 40), "native", precision)


@pytest.mark.parametrize("backend", BACKENDS)
def test_no_rows(backend: str) -> None:
    c = case(rows=0).to(torch.float32)
    features, grads = gradients(c, backend=backend)
    assert features.shape == (0, 162)
    assert all(g.eq(0).all() for g in grads)


@pytest.mark.parametrize("backend", FLOAT64)
@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_gradcheck(backend: str, activation: str) -> None:
    c = case("two tails", 6, 7, 3, ((1, 2), (3, 4), (7, 3))).to(torch.float64)

    def run(embedding: Tensor, *rest: Tensor) -> Tensor:
        return char_cnn(c.ids, embedding, rest[:3], rest[3:], activation=activation, backend=backend)

    assert torch.autograd.gradcheck(run, c.parameters())


@pytest.mark.parametrize("backend", BACKENDS)
def test_windows_of_padding_take_part(backend: str) -> None:
    """A filter that answers to padding alone is largest on the pad window of a short word, and 0 on a full one."""
    embedding = torch.zeros(3, 1)
    embedding[2] = 5.0
    ids = torch.tensor([[1, 1, 2, 2, 2, 2], [1, 0, 1, 0, 1, 0], [2, 2, 2, 2, 2, 2]])
    features = char_cnn(ids, embedding, [torch.ones(1, 1, 3)], [torch.tensor([0.5])], backend=backend)
    assert features.flatten().tolist() == [15.5, 0.5, 15.5]


@pytest.mark.parametrize("backend", KERNELS)
def test_ties_go_to_the_first_window(backend: str) -> None:
    """With whole numbers many windows tie exactly; the gradient of the embedding tells which one won."""
    c = case("two tails", 60, 10, 2, ((1, 6), (2, 6), (3, 6)))
    c = Case(c.ids, c.embedding.sign(), [w.sign() for w in c.weights], [b.round() for b in c.biases]).to(torch.float32)
    reference, d_reference = gradients(c, backend="reference")
    features, d_features = gradients(c, backend=backend)
    assert torch.equal(reference, features)
    for theirs, ours in zip(d_reference, d_features, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_nan_is_not_swallowed(backend: str, activation: str) -> None:
    """A NaN in the embedding of one character shows in every feature of the words that hold it, and in no other."""
    c = case("short", 20, 12, widths=few(backend))
    c.ids[c.ids == 7] = 8
    c.ids[4, 0] = c.ids[9, 3] = 7
    c.ids[9, 4:] = PAD
    c.embedding[7] = torch.nan
    features = char_cnn(c.ids, c.embedding, c.weights, c.biases, activation=activation, backend=backend)
    assert features.isnan().any(1).nonzero().flatten().tolist() == [4, 9]
    assert features[[4, 9]].isnan().all()


@pytest.mark.parametrize("backend", KERNELS)
@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_word_is_the_same_in_any_batch(precision: str, backend: str) -> None:
    """Bit-equal alone, in any order and among any others: encoding unique words only changes no bit."""
    served(backend, precision)
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
    """Forward, backward and the next forward read one copy; a step of an optimiser makes it anew, in its place."""
    from elmo_fast.ops import _packed

    _packed.clear_packed()
    c = case("mixed", 5, 9, 4, ((1, 3), (3, 5))).to(torch.float32)
    gradients(c, backend=backend)
    (entry,) = _packed._kept.values()
    filters = entry.copies[1].clone()
    gradients(c, backend=backend)
    assert list(_packed._kept.values()) == [entry]
    with torch.no_grad():
        c.weights[0].neg_()
    place = entry.copies[1].data_ptr()
    gradients(c, backend=backend)
    assert entry.copies[1].data_ptr() == place
    assert not torch.equal(entry.copies[1], filters)
    del c
    assert not _packed._kept


@pytest.mark.parametrize("precision", PRECISIONS)
def test_threads_change_nothing(precision: str) -> None:
    c, before = case("mixed", 129).to(torch.float32), torch.get_num_threads()
    try:
        results = []
        for threads in (1, 2):
            torch.set_num_threads(threads)
            results.append(gradients(c, precision=precision))
    finally:
        torch.set_num_threads(before)
    (one, d_one), (two, d_two) = results
    assert torch.equal(one, two)
    assert all(torch.equal(a, b) for a, b in zip(d_one, d_two, strict=True))


@pytest.mark.parametrize("backend", KERNELS)
def test_saving_for_backward_changes_nothing(backend: str) -> None:
    c = case("mixed", 20, 9, widths=few(backend)).to(torch.float32)
    with torch.no_grad():
        without = char_cnn(*c, backend=backend)
    assert torch.equal(without, char_cnn(*c, backend=backend))


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
    assert not any(t.is_contiguous() for t in (strided.ids, *strided.parameters()))
    parameters = [t.requires_grad_() for t in strided.parameters()]
    features = char_cnn(*strided, backend=backend)
    assert torch.equal(features, wanted)
    plain = c.to(torch.float32)
    expected = torch.autograd.grad(char_cnn(*plain, backend="reference").sum(), plain.parameters())
    for ours, theirs in zip(torch.autograd.grad(features.sum(), parameters), expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("wanted", list(itertools.product([True, False], repeat=3))[:-1])
@pytest.mark.parametrize("backend", KERNELS)
def test_some_gradients_only(wanted: tuple[bool, bool, bool], backend: str) -> None:
    c = case("mixed", 12, 8, widths=FEW).to(torch.float32)
    features, everything = gradients(c, backend=backend)
    count = len(c.weights)
    flags = [wanted[0], *[wanted[1]] * count, *[wanted[2]] * count]
    for parameter, flag in zip(c.parameters(), flags, strict=True):
        parameter.requires_grad_(flag)
    grad = torch.randn(12, 42, generator=torch.Generator().manual_seed(1), device="cpu").to(features)
    char_cnn(*c, backend=backend).backward(grad)
    for parameter, flag, grad in zip(c.parameters(), flags, everything, strict=True):
        assert torch.equal(parameter.grad, grad) if flag else parameter.grad is None


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
    for needs in ((True, True), (True, False), (False, True))[: 1 if counted else 3]:
        torch.library.opcheck(ops.char_cnn_backward.default, (torch.randn_like(features), *plain, *needs))


@pytest.mark.parametrize("needs", [(True, True), (True, False), (False, True)])
def test_opcheck_backward(needs: tuple[bool, bool]) -> None:
    c = case("two tails", 5, 9, 4, ((1, 3), (4, 5)))
    features, winners = torch.ops.elmo_fast.char_cnn(*c, True, "bfloat16", True)
    arguments = (torch.randn_like(features), features, winners, *c[:3], True, "bfloat16", *needs)
    torch.library.opcheck(torch.ops.elmo_fast.char_cnn_backward.default, arguments)


@pytest.mark.parametrize("backend", KERNELS)
def test_second_derivative_is_refused(backend: str) -> None:
    c = case("mixed", 5, 9, widths=FEW).to(torch.float32)
    features = char_cnn(*c, activation="tanh", backend=backend)
    (grad,) = torch.autograd.grad(features.sum(), c.embedding, create_graph=True)
    with pytest.raises(RuntimeError, match='backend="reference"'):
        grad.sum().backward()


@pytest.mark.parametrize("backend", BACKENDS)
def test_compiles_to_one_graph(backend: str) -> None:
    c = case("mixed", 6, 12, 4, ((2, 6), (3, 4))).to(torch.float32)
    expected, d_expected = gradients(c, backend=backend)
    compiled = torch.compile(char_cnn, fullgraph=True, backend="aot_eager")
    features = compiled(*c, backend=backend)
    grad = torch.randn(features.shape, generator=torch.Generator(torch.get_default_device()).manual_seed(1))
    torch.testing.assert_close(features, expected)
    for ours, theirs in zip(torch.autograd.grad(features, c.parameters(), grad), d_expected, strict=True):
        torch.testing.assert_close(ours, theirs)


def test_an_id_outside_the_embedding_is_named_even_when_compiled() -> None:
    c = case("mixed", 6, 12)
    c.ids[3, 3] = PAD + 1
    with pytest.raises(ElmoFastError, match="ids must lie from 0 to 30, the rows of embedding; got 0 to 31"):
        char_cnn(*c)
    with pytest.raises(IndexError, match="ids must lie from 0 to 30"):
        torch.ops.elmo_fast.char_cnn(*c, False, "float32", False)


@pytest.mark.parametrize(
    ("change", "message"),
    [
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
    ],
)
def test_errors_name_the_argument(change: dict, message: str) -> None:
    with pytest.raises(ElmoFastError, match=message):
        char_cnn(**{**case(slots=9)._asdict(), **change})


@pytest.mark.skipif(_native.C is None, reason=str(_native.WHY_NOT))
def test_more_slots_than_the_kernel_counts_are_left_to_the_reference() -> None:
    ids, weights = torch.zeros(1, 2**15, dtype=torch.int64), [torch.ones(1, 1, 1)]
    with pytest.raises(ElmoFastError, match=r"ids of at most 32,767 slots; got shape \(1, 32768\)"):
        char_cnn(ids, torch.ones(1, 1), weights, [torch.zeros(1)], backend="native")
    assert char_cnn(ids, torch.ones(1, 1), weights, [torch.zeros(1)], backend="reference").item() == 1
    assert char_cnn(ids[:, 1:], torch.ones(1, 1), weights, [torch.zeros(1)], backend="native").item() == 1


def test_float64_with_rounded_operands_is_left_to_the_reference() -> None:
    c = case("mixed", 3).to(torch.float64)
    with pytest.raises(ElmoFastError, match="float64"):
        char_cnn(*c, precision="bfloat16", backend="native")
    assert char_cnn(*c, precision="bfloat16", backend="reference").dtype == torch.float64


@pytest.mark.skipif(_native.WHY_NOT is not None, reason=str(_native.WHY_NOT))
def test_winners_are_kept_only_where_a_gradient_is_wanted():
    c = case("mixed", 5, 12)

    def winners(asked):
        return outputs_of("char_cnn", lambda: char_cnn(*asked, backend="native"))[1]

    assert len(winners(c.to(torch.float32))) == 5
    assert len(winners(c)) == 0
    with torch.no_grad():
        assert len(winners(c.to(torch.float32))) == 0
