"""char_cnn: every backend's kernels against the definition in float64, on words of every length, in every precision."""

from typing import NamedTuple

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from elmo_fast.errors import ElmoFastError
from elmo_fast.ops import PRECISIONS, _native, _triton, char_cnn
from tests.ops.exact import fixed
from tests.support.backends import GPU, HAS_CUDA, backends, device_of, needs, needs_rows_alone
from tests.support.tolerances import assert_no_worse

BACKENDS = backends("char_cnn", reference=True)
KERNELS = backends("char_cnn")
TRITON = [p for p in KERNELS if p.values == ("triton",)]
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

    def tensors(self) -> list[Tensor]:
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
    return features, list(torch.autograd.grad(features, c.tensors(), fixed(features)))


def few(backend: str, widths: tuple = WIDTHS) -> tuple:
    return FEW if backend in GPU and INTERPRETED else widths


def assert_matches_truth(c: Case, backend: str, precision: str = "float32", activation: str = "relu") -> None:
    needs("char_cnn", backend, precision)
    truth, d_truth = gradients(c.to(torch.float64), activation=activation, backend="reference")
    torchs, d_torchs = gradients(c.to(torch.float32), activation=activation, precision=precision, backend="reference")
    actual, d_ours = gradients(c.to(torch.float32), activation=activation, precision=precision, backend=backend)
    assert_no_worse("features", actual, torchs, truth, precision)
    names = [
        "embedding",
        *(f"weights[{k}]" for k, _ in enumerate(c.weights)),
        *(f"biases[{k}]" for k, _ in enumerate(c.biases)),
    ]
    for name, one, other, true in zip(names, d_ours, d_torchs, d_truth, strict=True):
        assert_no_worse(f"gradient of {name}", one, other, true, precision)


# Every kind and size in float32, one of them in 16 bits.
KINDS = [(kind, "float32") for kind in ("mixed", "short", "full", "padding rows", "two tails")]
SIZES = [(*size, "float32") for size in [(1, 50, 16), (3, 7, 3), (129, 9, 5), (33, 300, 1), (65, 8, 16)]]


@pytest.mark.parametrize("backend", KERNELS)
@pytest.mark.parametrize(("kind", "precision"), [*KINDS, ("mixed", "bfloat16"), ("two tails", "float16")])
def test_no_worse_than_torch(kind: str, precision: str, backend: str) -> None:
    rows, slots = (20, 9) if backend in GPU and INTERPRETED else (129, 50)
    assert_matches_truth(case(kind, rows, slots, widths=few(backend)), backend, precision)


@pytest.mark.parametrize("backend", KERNELS)
@pytest.mark.parametrize(("rows", "slots", "size", "precision"), [*SIZES, (129, 9, 5, "float16")])
def test_awkward_sizes(rows: int, slots: int, size: int, precision: str, backend: str) -> None:
    """One row; windows as wide as the row; odd and single embedding sizes; more slots than a byte counts."""
    widths = WIDTHS
    if backend in GPU and INTERPRETED:
        rows = 67 if rows == 129 else 2 if slots == 300 else min(rows, 5)
        widths = FEW[: 1 if slots == 300 else 2 if rows == 67 else 3]
    assert_matches_truth(case("mixed", rows, slots, size, widths), backend, precision)


@pytest.mark.parametrize("backend", KERNELS)
@pytest.mark.parametrize(
    ("size", "widths", "precision"), [(40, ((7, 33), (1, 20)), "float32"), (130, ((3, 5),), "float16")]
)
def test_windows_of_more_than_256_numbers(size: int, widths: tuple, precision: str, backend: str) -> None:
    """Too many to lie whole in shared memory; one character wider than what is multiplied at a time."""
    assert_matches_truth(case("mixed", 5, 9, size, widths), backend, precision)


@pytest.mark.parametrize("backend", KERNELS)
@pytest.mark.parametrize("widths", [((1, 4),), ((3, 4), (3, 4)), ((7, 8), (1, 150), (2, 3))])
def test_any_set_of_widths(widths: tuple, backend: str) -> None:
    assert_matches_truth(case("mixed", 9 if backend in GPU and INTERPRETED else 40, 12, widths=widths), backend)


@pytest.mark.parametrize("backend", KERNELS)
def test_tanh(backend: str) -> None:
    assert_matches_truth(case("mixed", 20, 8, widths=few(backend)), backend, activation="tanh")


@pytest.mark.parametrize("backend", KERNELS)
@pytest.mark.parametrize("characters", [1100, 40_000])
def test_lexicons_of_any_size(characters: int, backend: str) -> None:
    """More characters than an int16 counts; the last ones are used."""
    if backend in GPU and INTERPRETED and characters > 2000:
        pytest.skip("the interpreter takes milliseconds for the sum of each character's gradients")
    c = case("mixed", 9, 8, size=4, widths=FEW)
    far = torch.where(c.ids > 0, c.ids + characters - 1 - int(c.ids.max()), 0)
    c = c._replace(ids=far, embedding=torch.randn(characters, 4))
    assert_matches_truth(c, backend)


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


@pytest.mark.skipif(_native.C is None, reason=str(_native.WHY_NOT))
def test_the_gradients_of_the_weights_are_no_single_chain_of_sums() -> None:
    """With 5,000 equal words every sum grows by the same number each time, and a single chain rounds it one way."""
    weight, bias = torch.randn(1, 8, 1), torch.randn(1).abs()
    table, ids = torch.rand(3, 8), torch.ones(5000, 2, dtype=torch.int64)

    def gradients_of(dtype: torch.dtype, backend: str) -> list[Tensor]:
        leaves = [weight.abs().to(dtype).requires_grad_(), bias.to(dtype).requires_grad_()]
        features = char_cnn(ids, table.to(dtype), leaves[:1], leaves[1:], backend=backend)
        return list(torch.autograd.grad(features, leaves, torch.full_like(features, 0.1).to(dtype)))

    truths, actual = gradients_of(torch.float64, "reference"), gradients_of(torch.float32, "native")
    for name, result, truth in zip(("weight", "bias"), actual, truths, strict=True):
        assert_no_worse(name, result, truth.float(), truth, "float32")


@pytest.mark.parametrize("backend", KERNELS)
@pytest.mark.parametrize("scale", [1e-30, 1e12])
def test_tiny_and_huge_gradients_keep_their_digits(scale: float, backend: str) -> None:
    """Gradients too small or large for float16: the operands of backward are scaled."""
    c = case("mixed", 9, 7, widths=FEW)
    _, plain = gradients(c.to(torch.float32), precision="float16", backend=backend)
    copy = c.to(torch.float32)
    features = char_cnn(*copy, precision="float16", backend=backend)
    grad = torch.randn(features.shape, generator=torch.Generator().manual_seed(1), device="cpu").to(features) * scale
    for one, other in zip(plain, torch.autograd.grad(features, copy.tensors(), grad), strict=True):
        torch.testing.assert_close(other / scale, one, rtol=1e-3, atol=1e-3 * float(one.abs().max()))


@pytest.mark.parametrize("backend", KERNELS)
def test_the_largest_gradients_are_not_lost(backend: str) -> None:
    """A power of two beyond all others: the scale of float16's operands has a normal inverse all the same."""
    c, results = case("mixed", 9, 7, widths=FEW).to(torch.float32), []
    weights, biases = [weight.detach() / 64 for weight in c.weights], [bias.detach() for bias in c.biases]
    for number in (1.0, 2.0**127):
        features = char_cnn(c.ids, c.embedding, weights, biases, precision="float16", backend=backend)
        grad = torch.zeros_like(features)
        grad[:, 0] = number
        results += torch.autograd.grad(features, c.embedding, grad)
    one, other = results
    assert one.any()
    torch.testing.assert_close(other, one * 2.0**127, rtol=1e-3, atol=0)


@pytest.mark.parametrize("backend", KERNELS)
@pytest.mark.parametrize(("activation", "number"), [("tanh", 65), *(("relu", number) for number in (-3, 64, 1000))])
def test_rows_from_count_on_are_zero_and_pass_no_gradient(number: int, activation: str, backend: str) -> None:
    """Rows before the count equal the definition, for any content of the others."""
    c, count = case("mixed", 70, 6, 4, ((1, 3), (3, 5))), torch.tensor(number)
    features, grads = gradients(c.to(torch.float32), activation=activation, backend=backend, count=count)
    kept = max(0, min(70, number))
    copy = c.to(torch.float32)
    reference = char_cnn(copy.ids[:kept], *copy[1:], activation=activation, backend="reference")
    torch.testing.assert_close(features[:kept], reference)
    assert not features[kept:].any()
    grad = torch.randn(features.shape, generator=torch.Generator().manual_seed(1), device="cpu").to(features)[:kept]
    wanted_grads = torch.autograd.grad(reference, copy.tensors(), grad)
    for actual, expected in zip(grads, wanted_grads, strict=True):
        torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-4)
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
    tensors = [c.embedding, *c.weights, *c.biases] if device.type == "cpu" else [t.to(device) for t in c.tensors()]
    embedding, weights, biases = tensors[0][:5].detach().requires_grad_(), tensors[1:3], tensors[3:]
    features, saved = getattr(torch.ops, _triton.NAMESPACE).char_cnn(
        ids, embedding, weights, biases, None, True, "float32", True
    )
    assert features[bad].isnan().all()
    good = char_cnn(ids[~bad], embedding, weights, biases, activation="tanh", backend="reference")
    torch.testing.assert_close(features[~bad], good)
    grad = torch.ones_like(features)
    winners, *copies = saved
    wild = torch.randint(-(2**15), 2**15, winners.shape, device=device).to(torch.int16)
    for w in (winners, wild):
        getattr(torch.ops, _triton.NAMESPACE).char_cnn_backward(
            grad, features.detach(), [w, *copies], ids, embedding, weights, biases, None, True, "float32", True, True
        )


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
    """With whole numbers many windows tie exactly; the gradient of the embedding shows which one won."""
    c = case("two tails", 60, 10, 2, ((1, 6), (2, 6), (3, 6)))
    c = Case(c.ids, c.embedding.sign(), [w.sign() for w in c.weights], [b.round() for b in c.biases]).to(torch.float32)
    reference, d_reference = gradients(c, backend="reference")
    features, d_features = gradients(c, backend=backend)
    assert torch.equal(reference, features)
    for expected, actual in zip(d_reference, d_features, strict=True):
        torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_gradient_passes_a_feature_that_is_nan(backend: str) -> None:
    """As torch's relu: it stops where a feature is 0 or less, and NaN is neither."""
    c = case("short", 20, 12, widths=few(backend))
    c.embedding[c.ids[4, 0]] = torch.nan
    biases = [bias.detach().requires_grad_() for bias in c.biases]
    features = char_cnn(c.ids, c.embedding, c.weights, biases, activation="relu", backend=backend)
    assert features.isnan().any()
    actual = torch.cat(torch.autograd.grad(features.sum(), biases))
    assert torch.equal(actual, ((features > 0) | features.isnan()).sum(0).float())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"ids": torch.zeros(3, 4, 5, dtype=torch.int64)}, r"ids must have shape \[N, C\]"),
        ({"ids": torch.zeros(3, 9)}, "ids must be int64 or int32"),
        ({"ids": torch.zeros(3, 6, dtype=torch.int64)}, r"width of weights\[4\] must be from 1 to 6"),
        ({"ids": torch.full((3, 9), -1)}, "ids must lie from 0 to 30"),
        ({"embedding": torch.zeros(31, 8)}, r"weights\[0\] must have shape \[filters, E=8, width\]"),
        ({"biases": [torch.zeros(5)]}, "one tensor per width each; got 5 and 1"),
        ({"biases": [torch.zeros(5)] * 5}, r"biases\[1\] must have shape \[filters=3\]"),
        ({"activation": "gelu"}, "activation must be one of relu, tanh; got 'gelu'"),
    ],
)
def test_errors_name_the_argument(change, message):
    with pytest.raises(ElmoFastError, match=message):
        char_cnn(**case(slots=9)._asdict() | change)


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


@pytest.mark.parametrize("backend", KERNELS)
def test_int32_ids(backend: str) -> None:
    c = case("mixed", 12, 9, widths=FEW)
    assert torch.equal(char_cnn(c.ids.int(), *c[1:], backend=backend), char_cnn(*c, backend=backend))


@pytest.mark.skipif(_native.C is None, reason=str(_native.WHY_NOT))
def test_more_slots_than_the_kernel_counts_are_left_to_the_reference() -> None:
    ids, weights = torch.zeros(1, 2**15, dtype=torch.int64), [torch.ones(1, 1, 1)]
    with pytest.raises(ElmoFastError, match=r"ids of at most 32,767 slots; got shape \(1, 32768\)"):
        char_cnn(ids, torch.ones(1, 1), weights, [torch.zeros(1)], backend="native")
    assert char_cnn(ids, torch.ones(1, 1), weights, [torch.zeros(1)], backend="reference").item() == 1
    assert char_cnn(ids[:, 1:], torch.ones(1, 1), weights, [torch.zeros(1)], backend="native").item() == 1
