"""sampled_softmax: the loss by hand, gradients dense and sparse, chunks, precisions, on every backend."""

import dataclasses
import math

import pytest
import torch
from functorch.compile import make_boxed_func
from hypothesis import given, settings
from torch._dynamo.backends.common import aot_autograd
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from elmo_fast.ops import _dispatch, _triton, coalesced, expected_counts, log_uniform_sample, sampled_softmax
from elmo_fast.ops._table_rows import table_gradient
from tests.kernels.launch import recording
from tests.ops.exact import assert_exactly, exact
from tests.ops.output_layer import (
    IDS,
    SOME_IDS,
    SampledLayer,
    alone,
    check_no_word_leaves_the_table,
    every,
    leaves_of,
    losses_and_gradients,
    needs_native,
)
from tests.support.tolerances import assert_close


def draw(samples, words, seed):
    """log_uniform_sample, on the device of the test."""
    return [x.to(torch.get_default_device()) for x in log_uniform_sample(samples, words, seed=seed)]


def problem(count=7, width=6, words=40, dtype=torch.float64, samples=None):
    """Arguments of a call: some targets among the samples."""
    hidden, weight, bias = (torch.randn(size, dtype=dtype) for size in ((count, width), (words, width), (words,)))
    ids, tries = draw(samples or max(1, words // 3), words, 3)
    targets = torch.randint(0, words, (count,))
    targets[: count // 2] = ids[torch.randint(0, len(ids), (count // 2,))]
    return {"hidden": hidden, "targets": targets, "weight": weight, "bias": bias, "samples": ids, "tries": tries}


def by_hand(hidden, targets, weight, bias, samples, tries):
    """The formula, one row and one word at a time, in Python floats."""
    log_v, losses = math.log(len(weight) + 1), []

    def logit(h, k):
        p = math.log((k + 2) / (k + 1)) / log_v
        repeated = int(tries) != len(samples)
        q = -math.expm1(int(tries) * math.log1p(-p)) if repeated else p * len(samples)
        return math.fsum(a * b for a, b in zip(h, weight[k].tolist(), strict=True)) + float(bias[k]) - math.log(q)

    for h, t in zip(hidden.tolist(), targets.tolist(), strict=True):
        logits = [logit(h, t)] + [logit(h, s) for s in samples.tolist() if s != t]
        top = max(logits)
        losses.append(top + math.log(math.fsum(math.exp(x - top) for x in logits)) - logits[0])
    return torch.tensor(losses, dtype=torch.float64)


class TestSampledSoftmax(SampledLayer):
    """Accidental hits left out, expected counts."""

    loss, problem, by_hand = staticmethod(sampled_softmax), staticmethod(problem), staticmethod(by_hand)
    cases = SampledLayer.cases | {
        "one sample": lambda arguments: {"samples": torch.tensor([5]), "tries": torch.tensor(1)},
        "whole vocabulary": lambda arguments: dict(zip(("samples", "tries"), draw(40, 40, 0), strict=True)),
    }
    small = SampledLayer.small | {"tries": 1}
    refusals = [*SampledLayer.refusals, ({"correction": "keras"}, "correction must be one of")]


@every
def test_no_repeated_draw_takes_the_shortcut(backend):
    """tries == S: expected counts p S, as TensorFlow's."""
    arguments = problem(dtype=exact(backend))
    arguments["tries"] = len(arguments["samples"])
    assert_exactly("losses", sampled_softmax(**arguments, backend=backend), by_hand(**arguments), backend)


@every
def test_a_target_that_is_the_only_sample_costs_nothing(backend):
    """With its accidental hit left out no other word remains: loss and gradients are zero."""
    arguments = problem(dtype=exact(backend)) | {
        "targets": torch.full((7,), 4),
        "samples": torch.tensor([4]),
        "tries": 3,
    }
    leaves = leaves_of(arguments)
    loss = sampled_softmax(**arguments, backend=backend)
    assert torch.equal(loss, torch.zeros(7, dtype=exact(backend)))
    for gradient in torch.autograd.grad(loss.sum(), leaves):
        assert not gradient.any()


@pytest.mark.parametrize("correction", ["allennlp", "allennlp-0.9"])
@every
def test_allennlps_loss(backend, correction):
    """AllenNLP's own formula in plain torch (hits set to -10000, a term inside the logarithm, no shortcut)."""
    hidden, targets, weight, bias, samples, tries = problem(dtype=torch.float32, samples=10).values()
    term = {"allennlp": 1e-13, "allennlp-0.9": 1e-7}[correction]
    for t in (tries, torch.tensor(len(samples))):
        logs = [torch.log(expected_counts(k, t, 10, 40, correction=correction) + term) for k in (targets, samples)]
        true = (hidden * weight[targets]).sum(1) + bias[targets] - logs[0]
        others = hidden @ weight[samples].T + bias[samples] - logs[1]
        others = others.masked_fill(samples == targets[:, None], -10000.0)
        expected = -torch.cat([true[:, None], others], 1).log_softmax(1)[:, 0]
        actual = sampled_softmax(hidden, targets, weight, bias, samples, t, correction=correction, backend=backend)
        assert_close("losses", actual, expected)


@every
@pytest.mark.parametrize(("correction", "log_q"), [("allennlp", math.log(1e-13)), ("allennlp-0.9", math.log(1e-7))])
def test_a_word_so_rare_that_its_count_rounds_to_nothing(backend, correction, log_q):
    """k = 2 mod 4 above 2^24: (k + 2) / (k + 1) is 1 in float32, the count 0; the term alone is in the logarithm."""
    words = 20_000_000
    weight, bias = torch.zeros(1, 1).expand(words, 1), torch.zeros(1).expand(words)
    targets, samples = torch.tensor([0, words - 6]), torch.tensor([words - 2])
    options = {"correction": correction, "backend": backend}
    actual = sampled_softmax(torch.zeros(2, 1), targets, weight, bias, samples, 40, **options)
    common = math.log(-math.expm1(40 * math.log1p(-math.log(2) / math.log(words + 1))))
    truth = torch.tensor([math.log1p(math.exp(common - log_q)), math.log(2)])
    assert_close("losses", actual, truth)


def test_sparse_gradients_are_coalesced_before_they_are_stored():
    """The table's gradient has sorted, distinct indices and the flag; two losses merge into one such."""
    arguments = problem()
    _, weight, _ = leaves_of(arguments)
    samples, tries = log_uniform_sample(10, 40, seed=99)
    other = arguments | {"targets": arguments["targets"].flip(0), "samples": samples, "tries": tries}
    first, again, second = (sampled_softmax(**each, sparse=True).sum() for each in (arguments, arguments, other))
    assert torch.autograd.grad(first, weight)[0].is_coalesced()
    (again + second).backward()
    words = torch.cat([arguments["targets"], arguments["samples"], samples]).unique()
    assert torch.equal(coalesced(weight.grad)._indices()[0], words)


def test_coalesced_merges_what_is_not():
    """Unsorted or repeated indices are merged, not just flagged."""
    for ids in ([2, 0, 1], [0, 1, 1]):
        mixed = torch.sparse_coo_tensor(torch.tensor([ids]), torch.ones(3, 2), (4, 2), check_invariants=True)
        merged = coalesced(mixed)
        assert merged.is_coalesced()
        assert merged._indices()[0].tolist() == sorted(set(ids))
        assert torch.equal(merged.to_dense(), mixed.to_dense())


@needs_native
def test_float16_gradients_of_improbable_words_do_not_underflow():
    """Targets far ahead leave the others 1e-6 each, where float16 has steps of 6e-8; errors stay near its 2^-11."""
    arguments = problem(60, 16, 6000, dtype=torch.float32)
    arguments["hidden"] /= 8
    arguments["bias"] /= 8
    arguments["bias"][arguments["targets"]] += 12
    others = arguments["samples"][~torch.isin(arguments["samples"], arguments["targets"])]
    truth = losses_and_gradients(sampled_softmax, arguments, torch.float64)["weight"][others]
    options = {"precision": "float16", "backend": "native"}
    actual = losses_and_gradients(sampled_softmax, arguments, torch.float32, **options)["weight"][others]
    assert (actual - truth).norm() / truth.norm() < 2e-3


@every
def test_a_small_loss_keeps_its_digits(backend):
    """A target 60 ahead of the others: float32 still distinguishes the loss e^-60 from zero."""
    if backend == "reference":
        pytest.skip("the definition in plain torch subtracts two sums of like size")
    hidden, weight = torch.ones(1, 1), torch.tensor([[60.0], [0.0], [0.0]])
    loss = sampled_softmax(hidden, torch.tensor([0]), weight, torch.zeros(3), torch.tensor([1]), 1, backend=backend)
    q = expected_counts(torch.tensor([0, 1]), 1, 1, 3)
    torch.testing.assert_close(loss.item(), math.exp(-60) * float(q[0] / q[1]), rtol=1e-4, atol=0)


@needs_native
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_logits_stay_within_the_bound(precision):
    """The kernel's saved tensors: all probabilities if they fit into chunk_bytes, none otherwise."""
    hidden, targets, weight, bias, samples, _ = problem(50, 8, 100, dtype=torch.float32, samples=30).values()
    arguments = hidden, targets, weight, bias, samples, torch.tensor(30), "tensorflow", torch.zeros(80), False
    for chunk_bytes, kept in ((50 * 30 * 4, 50), (50 * 30 * 4 - 1, 0)):
        _, _, saved = torch.ops.elmo_fast.sampled_softmax(*arguments, chunk_bytes, precision, True)
        assert saved[1].shape == (kept, 30)
    assert torch.ops.elmo_fast.sampled_softmax(*arguments, 2**25, precision, False)[2] == []


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # numpy's, in the interpreter, of the NaNs that are expected
@alone
@settings(max_examples=30, deadline=None)
@given(targets=SOME_IDS, samples=SOME_IDS, tries=IDS)
def test_no_word_leaves_the_table(backend, targets, samples, tries):
    run = _dispatch.registered_op("sampled_softmax", backend)

    def call(*arguments):
        number = torch.tensor(min(max(1, abs(tries)), 2**62))
        return run(*arguments, number, "tensorflow", None, True, 2**20, "float32", True)[0]

    check_no_word_leaves_the_table(call, targets, samples)


def test_a_sparse_gradient_waits_for_no_device():
    """Off the CPU entries stay as they are; `coalesce`, which would read how many are distinct, is never called."""
    words, rows = torch.zeros(5, dtype=torch.int64, device="meta"), torch.zeros(5, 3, device="meta")
    with torch.device("meta"):
        gradient = table_gradient(torch.Size((9, 3)), words, rows, True)
    assert not gradient.is_coalesced()
    assert gradient._nnz() == 5


class _Largest(TorchDispatchMode):
    """The bytes of the largest tensor made within it."""

    most = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        tensors = [each for each in torch.utils._pytree.tree_leaves(out) if isinstance(each, torch.Tensor)]
        self.most = max([self.most, *(each.untyped_storage().nbytes() for each in tensors)])
        return out


@alone
@pytest.mark.parametrize("count", [2560, 20480])
def test_no_logits_exist_on_a_gpu(backend, count):
    """Forward and backward at the original ELMo's shapes, on fake GPUs: no tensor is larger than the rows' gradient,
    or than `chunk_bytes`."""
    width, words, size = 512, 793_471, 8192
    with FakeTensorMode(), torch.device("cuda"):
        of = [torch.empty(n) for n in ((count, width), (words, width), (words,))]
        ids = [torch.empty(n, dtype=torch.int64) for n in ((count,), (size,), ())]
        with recording(), _Largest() as actual:
            hidden, weight, _ = of
            forward, backward = (_triton.python_functions[f"sampled_softmax{part}"] for part in ("", "_backward"))
            options = "tensorflow", None, False, 32 * 2**20, "bfloat16"
            results = forward(hidden, ids[0], *of[1:], *ids[1:], *options, True)
            backward(torch.empty(count), *results, hidden, weight, *options[2:])
    assert actual.most <= max(32 * 2**20, 4 * (count + size) * width) < 4 * count * size


@alone
@pytest.mark.skipif(not _triton.INTERPRETED, reason="only the interpreter looks for overflow")
def test_columns_may_lie_further_apart_than_32_bits_count(backend, monkeypatch):
    """A transposed table of 2^30 words. No row is inside, so that nothing is read and addresses are computed alone."""
    from triton.runtime import interpreter

    from elmo_fast.ops.vocabulary_losses.kernels import (
        vocabulary_loss_backward_targets_kernel,
        vocabulary_loss_forward_gather_kernel,
    )

    builder = interpreter.interpreter_builder
    monkeypatch.setattr(builder, "options", dataclasses.replace(builder.options, debug=True))
    x, ids, strides, sizes = torch.zeros(1), torch.zeros(1, dtype=torch.int64), (1, 2**30), {"ROWS": 2, "WIDTH": 16}
    table, law = (x, *strides, x, 1), None
    _triton.launch(
        vocabulary_loss_forward_gather_kernel, (1,), ids, 1, x, *strides, *table, law, x, x, ids, 0, 1, 1, 3,
        CORRECTION="none", TERM=0.0, **sizes,
    )  # fmt: skip
    _triton.launch(
        vocabulary_loss_backward_targets_kernel, (1,), x, 1, x, 1, x, ids, x, *strides, x, x, x, 0, 3, **sizes
    )


@needs_native
def test_a_compiled_sparse_gradient_is_not_coalesced():
    """torch.compile's default, Inductor, fails at aten._coalesce; the rows are the same."""
    graphs, draw = [], torch.Generator().manual_seed(0)

    def keep(graph, _):
        graphs.append(graph)
        return make_boxed_func(graph.forward)

    def loss(hidden, weight, bias):
        targets, samples = torch.tensor([3, 0, 3]), torch.tensor([1, 3])
        return sampled_softmax(hidden, targets, weight, bias, samples, 4, sparse=True, backend="native").sum()

    tensors = [torch.randn(*shape, generator=draw).requires_grad_() for shape in ((3, 4), (9, 4), (9,))]
    compiled = torch.compile(loss, fullgraph=True, backend=aot_autograd(fw_compiler=keep, bw_compiler=keep))
    of_compiled, expected = (torch.autograd.grad(run(*tensors), tensors) for run in (compiled, loss))
    assert len(graphs) == 2
    assert not any("coalesce" in str(node.target) for graph in graphs for node in graph.graph.nodes)
    for actual, wanted in zip(of_compiled, expected, strict=True):
        assert torch.equal(actual.to_dense(), wanted.to_dense())
