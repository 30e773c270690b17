"""full_softmax: the whole vocabulary's loss by blocks, against torch's cross entropy in float64."""

import pytest
import torch
from torch.nn import functional

from elmo_fast.errors import ElmoFastError
from elmo_fast.ops import _dispatch, _native, full_softmax
from elmo_fast.ops.full_softmax import reference
from elmo_fast.ops.full_softmax.op import FullSoftmaxArguments
from tests.backends import backends, device_of
from tests.ops.exact import assert_exactly, exact
from tests.tolerances import assert_close, assert_no_worse

kernels = pytest.mark.parametrize("backend", backends("full_softmax"))
every = pytest.mark.parametrize("backend", backends("full_softmax", reference=True))
needs_native = pytest.mark.skipif(_native.WHY_NOT is not None, reason=str(_native.WHY_NOT))
doubles = pytest.mark.parametrize("backend", ["reference", pytest.param("native", marks=needs_native)])


def problem(count=7, width=6, words=40, dtype=torch.float64):
    targets = torch.randint(0, words, (count,))
    return (
        torch.randn(count, width, dtype=dtype),
        targets,
        torch.randn(words, width, dtype=dtype),
        torch.randn(words).to(dtype),
    )


def whole(hidden, targets, weight, bias):
    return functional.cross_entropy(hidden @ weight.T + bias, targets, reduction="none")


@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 5, 9), (129, 33, 1001), (7, 64, 200)])
@pytest.mark.parametrize("chunk_bytes", [1, 1000, 2**25])
@every
def test_loss_is_the_whole_softmaxs(shape, chunk_bytes, backend):
    """One word (or tile) a block, some, all."""
    if shape[2] > 500 and chunk_bytes == 1:
        chunk_bytes = 129 * 8 * 37
    arguments = problem(*shape, dtype=exact(backend))
    truth = whole(*(x.double() if x.is_floating_point() else x for x in arguments))
    assert_exactly("losses", full_softmax(*arguments, chunk_bytes=chunk_bytes, backend=backend), truth, backend)


def test_more_rows_than_a_block_of_them(monkeypatch):
    """Rows are cut too: blocks of 4 rows and of 3 words."""
    monkeypatch.setattr(reference, "ROWS", 4)
    arguments = problem(11)
    found = full_softmax(*arguments, chunk_bytes=4 * 3 * 8, backend="reference")
    assert_close("losses", found, whole(*arguments), "float64")


@needs_native
def test_gradients_of_more_rows_than_a_block_of_them():
    """The last block has fewer rows than the others: 20 rows in blocks of 8, of one word each."""
    arguments = problem(20)
    truth = losses_and_gradients(arguments, torch.float64, backend="reference")
    found = losses_and_gradients(arguments, torch.float64, backend="native", chunk_bytes=8 * 8)
    for name, ours, wanted in zip(("losses", "hidden", "weight", "bias"), found, truth, strict=True):
        assert_close(name, ours, wanted, "float64")


def refused(backend, precision):
    """Skips where a backend refuses a precision here."""
    why = _dispatch._REGISTRY["full_softmax"][backend].unsupported(device_of(backend), torch.float32, precision)
    if why is not None:
        pytest.skip(why)


def losses_and_gradients(arguments, dtype, **options):
    """Losses, and the gradients of their weighted sum to hidden, table and bias."""
    hidden, targets, weight, bias = arguments
    leaves = [x.detach().to(dtype).requires_grad_() for x in (hidden, weight, bias)]
    losses = full_softmax(leaves[0], targets, *leaves[1:], **options)
    weights = torch.linspace(-1, 2, len(losses), dtype=dtype)
    return [losses.detach(), *torch.autograd.grad((losses * weights).sum(), leaves)]


@kernels
@pytest.mark.parametrize("chunk_bytes", [1, 40_000, 2**25])
@pytest.mark.parametrize("precision", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("shape", [(3, 5, 9), (150, 33, 401), (7, 64, 200), (0, 4, 9)])
def test_no_worse_than_torch(shape, precision, chunk_bytes, backend):
    """Losses and gradients against float64; torch's with the same operands rounded. Blocks of rows and of words."""
    refused(backend, precision)
    arguments = problem(*shape, dtype=torch.float32)
    truth = losses_and_gradients(arguments, torch.float64, backend="reference")
    plain = losses_and_gradients(arguments, torch.float32, backend="reference", precision=precision)
    ours = losses_and_gradients(arguments, torch.float32, backend=backend, precision=precision, chunk_bytes=chunk_bytes)
    for name, *triple in zip(("losses", "hidden", "weight", "bias"), ours, plain, truth, strict=True):
        assert_no_worse(name, *triple, precision)


@kernels
def test_strided_inputs(backend):
    """Transposed hidden and table, every second target and bias."""
    hidden, targets, weight, bias = problem(7, 6, 40, exact(backend))
    views = [x.mT.contiguous().mT for x in (hidden, weight)]
    second = [torch.stack([x, x], -1)[:, 0] for x in (targets, bias)]
    found = losses_and_gradients((views[0], second[0], views[1], second[1]), exact(backend), backend=backend)
    wanted = losses_and_gradients((hidden, targets, weight, bias), exact(backend), backend="reference")
    for name, a, b in zip("lhwb", found, wanted, strict=True):
        assert_exactly(name, a, b, backend)


@kernels
def test_a_small_loss_keeps_its_digits(backend):
    """A target 60 ahead of the only other word: the loss is e^-60, and so is the gradient to its bias."""
    hidden, weight, bias = torch.ones(1, 1), torch.tensor([[60.0], [0.0]]), torch.zeros(2, requires_grad=True)
    loss = full_softmax(hidden, torch.tensor([0]), weight, bias, backend=backend)
    (gradient,) = torch.autograd.grad(loss.sum(), bias)
    assert loss.item() == pytest.approx(8.75651076e-27, rel=1e-4)
    assert gradient.tolist() == pytest.approx([-8.75651076e-27, 8.75651076e-27], rel=1e-4)


@kernels
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # numpy's, in the interpreter, of the NaN that is wanted
def test_no_target_leaves_the_table(backend):
    """Off the CPU nothing is checked: a word outside has a NaN loss, reads no memory of others, and spares its rows.

    On the CPU, where the public function has looked, the kernel raises all the same.
    """
    around = torch.full((30, 4), torch.nan)
    around[10:20] = torch.linspace(-1, 1, 40).view(10, 4)
    table, edge = around[10:20], torch.zeros(10)
    targets = torch.tensor([0, 9, 10, -1, 2**63 - 1, -(2**63), 2**32 + 3])
    run = _dispatch._REGISTRY["full_softmax"][backend].module.run
    if backend == "native":
        for outside in targets[2:]:
            with pytest.raises(IndexError):
                run(FullSoftmaxArguments(torch.ones(1, 4), outside[None], table, edge, "float32", 2**20))
        return
    losses = run(FullSoftmaxArguments(torch.ones(7, 4), targets, table, edge, "float32", 2**20))
    assert losses.isfinite().tolist() == [True, True] + [False] * 5


@kernels
def test_opcheck(backend):
    """Both ops agree with their fakes, schemas and autograd."""
    hidden, targets, weight, bias = problem(20, 6, 40, torch.float32)
    if backend == "native":
        ops, options = torch.ops.elmo_fast, ("float16", 100)
        saved = ops.full_softmax(hidden, targets, weight, bias, *options)
        arguments = (torch.ones(20), hidden, targets, weight, bias, *saved, *options)
        torch.library.opcheck(ops.full_softmax_backward.default, arguments)
        leaves = [x.clone().requires_grad_() for x in (hidden, weight, bias)]
        torch.library.opcheck(ops.full_softmax.default, (leaves[0], targets, *leaves[1:], *options))
        return
    ops = getattr(torch.ops, f"elmo_fast_{backend}")
    leaves = [x.clone().requires_grad_() for x in (hidden, weight, bias)]
    torch.library.opcheck(ops.full_softmax.default, (leaves[0], targets, *leaves[1:], "float16", 100))
    saved = ops.full_softmax(hidden, targets, weight, bias, "float16", 100)
    torch.library.opcheck(ops.full_softmax_backward.default, (torch.ones(20), *saved, weight, bias, 100))


@kernels
def test_compiles_without_a_break(backend):
    """fullgraph=True, forward and backward."""
    hidden, targets, weight, bias = problem(9, 6, 40, torch.float32)
    leaves = [x.requires_grad_() for x in (hidden, weight, bias)]

    def f(hidden, weight, bias):
        return full_softmax(hidden, targets, weight, bias, backend=backend)

    results = []
    for g in (f, torch.compile(f, fullgraph=True, backend="aot_eager")):
        losses = g(*leaves)
        results.append([losses.detach(), *torch.autograd.grad(losses.sum(), leaves)])
    for name, a, b in zip("lhwb", *results, strict=True):
        assert_close(name, a, b)


def test_float32_is_no_worse_than_torch():
    """Against float64, with logits of every size."""
    exact = problem(50, 64, 3000)
    single = [x.float() if x.is_floating_point() else x for x in exact]
    exact = [x.double() if x.is_floating_point() else x for x in single]
    found = full_softmax(*single, chunk_bytes=50 * 4 * 100)
    assert_no_worse("losses", found, whole(*single), whole(*exact), "float32")


@every
def test_large_logits_do_not_overflow(backend):
    """Logits of 1e4 in one block and -1e4 in another."""
    hidden, targets = torch.ones(2, 1), torch.tensor([0, 3])
    weight, bias = torch.tensor([[1e4], [1e4], [-1e4], [9999.0]]), torch.zeros(4)
    found = full_softmax(hidden, targets, weight, bias, chunk_bytes=8, backend=backend)
    truth = whole(hidden.double(), targets, weight.double(), bias.double())
    assert_no_worse("losses", found, whole(hidden, targets, weight, bias), truth, "float32")


@doubles
@pytest.mark.parametrize("chunk_bytes", [1, 200, 2**25])
def test_gradcheck(chunk_bytes, backend):
    """Gradients to hidden, table and bias, blocks computed again."""
    hidden, targets, weight, bias = problem()
    leaves = [x.requires_grad_() for x in (hidden, weight, bias)]
    assert torch.autograd.gradcheck(
        lambda h, w, b: full_softmax(h, targets, w, b, chunk_bytes=chunk_bytes, backend=backend), leaves
    )


def test_no_rows():
    """Nothing in, nothing out."""
    assert full_softmax(*problem(0)).shape == (0,)


def test_precision_rounds_operands_alone():
    """bfloat16: the loss of rounded operands, computed in float32."""
    hidden, targets, weight, bias = problem(dtype=torch.float32)
    rounded = [x.bfloat16().float() for x in (hidden, weight)]
    found = full_softmax(hidden, targets, weight, bias, precision="bfloat16")
    assert_close("losses", found, whole(rounded[0], targets, rounded[1], bias))


@pytest.mark.parametrize(
    ("change", "wanted"),
    [
        ({"targets": torch.tensor([0, 9])}, "targets must be words from 0 to V - 1 = 8"),
        ({"hidden": torch.zeros(2, 1, 3)}, r"hidden must have shape \[N, D\]; got shape \(2, 1, 3\)"),
        ({"weight": torch.zeros(0, 3), "bias": torch.zeros(0)}, "at least one word"),
        ({"bias": torch.zeros(8)}, r"bias must have shape \[V=9\]"),
        ({"targets": torch.zeros(2)}, "targets must be int64"),
        ({"bias": torch.zeros(9).double()}, "hidden, weight and bias must share one device and dtype"),
        ({"hidden": torch.zeros(2, 3).double()}, "hidden, weight and bias must share one device and dtype"),
        ({"chunk_bytes": 0}, "chunk_bytes must be at least 1"),
        ({"backend": "cuda"}, "backend must be one of auto, native, triton, reference"),
    ],
)
def test_bad_arguments_are_refused(change, wanted):
    """Each in one sentence: argument, wanted, given."""
    given = {
        "hidden": torch.zeros(2, 3),
        "targets": torch.tensor([0, 1]),
        "weight": torch.zeros(9, 3),
        "bias": torch.zeros(9),
    }
    with pytest.raises(ElmoFastError, match=wanted):
        full_softmax(**(given | change))


@doubles
@pytest.mark.parametrize("words", [2, 40])
def test_a_table_of_nan_but_for_the_target_is_nan(backend, words):
    """No comparison finds NaN: a block whose largest logit is sought must not pass for one without any."""
    hidden, targets, weight, bias = problem(words=words)
    targets.zero_()
    weight[1:] = torch.nan
    for chunk_bytes in (8 * words, 1):
        losses = full_softmax(hidden, targets, weight, bias, backend=backend, chunk_bytes=chunk_bytes)
        assert losses.isnan().all()


@needs_native
def test_the_logits_that_are_held_stay_within_chunk_bytes():
    """All 64 x 20,000 of them would take 5 MB."""
    arguments = problem(64, 4, 20_000, dtype=torch.float32)
    with torch.autograd.profiler.profile(profile_memory=True) as found:
        full_softmax(*arguments, chunk_bytes=10_000, backend="native")
    assert 0 < max(event.self_cpu_memory_usage for event in found.function_events) <= 20_000
