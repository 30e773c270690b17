"""sampled_softmax in Triton, beyond what every backend shares: addresses, scale, memory, no host sync."""

import math
import weakref

import pytest
import torch
from hypothesis import given, settings
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from elmo_fast.ops import _triton
from elmo_fast.ops._table_rows import table_gradient
from tests.backends import device_of
from tests.kernels.launch import recording
from tests.ops.output_layer import IDS, SOME_IDS, check_no_word_leaves_the_table

if _triton.WHY_NOT is not None:
    pytest.skip(_triton.WHY_NOT, allow_module_level=True)

from elmo_fast.ops import _softmax_triton
from elmo_fast.ops.sampled_softmax import triton
from elmo_fast.ops.sampled_softmax.op import SampledSoftmaxArguments


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # numpy's, in the interpreter, of the NaNs that are wanted
@settings(max_examples=30, deadline=None)
@given(targets=SOME_IDS, samples=SOME_IDS, tries=IDS)
def test_no_word_leaves_the_table(targets, samples, tries):
    def call(*given):
        options = min(max(1, abs(tries)), 2**62), "tensorflow", True, 2**20, "float32"
        return triton.run(SampledSoftmaxArguments(*given, *options))

    check_no_word_leaves_the_table(call, targets, samples)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("largest", [1e-45, 1e-39, 2.0**-126, 0.75, 1.0, 1.5, 65504.0, 3e38, math.inf, math.nan, 0.0])
def test_the_scale_is_the_power_of_two_that_fits(largest):
    """2^14 / 2^ceil(log2 largest), and its inverse; finite and positive for every input."""
    from elmo_fast.ops._softmax_triton import scale_of

    grad = torch.tensor([0.0, -largest, largest / 3], device=device_of("triton"))
    scale, inverse = scale_of(grad, torch.float16).tolist()
    assert 0 < scale * inverse == 1
    if 2.0**-100 < largest < math.inf:
        assert scale == 2.0 ** (14 - math.ceil(math.log2(largest)))


def test_a_sparse_gradient_waits_for_no_device():
    """Off the CPU entries stay as they are; `coalesce`, which would read how many are distinct, is never called."""
    words, rows = torch.zeros(5, dtype=torch.int64, device="meta"), torch.zeros(5, 3, device="meta")
    with torch.device("meta"):
        gradient = table_gradient(torch.Size((9, 3)), words, rows, True)
    assert not gradient.is_coalesced()
    assert gradient._nnz() == 5


def both_passes(hidden, targets, weight, bias, samples, tries, chunk_bytes, precision):
    """What the two ops run, past the dispatcher."""
    forward, backward = (_triton.undispatched(f"sampled_softmax{part}") for part in ("", "_backward"))
    saved = forward(hidden, targets, weight, bias, samples, tries, "tensorflow", False, chunk_bytes, precision)
    backward(torch.empty(len(hidden)), *saved, weight, False, chunk_bytes)


class _Peak(TorchDispatchMode):
    """The most bytes that tensors made within it took at one time."""

    def __init__(self):
        super().__init__()
        self.now = self.most = 0
        self.seen = weakref.WeakValueDictionary()

    def _freed(self, size):
        self.now -= size

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for tensor in torch.utils._pytree.tree_leaves(out):
            if isinstance(tensor, torch.Tensor):
                storage = tensor.untyped_storage()
                if id(storage) not in self.seen:
                    self.seen[id(storage)] = storage
                    weakref.finalize(storage, self._freed, storage.nbytes())
                    self.now += storage.nbytes()
                    self.most = max(self.most, self.now)
        return out


@pytest.mark.parametrize("count", [2560, 20480])
def test_memory_is_a_tenth_of_eagers(count):
    """Bytes beside inputs and gradients, forward and backward, at the original ELMo's shapes, counted on fake GPUs."""
    width, words, size = 512, 793_471, 8192

    def inputs():
        of = [torch.empty(n) for n in ((count, width), (words, width), (words,))]
        return *of, torch.empty(count, dtype=torch.int64), torch.empty(size, dtype=torch.int64)

    gradients = 4 * (count * width + (count + size) * (width + 1))
    with FakeTensorMode(), torch.device("cuda"):
        hidden, weight, bias, targets, samples = inputs()
        tries = torch.empty((), dtype=torch.int64)
        with _Peak() as eager, torch.no_grad():  # what autograd keeps is kept by name; its backward is written out
            rows = weight.index_select(0, torch.cat([targets, samples]))
            true_rows, sample_rows = rows.split([count, size])
            true, sampled = (hidden * true_rows).sum(1), hidden @ sample_rows.t()
            sampled = sampled.masked_fill(targets.unsqueeze(1) == samples.unsqueeze(0), -1e4)
            logits = torch.cat([true.unsqueeze(1), sampled], 1)
            probabilities = torch.log_softmax(logits, 1)
            d_logits = probabilities.exp()
            d_true, d_sampled = d_logits.split([1, size], 1)
            d_hidden, d_rows = d_sampled @ sample_rows + d_true * true_rows, d_sampled.t() @ hidden
            d_true_rows = d_true * hidden
        with recording(), _Peak() as ours:
            both_passes(hidden, targets, weight, bias, samples, tries, 32 * 2**20, "bfloat16")
    assert eager.most > 3 * count * size * 4
    assert d_hidden.shape == d_true_rows.shape
    assert d_rows.shape == sample_rows.shape
    assert ours.most > gradients
    assert ours.most - gradients <= (eager.most - gradients) / 10
    if count == 20480:
        assert ours.most <= eager.most / 10


def test_a_chunk_is_whole_tiles_within_the_bound():
    """All chunks of like size; at least one tile, at most what fits."""
    assert _softmax_triton.chunk_rows(2560, 8192, 2, 32 * 2**20, 128) == 1280
    assert _softmax_triton.chunk_rows(2561, 8192, 2, 32 * 2**20, 128) == 1408
    assert _softmax_triton.chunk_rows(20480, 8192, 2, 32 * 2**20, 128) == 2048
    assert _softmax_triton.chunk_rows(100, 8192, 2, 1, 128) == 128
    assert _softmax_triton.chunk_rows(0, 8192, 2, 1, 16) == 16
