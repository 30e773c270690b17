"""Packed copies follow every change of the weights that the rule can see (ops/_packed.py), whoever makes it.

The weights have more numbers than the sample, and an edit of one number spares the sample.
"""

import copy
import functools
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy
import pytest
import torch
from torch import nn

from elmo_fast import ops
from elmo_fast.modules.projected_lstm import ProjectedLSTM
from elmo_fast.ops import LSTMWeights, PackedWeights, _native
from tests.support.backends import backends, needs

pytestmark = pytest.mark.skipif(_native.C is None, reason="packs in C++")
PLACE = 1234  # of one edit; the sample of [80, 64] is at i * 5119 // 255
SHAPE = (80, 64)
X = torch.linspace(-1, 1, 5 * SHAPE[1]).view(5, -1)
LETTERS = torch.linspace(-1, 1, 320).view(20, 16)
OFFSETS = torch.zeros(64), torch.linspace(-1, 1, 128), torch.zeros(160), torch.ones(160)


@functools.cache
def constants(device):
    """Return what the ops read besides weights, the same tensors in every call, as copies are of these too."""
    return X.to(device), LETTERS.to(device), [each.to(device) for each in OFFSETS]


def of_highway(weights, precision, **packed):
    layer, projection = weights
    x, _, biases = constants(layer.device)
    return ops.highway(x, [layer], biases[1:2], projection, None, precision=precision, **packed)


def of_char_cnn(weights, precision, **packed):
    _, letters, biases = constants(weights[0].device)
    ids = torch.arange(54, device=letters.device).view(6, 9) % 20
    return ops.char_cnn(ids, letters, weights, biases[:1], precision=precision, **packed)


def of_projected_lstm(weights, precision, **packed):
    ih, hh, hr = weights
    x, _, biases = constants(ih.device)
    both = [LSTMWeights(ih, hh, bias, hr) for bias in biases[2:]]
    x = x[:, :24].expand(3, 5, 24)
    return ops.projected_lstm([x, x], both, precision=precision, **packed)[0]


OPS = {
    of_highway: [(128, 64), SHAPE], of_char_cnn: [(64, 16, 5)], of_projected_lstm: [(160, 24), (160, 32), (32, 40)],
}  # fmt: skip


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "float16", "int8"])
@pytest.mark.parametrize("backend", backends("highway"))
@pytest.mark.parametrize("op", OPS)
def test_an_op_gives_the_bits_that_it_gives_without_copies(op, backend, precision):
    """Each weight of each op is copied once, and again when one number of it was changed in place."""
    needs("highway", backend, precision)
    op, packed = functools.partial(op, backend=backend), PackedWeights()
    weights = [frozen(shape) for shape in OPS[op.func]]
    before = op(weights, precision)
    assert torch.equal(op(weights, precision, packed=packed), before)
    for weight in weights:
        (kept,) = packed._copies.values()
        assert torch.equal(op(weights, precision, packed=packed), op(weights, precision))
        assert next(iter(packed._copies.values())) is kept
        one(weight)
        assert torch.equal(op(weights, precision, packed=packed), op(weights, precision))
    assert not torch.equal(op(weights, precision), before)


def frozen(shape=SHAPE):
    return nn.Parameter(torch.randn(shape) / 6, requires_grad=False)


def trained():
    return nn.Parameter(torch.randn(SHAPE) / 6)


def buffer():
    return torch.randn(SHAPE) / 6


def inference_tensor():
    with torch.inference_mode():
        return torch.randn(SHAPE) / 6


def part_of_a_larger_memory():
    """As FSDP holds it."""
    return nn.Parameter(torch.randn(2 * SHAPE[0], SHAPE[1])[: SHAPE[0]], requires_grad=False)


def in_shared_memory():
    return nn.Parameter((torch.randn(SHAPE) / 6).share_memory_(), requires_grad=False)


def of_an_array():
    return nn.Parameter(torch.from_numpy(numpy.full(SHAPE, 0.1, numpy.float32)), requires_grad=False)


def one(weight, by=3.0):
    with torch.no_grad():
        weight.view(-1)[PLACE] += by


def one_in_inference_mode(weight):
    with torch.inference_mode():
        weight.view(-1)[PLACE] += 3


def one_through_data(weight):
    weight.data.view(-1)[PLACE] += 3


def one_through_numpy(weight):
    weight.detach().numpy().reshape(-1)[PLACE] += 3


def one_through_dlpack(weight):
    torch.from_dlpack(weight.detach()).view(-1)[PLACE] += 3


def all_through_data(weight):
    weight.data.mul_(3)


def stepped(kind, **options):
    def step(weight):
        weight.requires_grad_()
        optimizer = kind([weight], lr=0.5, **options)
        weight.grad = torch.zeros_like(weight)
        weight.grad.view(-1)[PLACE] = 1.0
        optimizer.step()

    return step


def loaded(weight):
    module = nn.Module()
    module.weight = weight
    module.load_state_dict({"weight": torch.randn(SHAPE)})


def other_memory(weight):
    weight.data = torch.randn(SHAPE)


def swapped(weight):
    torch.utils.swap_tensors(weight, frozen())


SEEN = [
    *[(make, one) for make in (frozen, trained, buffer, part_of_a_larger_memory, in_shared_memory, of_an_array)],
    *[(make, one_in_inference_mode) for make in (frozen, inference_tensor)],
    *[(make, one_through_data) for make in (trained, part_of_a_larger_memory, in_shared_memory, of_an_array)],
    (trained, one_through_dlpack),
    *[(make, one_through_numpy) for make in (frozen, trained, buffer)],
    *[(frozen, each) for each in (all_through_data, loaded, other_memory, swapped)],
    (trained, stepped(torch.optim.SGD, fused=True)), (trained, stepped(torch.optim.Adam)), (trained, loaded),
]  # fmt: skip


def project(weight, packed=None):
    with torch.no_grad():
        return ops.highway(X, [], [], weight, None, packed=packed)


@pytest.mark.parametrize(("make", "change"), SEEN)
def test_a_change_shows(make, change):
    """Bit-equal to a call without copies, which differs from the one before."""
    weight, packed = make(), PackedWeights()
    weight.run = run = lambda: project(weight, packed)
    before, kept = run(), packed._copies.get("float32")
    run()
    assert packed._copies.get("float32") is kept
    change(weight)
    assert torch.equal(run(), project(weight))
    assert not torch.equal(project(weight), before)


@pytest.mark.parametrize("change", [one_through_data, one_through_dlpack])
def test_one_number_of_a_frozen_weight_written_past_the_counter_shows_after_refresh_weights(change):
    """What the rule cannot see (docs/compile_and_export.md)."""
    weight, packed = frozen(), PackedWeights()
    before = project(weight, packed)
    change(weight)
    assert torch.equal(project(weight, packed), before)
    ops.refresh_weights()
    assert torch.equal(project(weight, packed), project(weight))


def test_another_parameter_is_never_taken_for_the_first():
    """Not even with its address, shape, count of changes and sampled values."""
    weight, packed = frozen(), PackedWeights()
    project(weight, packed)
    other = nn.Parameter(weight.data, requires_grad=False)
    one_through_data(other)
    assert (other.data_ptr(), other._version) == (weight.data_ptr(), weight._version)
    assert torch.equal(project(other, packed), project(other))


def test_training_packs_for_itself():
    weight, packed = trained(), PackedWeights()
    ops.highway(X, [], [], weight, None, packed=packed).sum().backward()
    assert not packed._copies


def test_a_weight_that_is_not_contiguous_is_packed_at_each_call():
    """A digest of its memory would read more, or other numbers."""
    packed = PackedWeights()
    for weight in (torch.randn(1, 64).expand(*SHAPE), torch.randn(80, 128)[:, :64], torch.randn(64, 80).t()):
        assert torch.equal(project(weight, packed), project(weight))
        assert not packed._copies


class Doubled(nn.Module):
    def forward(self, weight):
        return 2 * weight


def test_a_module_that_is_copied_pickled_transformed_or_parametrized():
    """Its copies are its own: neither saved nor pickled, nor used for other weights."""
    x = X[:, :24].expand(3, 5, 24)
    lstm = ProjectedLSTM(24, 32, 40).requires_grad_(False)
    expected, _ = lstm(x)
    assert lstm._packed._copies
    pickled = pickle.dumps(lstm)
    assert len(pickled) < 1.2 * sum(weight.nbytes for weight in lstm.parameters())
    for other in (copy.deepcopy(lstm), pickle.loads(pickled)):
        assert not other._packed._copies
        assert torch.equal(other(x)[0], expected)
    state = {name: weight + 1e-3 for name, weight in lstm.state_dict().items()}
    different, _ = torch.func.functional_call(lstm, state, (x,))
    loaded = copy.deepcopy(lstm)
    loaded.load_state_dict(state)
    assert torch.equal(different, loaded(x)[0])
    assert torch.equal(lstm(x)[0], expected)
    assert torch.equal(torch.func.vjp(lambda x: lstm(x)[0], x)[0], expected)
    torch.func.grad(lambda state: torch.func.functional_call(lstm, state, (x,))[0].sum())(state)
    with torch.no_grad(), torch.inference_mode():
        assert torch.equal(torch.func.functional_call(lstm, state, (x,))[0], different)
    loaded.load_state_dict({name: weight.clone() for name, weight in state.items()}, assign=True)
    loaded.requires_grad_(False)
    assert torch.equal(loaded(x)[0], different)
    loaded.double()
    assert torch.equal(loaded(x.double())[0], copy.deepcopy(loaded)(x.double())[0])
    nn.utils.parametrize.register_parametrization(lstm.state_linearity, "weight", Doubled())
    assert torch.equal(lstm(x)[0], lstm(x)[0])
    with torch.no_grad():
        lstm.state_linearity.parametrizations.weight.original.view(-1)[PLACE] += 3
    assert torch.equal(lstm(x)[0], copy.deepcopy(lstm)(x)[0])


def test_a_compiled_program_follows_its_weights():
    """A copy would be a constant in it: it packs at each call."""
    x = X[:, :24].expand(3, 5, 24)
    lstm = ProjectedLSTM(24, 32, 40).requires_grad_(False)
    lstm(x)
    program = torch.compile(lstm, fullgraph=True, backend="aot_eager")
    for _ in range(2):
        one(lstm.state_linearity.weight)
        assert torch.equal(program(x)[0], lstm(x)[0])


@pytest.mark.parametrize("make", [frozen, trained, of_an_array])
def test_eight_readers_beside_a_writer(make):
    """While eight threads run the op, one changes the weight; after the change all of them see it."""
    weight, packed, stop = make(), PackedWeights(), threading.Event()

    def go_on():
        while not stop.is_set():
            project(weight, packed)

    with ThreadPoolExecutor(16) as threads:
        busy = [threads.submit(go_on) for _ in range(8)]
        try:
            for change in [one, one_through_numpy, loaded, other_memory] * 2:
                change(weight)
                actual = [each.result() for each in [threads.submit(project, weight, packed) for _ in range(8)]]
                expected = project(weight)
                assert all(torch.equal(each, expected) for each in actual)
        finally:
            stop.set()
        for each in busy:
            each.result()
