"""Contract of every op with gradients on every backend, on the calls of calls.py and the cases of ops/cases.py; tensors
without elements, and without values."""

import functools

import pytest
import torch
from torch.utils._pytree import tree_leaves, tree_map_only

from benchmarks.op_calls import OpCalls, differentiated
from elmo_fast import ops
from elmo_fast._runtime.threads import torch_threads
from elmo_fast.errors import ElmoFastError
from elmo_fast.ops import PRECISIONS, LSTMWeights, cases, char_cnn, highway, projected_lstm
from elmo_fast.static import glove as steps
from tests.ops.calls import ALL, CALLS, Recorded, at_each_precision, pairs, placed, weighted_sum
from tests.support.backends import backends, needs
from tests.support.tolerances import assert_close

CPU = torch.device("cpu")
kernels = pytest.mark.parametrize(("name", "backend"), pairs())
at_all = pytest.mark.parametrize(("name", "backend", "precision"), at_each_precision(*PRECISIONS))


def leaves_of(tensors):
    return [tensor.detach().clone().requires_grad_() for tensor in tensors.values()]


def assert_equal(actual, expected):
    """Results and gradients, bit by bit."""
    assert all(map(torch.equal, actual[0], expected[0]))
    for key in actual[1]:
        assert torch.equal(actual[1][key], expected[1][key]), key


WHOLE = {name: ALL[name] for name in ALL if " " not in name or name.endswith(("counted", "dropout", "state"))}


@pytest.mark.parametrize(("name", "backend"), pairs(WHOLE, reference=True))
def test_compiles_to_one_graph(name, backend):
    """fullgraph=True, forward and backward."""
    call, tensors, how = placed(name, backend)
    actual = []
    for run in (call.run, torch.compile(call.run, fullgraph=True, backend="aot_eager")):
        leaves = leaves_of(tensors)
        outputs = run(*leaves, **how)
        actual.append([*outputs, *torch.autograd.grad(weighted_sum(outputs), leaves)])
    for result, expected in zip(*actual, strict=True):
        torch.testing.assert_close(result, expected)


@pytest.mark.parametrize("name", sorted(CALLS.keys() - {"gather_rows", "scalar_mix", "negative_sampling noise"}))
def test_a_tensor_of_a_wrong_kind_is_refused(name):
    """Each argument as an array, with one dimension more, of other dtypes: the op's own error says what it must be."""
    op, tensors = CALLS[name].op, CALLS[name].tensors()
    for each, tensor in tensors.items():
        with pytest.raises(ElmoFastError, match=r"must be a tensor; got ndarray: pass torch.from_numpy\(array\)"):
            CALLS[name].run(*(tensors | {each: tensor.numpy()}).values())
        for wrong in (tensor[None], tensor.double(), tensor.long()):
            with pytest.raises(ElmoFastError, match=f"^{op}: .* (must|needs|without) .*"):
                CALLS[name].run(*(tensors | {each: wrong}).values())


@pytest.mark.parametrize(
    ("name", "backend"), pairs({name: ALL[name] for name in ALL if not name.endswith("sparse")}, registered=True)
)
def test_a_second_derivative_is_refused(name, backend):
    """The kernel's gradient has none of its own and says so."""
    call, tensors, how = placed(name, backend)
    leaves = leaves_of(tensors)
    outputs = call.run(*leaves, **how)
    (first, *_) = torch.autograd.grad(sum(out.square().sum() for out in outputs), leaves, create_graph=True)
    with pytest.raises(RuntimeError, match=r'not differentiable.* first derivatives only.*backend="reference"'):
        first.sum().backward()


@kernels
def test_any_subset_of_the_gradients(name, backend):
    """Each alone, and all but each: the bits of all together."""
    call, tensors, how = placed(name, backend)
    _, everything = call.results(tensors, **how)
    for alone in tensors:
        for expected in ({alone}, tensors.keys() - {alone})[: 1 if backend == "triton" else 2]:
            leaves = {key: tensor.detach().requires_grad_(key in expected) for key, tensor in tensors.items()}
            outputs = call.run(*leaves.values(), **how)
            if not expected:
                continue
            gradients = torch.autograd.grad(weighted_sum(outputs), [leaves[key] for key in expected])
            for key, gradient in zip(expected, gradients, strict=True):
                assert torch.equal(gradient.to_dense(), everything[key]), (expected, key)


@at_all
def test_what_is_kept_for_gradients_changes_no_result(name, backend, precision):
    call, tensors, how = placed(name, backend, precision)
    expected, _ = call.results(tensors, **how)
    with torch.no_grad():
        assert all(map(torch.equal, call.run(*tensors.values(), **how), expected))


@pytest.mark.parametrize(("name", "backend", "precision"), at_each_precision("float32", "float16", reference=True))
def test_strided_views(name, backend, precision):
    """Every second number of wider tensors, transposed where there are dimensions to transpose."""
    call, tensors, how = placed(name, backend, precision)

    def strided(tensor):
        wide = torch.stack([tensor, tensor], -1)[..., 0]
        return wide if wide.dim() < 2 else wide.transpose(0, 1).contiguous().transpose(0, 1)

    views = {key: strided(tensor) for key, tensor in tensors.items()}
    assert not all(view.is_contiguous() for view in views.values())
    (actual, gradients), (reference, d_wanted) = (call.results(each, **how) for each in (views, tensors))
    for result, expected in zip(actual, reference, strict=True):
        assert_close("results", result, expected)
    for key in gradients:
        assert_close(key, gradients[key], d_wanted[key])


DENSE = {name: call for name, call in ALL.items() if not name.endswith("sparse")}


@pytest.mark.parametrize(
    ("name", "backend"), [pair for pair in pairs(DENSE, reference=True) if pair.values[1] != "triton"]
)
def test_gradients_are_those_of_finite_differences(name, backend):
    """In float64."""
    call, tensors, how = placed(name, backend)
    doubles = [tensor.double().requires_grad_() for tensor in tensors.values()]
    assert torch.autograd.gradcheck(lambda *leaves: tuple(call.run(*leaves, **how)), doubles, fast_mode=True)


@pytest.mark.parametrize(("name", "backend"), pairs(only="triton"))
def test_the_same_bits_again(name, backend):
    call, tensors, how = placed(name, backend, "float16")
    assert_equal(*(call.results(tensors, **how) for _ in range(2)))


@pytest.mark.parametrize(
    ("op", "precision"),
    [
        (op, precision)
        for op, (_, multiplies) in cases.CASES.items()
        for precision in (PRECISIONS if multiplies else ("float32",))
        if op != "log_uniform_sample"
    ],
)
def test_threads_change_nothing(op, precision):
    """One to five threads, forward and backward, on cases that are cut into pieces."""
    how = {"backend": "auto", "precision": precision}
    for case in cases.CASES[op][0](cases.Draw()):
        actual = []
        for threads in (1, 2, 3, 5):
            with torch_threads(threads):
                actual.append(cases.results(case, how, CPU))
                assert torch.get_num_threads() == threads
        for key, one in actual[0].items():
            assert all(torch.equal(other[key], one) for other in actual[1:]), key


# Torch splits loops of 32,768 numbers and more, and products, by the number of threads.
LARGE = OpCalls(
    filters=((1, 4), (2, 8), (3, 116)), words=300, projection=128, lstm=(40, 9, 160), mix=(16, 20, 128), rows=640,
    table=3000, samples=1024,
)  # fmt: skip
LARGE_OPS = [op for op in cases.CASES if op not in ("log_uniform_sample", "unique_rows")]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("op", LARGE_OPS)
def test_threads_change_nothing_where_torch_splits(op, dtype):
    before, actual = torch.get_default_dtype(), []
    torch.set_default_dtype(dtype)
    try:
        for threads in (1, 2, 3, 5):
            torch.manual_seed(0)
            leaves, call = getattr(LARGE, op)({"backend": "auto", "precision": "float32"})
            with torch_threads(threads):
                leaves = [leaf.requires_grad_() for leaf in leaves]
                actual.append(tree_leaves(differentiated(call, leaves, train=bool(leaves))()))
    finally:
        torch.set_default_dtype(before)
    assert actual[0][0].dtype == dtype
    for i, one in enumerate(actual[0]):
        assert all(torch.equal(other[i].to_dense(), one.to_dense()) for other in actual[1:]), i


@pytest.mark.parametrize(
    ("name", "backend"), pairs({name: call for name, call in CALLS.items() if call.rounds}, only="native")
)
def test_float64_with_rounded_operands_is_left_to_the_reference(name, backend):
    call, tensors, how = placed(name, backend, "float16")
    doubles = [tensor.double() for tensor in tensors.values()]
    with pytest.raises(ElmoFastError, match="float64"):
        call.run(*doubles, **how)
    assert call.run(*doubles, **how | {"backend": "reference"})[0].dtype == torch.float64


KEEPING = ("char_cnn", "highway", "projected_lstm", "sampled_softmax", "negative_sampling")


@pytest.mark.parametrize(("name", "backend"), pairs({name: ALL[name] for name in KEEPING}, only="native"))
def test_what_backward_needs_is_kept_only_where_a_gradient_is_wanted(name, backend):
    """A gradient of any one tensor."""
    call, tensors, how = placed(name, backend)

    def kept(name):
        with Recorded() as recorded:
            call.run(*(each.detach().requires_grad_(key == name) for key, each in tensors.items()), **how)
        return sum(each.numel() for each in tree_leaves(recorded.calls[-1][2]))

    for key in tensors:
        assert kept(key) > kept(None), key


@pytest.mark.parametrize(("name", "backend"), pairs(registered=True))
def test_opcheck(name, backend):
    """Schema, fake and autograd of each op that runs, forward and backward, with the arguments that it gets."""
    call, tensors, how = placed(name, backend, "float16" if backend == "triton" else "float32")
    with Recorded() as recorded:
        call.results(tensors, **how)
        with torch.no_grad():
            call.run(*tensors.values(), **how)
    assert {"backward" in str(op) for op, *_ in recorded.calls} == {False, True}
    for op, arguments, _ in recorded.calls:
        again = "backward" not in str(op)  # a backward op has no gradients
        copies = tree_map_only(
            torch.Tensor,
            lambda each: each.detach().clone().requires_grad_(again and each.requires_grad),  # noqa: B023
            arguments,
        )
        # Dynamic shapes once for each op, as they take long. What highway saves of rows that do not count is never
        # written, and so not compared; char_cnn's table of characters has a row of NaN.
        few = name not in WHOLE or (
            backend == "triton" and name in ("char_cnn counted", "highway counted", "scalar_mix dropout")
        )
        some = {"test_utils": ("test_autograd_registration", "test_faketensor")} if few else {}
        torch.library.opcheck(op, copies, **some)


@pytest.mark.parametrize("backend", ["native", "reference"])
@pytest.mark.parametrize("op", [op for op, (_, multiplies) in cases.CASES.items() if multiplies])
def test_autocast_is_the_precision(op, backend):
    """16-bit inputs of other layers included; without autocast the same call refuses them or computes otherwise."""
    needs(op, backend, "bfloat16")
    case = cases.CASES[op][0](cases.Draw())[0]
    rounded_once = {name: tensor.bfloat16() for name, tensor in case.tensors.items() if name in ("x", "hidden")}
    rounded = {**case.tensors, **{name: tensor.float() for name, tensor in rounded_once.items()}}
    expected = case.call(rounded, {"precision": "bfloat16", "backend": backend})
    with torch.autocast("cpu", dtype=torch.bfloat16):
        actual = case.call({**case.tensors, **rounded_once}, {"precision": "float32", "backend": backend})
    for name, tensor in actual.items():
        assert tensor.dtype == torch.float32
        assert torch.equal(tensor, expected[name]), name


# The sizes in calls.py that may be 0: rows, widths, outputs, cells, filters, mixes.
SIZES = {
    "char_cnn": (2, 70), "highway": (4, 5, 3), "highway without projection": (4, 5),
    "projected_lstm state": (4, 7, 5, 6), "projected_lstm without projection": (4, 7), "full_softmax": (4, 5),
    "sampled_softmax": (4, 5), "negative_sampling": (4, 5), "hierarchical_softmax": (4, 5), "scalar_mix": (4, 3, 5),
    "scalar_mix norm": (3, 5),
}  # fmt: skip


def emptied(tensor, size):
    """A view without the elements along each dimension of this size, or of as many gates."""
    gates = {5: (5, 10), 6: (6, 24)}.get(size, (size,))
    return tensor[tuple(slice(1, 1) if each in gates else slice(None) for each in tensor.shape)]


@pytest.mark.parametrize(
    ("name", "backend", "precision"),
    at_each_precision("float32", "float16", calls={name: ALL[name] for name in SIZES}, reference=True),
)
def test_a_size_may_be_zero(name, backend, precision):
    """Results and gradients are the definition's in float64: a bias alone, its gradient, or nothing."""
    call, tensors, how = placed(name, backend, precision)
    # The Triton kernels of the LSTM take batches without rows, but need widths and cells.
    for size in SIZES[name][: 1 if "projected_lstm" in name and backend == "triton" else None]:
        few = {key: emptied(tensor, size) for key, tensor in tensors.items()}
        (actual, gradients), (truth, d_truth) = (
            call.results(each, **options)
            for each, options in (
                (few, how),
                ({key: each.double() for key, each in few.items()}, {"backend": "reference"}),
            )
        )
        for result, true in zip((*actual, *gradients.values()), (*truth, *d_truth.values()), strict=True):
            assert_close(f"{name} without {size}", result, true, precision)


@pytest.mark.parametrize("backend", backends("char_cnn", reference=True))
def test_no_words_and_no_outputs(backend):
    """Results without rows or columns, and gradients that are zero."""
    table, weight, bias = (torch.randn(shape, requires_grad=True) for shape in ((6, 4), (5, 4, 2), (5,)))
    y = char_cnn(torch.zeros(0, 7, dtype=torch.int64), table, [weight], [bias], backend=backend)
    assert y.shape == (0, 5)
    for each in torch.autograd.grad(y.sum(), (table, weight, bias)):
        assert not each.any()
    assert highway(torch.randn(3, 8), [], [], torch.randn(4, 8)[1:1], backend=backend).shape == (3, 0)


@pytest.mark.parametrize("backend", backends("projected_lstm", reference=True, only=None))
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("projected", [True, False])
def test_projected_lstm_of_rows_without_steps_passes_no_gradient(projected, precision, backend):
    """All lengths 0: outputs and the weights' gradients are zero, the state goes through, though weights are NaN."""
    needs("projected_lstm", backend, precision)
    x = torch.randn(2, 3, 4, requires_grad=True)
    shapes = ((24, 4), (24, 6), (24,), (6, 6))[: 3 + projected]
    leaves = [x, *(torch.full(shape, torch.nan, requires_grad=True) for shape in shapes)]
    weights = LSTMWeights(*leaves[1:], *([] if projected else [None]))
    state = torch.randn(1, 2, 6, requires_grad=True), torch.randn(1, 2, 6, requires_grad=True)
    outputs, (h, c) = projected_lstm(
        [x], [weights], torch.zeros(2, dtype=torch.int64), state, reverse=[False], precision=precision, backend=backend
    )
    *gradients, d_h, d_c = torch.autograd.grad(outputs.sum() + h.sum() + 2 * c.sum(), [*leaves, *state])
    assert not outputs.any()
    assert torch.equal(h, state[0])
    assert torch.equal(c, state[1])
    assert all(each.shape == leaf.shape and not each.any() for each, leaf in zip(gradients, leaves, strict=True))
    assert torch.equal(d_h, torch.ones_like(d_h))
    assert torch.equal(d_c, torch.full_like(d_c, 2))


def of_a_case(op, number, device, **options):
    """A case of `ops/cases.py`, as a call that adds its results up."""
    with torch.device("cpu"):
        case = cases.CASES[op][0](cases.Draw())[number]
    tensors = {name: tensor.to(device) for name, tensor in case.tensors.items()}
    for tensor in tensors.values():
        tensor.requires_grad_(case.differentiates and tensor.is_floating_point())

    def call():
        actual = case.call(tensors, {"precision": "float32", "backend": "auto", **options})
        return torch.cat([each.flatten() for each in actual.values() if each.is_floating_point()])

    return call


def glove(device, **options):
    """In place too."""
    places = torch.tensor([0, 2, 1], dtype=torch.int32, device=device)
    shapes = (3, 4), (3, 4), (3,), (3,)
    weights, squares = (steps.GloveWeights(*(torch.rand(*shape, device=device) + 1 for shape in shapes)) for _ in "wa")

    def call():
        steps.glove_(places, places.flip(0), weights.word_biases + 1, weights, squares, **options)
        return weights.words

    return call


OF_CASES = {op: range(len(make(cases.Draw()))) for op, (make, _) in cases.CASES.items() if op != "log_uniform_sample"}
OF_CASES["projected_lstm"] = range(1)
ON_META = {
    f"{op} {number}": functools.partial(of_a_case, op, number) for op, numbers in OF_CASES.items() for number in numbers
}
ON_META["glove"] = glove


def test_functions_of_the_host_need_no_default_device():
    weights = torch.tensor([3.0, 1.0, 0.5])
    with torch.device("meta"):
        assert not ops.alias_sample(5, ops.alias_table(weights), seed=0).is_meta


@pytest.mark.parametrize("name", ON_META)
def test_shapes_come_out_of_tensors_without_values(name):
    """On the device meta: shape and dtype of the result are those of the CPU, and the backward pass runs."""
    expected, actual = (ON_META[name](torch.device(device))() for device in ("cpu", "meta"))
    assert (actual.shape, actual.dtype, actual.is_meta) == (expected.shape, expected.dtype, True)
    if expected.requires_grad:
        actual.sum().backward()


def test_how_many_rows_are_distinct_is_not_told_of_tensors_without_values():
    with pytest.raises(ElmoFastError, match="meta tensors do not have; use ordered_unique_rows"):
        ops.unique_rows(torch.empty(3, 2, dtype=torch.int64, device="meta"))
