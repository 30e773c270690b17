"""Prepared copies of weights follow every change of the weights, whoever makes it and however.

The weights have more numbers than the cache samples, and an edit of one number spares all samples.
"""

import gc
import os
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy
import pytest
import torch

from elmo_fast import ops
from elmo_fast.ops import LSTMWeights, _native, _weights

pytestmark = pytest.mark.skipif(_native.C is None, reason="the cache of packed weights is in C++")
PLACE = 1234  # of one edit; the samples of [80, 64] are at i * 5119 // 255


def projection(precision):
    x = torch.randn(5, 64)
    return (80, 64), lambda w: ops.highway(x, [], [], w, None, precision=precision)


def layer(precision):
    x, bias = torch.randn(5, 64), torch.randn(128)
    return (128, 64), lambda w: ops.highway(x, [w], [bias], precision=precision)


def filters(precision):
    ids, table, bias = torch.randint(0, 20, (6, 9)), torch.randn(20, 16), torch.randn(64)
    return (64, 16, 5), lambda w: ops.char_cnn(ids, table, [w], [bias], precision=precision)


def recurrent(kind):
    def of_precision(precision):
        shapes = {"weight_ih": (160, 24), "weight_hh": (160, 32), "bias": (160,), "weight_hr": (32, 40)}
        shapes["weight_hr"] = (32, 40)
        arguments = {name: torch.randn(shape) / 6 for name, shape in shapes.items()}
        x = torch.randn(3, 4, 24)

        def run(w):
            return ops.projected_lstm(
                [x], [LSTMWeights(**(arguments | {kind: w}))], reverse=[False], precision=precision
            )[0]

        return shapes[kind], run

    return of_precision


OPS = {
    "projection": projection, "layer": layer, "filters": filters,
    **{kind: recurrent(kind) for kind in ("weight_ih", "weight_hh", "weight_hr")},
}  # fmt: skip
COMBINATIONS = [
    (name, precision)
    for name in OPS
    for precision in ("float32", "bfloat16", "float16", "int8")
    if (name, precision) != ("filters", "int8")
]


def parameter(shape):
    return torch.nn.Parameter(torch.randn(shape) / 6)


def frozen(shape):
    return torch.nn.Parameter(torch.randn(shape) / 6, requires_grad=False)


def at_the_front(shape):
    """A small view at the front of a large buffer, which others may write to."""
    count = torch.Size(shape).numel()
    buffer = torch.randn(400 * count) / 6
    weight = buffer[:count].view(shape)
    weight.buffer = buffer
    return weight


def without_counter(shape):
    with torch.inference_mode():
        return torch.randn(shape) / 6


def one(weight, by=3.0):
    weight.view(-1)[PLACE] += by


def fused(kind):
    def step(weight):
        optimizer = kind([weight], lr=0.5, fused=True)
        weight.grad = torch.zeros_like(weight)
        weight.grad.view(-1)[PLACE] = 1.0
        optimizer.step()

    return step


def edit_without_counter(weight):
    with torch.inference_mode():
        one(weight)


def edit_under_no_grad(weight):
    with torch.no_grad():
        one(weight)


def edit_data(weight):
    one(weight.data)


def scale_data(weight):
    weight.data.mul_(3)


def edit_second_parameter(weight):
    """The second one has a counter of its own; it is cached, as for a module that shares weights."""
    weight.second = torch.nn.Parameter(weight.data, requires_grad=weight.requires_grad)
    with torch.no_grad():
        one(weight.second)


def edit_numpy(weight):
    weight.array = weight.detach().numpy()
    weight.array.reshape(-1)[PLACE] += 3


def thaw_train_freeze(weight):
    weight.requires_grad_()
    fused(torch.optim.SGD)(weight)
    weight.requires_grad_(False)


def data_while_trained(weight):
    """A pass sees that the weight is trained; an optimizer writes past the counter."""
    weight.requires_grad_()
    with torch.no_grad():
        weight.run(weight)
    edit_data(weight)
    weight.requires_grad_(False)


def data_while_shared(weight):
    """A pass sees a second owner, who writes and goes."""
    other = weight.data
    weight.run(weight)
    one(other)


def edit_dlpack(weight):
    weight.array = numpy.from_dlpack(weight)
    one(torch.from_numpy(weight.array))


def from_numpy(shape):
    array = numpy.random.default_rng(0).standard_normal(tuple(shape), numpy.float32) / 6
    weight = torch.nn.Parameter(torch.from_numpy(array), requires_grad=False)
    weight.array = array
    return weight


def from_buffer(shape):
    array = bytearray((torch.randn(shape) / 6).numpy().tobytes())
    weight = torch.nn.Parameter(torch.frombuffer(array, dtype=torch.float32).view(shape), requires_grad=False)
    weight.array = numpy.frombuffer(array, numpy.float32)
    return weight


def assigned(shape):
    """A weight that load_state_dict(assign=True) set from an array."""
    module = torch.nn.Module()
    module.weight = frozen(shape)
    weight = from_numpy(shape)
    module.load_state_dict({"weight": weight.detach()}, assign=True)
    module.weight.array = weight.array
    return module.weight


def rewrapped(weight):
    """Another Parameter takes its place, with a counter that one write brings to where the first one's was."""
    count, other = weight._version, torch.nn.Parameter(weight.data, requires_grad=False)
    with torch.no_grad():
        one(other)
        while other._version < count:
            one(other, 0.0)
    return other


def swapped_away_and_back(weight):
    """Written while the weight had other memory, by one who is gone."""
    before, weight.data = weight.data, weight.data.clone()
    weight.run(weight)
    one(before)
    weight.data = before


def edit_array(weight):
    weight.array.reshape(-1)[PLACE] += 3


def load(weight):
    with torch.no_grad():
        weight.copy_(torch.randn(weight.shape))


def replace_data(weight):
    weight.data = torch.randn(weight.shape)


WAYS = {
    "inference tensor": (without_counter, edit_without_counter),
    "fused SGD": (parameter, fused(torch.optim.SGD)),
    "fused Adam": (parameter, fused(torch.optim.Adam)),
    "fused Adagrad": (parameter, fused(torch.optim.Adagrad)),
    "second Parameter": (parameter, edit_second_parameter),
    "second Parameter, frozen": (frozen, edit_second_parameter),
    "front of a buffer, one number": (at_the_front, edit_data),
    "front of a buffer, all": (at_the_front, scale_data),
    ".data of a trained one": (parameter, edit_data),
    ".data of a frozen one, all": (frozen, scale_data),
    "NumPy, frozen": (frozen, edit_numpy),
    "DLPack, frozen": (frozen, edit_dlpack),
    "of an array": (from_numpy, edit_array),
    "of a buffer": (from_buffer, edit_array),
    "of an array, assigned": (assigned, edit_array),
    ".data while trained, frozen again": (frozen, data_while_trained),
    ".data while shared, alone again": (frozen, data_while_shared),
    "another Parameter": (frozen, rewrapped),
    "other memory and back": (frozen, swapped_away_and_back),
    "counted": (frozen, edit_under_no_grad),
    "thawed, trained, frozen": (frozen, thaw_train_freeze),
    "loaded": (frozen, load),
    "other memory": (frozen, replace_data),
}


def without_cache(run, weight):
    _native.C.clear_packed()
    return run(weight.detach().clone())


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("op", "precision"), COMBINATIONS)
def test_an_op_sees_weights_that_changed(op, precision, way):
    """Bit-equal to the op on a copy of the changed weights, in inference, where packed copies are cached."""
    make, change = WAYS[way]
    with torch.no_grad():
        shape, run = OPS[op](precision)
        weight = make(shape)
        weight.run = run
        before = [run(weight).clone() for _ in range(3)]
        assert torch.equal(before[0], before[1])
        assert torch.equal(before[0], before[2])
    weight = change(weight) if change is rewrapped else (change(weight), weight)[1]
    with torch.no_grad():
        actual = run(weight)
        assert torch.equal(actual, without_cache(run, weight))
        assert not torch.equal(actual, before[0])


def share(weight):
    weight.share_memory_()


def shrink(weight):
    weight.untyped_storage().resize_(0)


@pytest.mark.parametrize("make", [frozen, parameter])
@pytest.mark.parametrize("move", [share, shrink])
def test_a_copy_of_memory_that_a_living_storage_left_is_not_used(move, make):
    """Weights that come to lie where others lay, with one number changed and as many changes counted."""
    with torch.no_grad():
        shape, run = projection("float32")
        moved, reused = [], 0
        while len(moved) < 50 or (not reused and len(moved) < 1000):  # the allocator may be slow to reuse memory
            weight = make(shape)
            values = weight.detach().clone()
            one(weight, 0.0)
            run(weight)
            address, version = weight.data_ptr(), weight._version
            move(weight)
            moved.append(weight)
            other = values.clone()
            one(other)
            assert other._version == version
            reused += other.data_ptr() == address
            assert torch.equal(run(other), without_cache(run, other))
            run(other)
            if move is share:
                assert torch.equal(run(weight), without_cache(run, weight))
        assert reused > 0


def test_frozen_weights_that_nothing_shares_are_trusted_and_others_hashed():
    """A stamp is what spares a look at all values at every call."""
    weight = frozen((80, 64))
    (stamp,) = _weights.stamps(weight)
    assert stamp > 0
    assert _weights.stamps(weight, None, weight) == [stamp, stamp]
    other = frozen((80, 64))
    assert _weights.stamps(other) not in ([0], [stamp])
    second = torch.nn.Parameter(weight.data, requires_grad=False)
    assert _weights.stamps(weight, second) == [0, 0]
    del second
    (after,) = _weights.stamps(weight)
    assert after not in (0, stamp)  # the second one may have written
    assert _weights.stamps(weight) == [after]
    assert _weights.stamps(parameter((3,)), without_counter((3,)), at_the_front((3, 4))) == [0, 0, 0]
    weight.share_memory_()
    assert _weights.stamps(weight) == [0]


def test_stamps_survive_ops_in_other_threads():
    """An op in another thread owns its weights too, like a DLPack capsule; a pass of several threads hashes nothing."""
    weight, beside = frozen((512, 512)), threading.Event()
    x = torch.randn(256, 512)

    def run():
        with torch.no_grad():
            return ops.highway(x, [], [], weight, None)

    def go_on():
        while not beside.is_set():
            run()

    run()
    with ThreadPoolExecutor(3) as threads:
        busy = [threads.submit(go_on) for _ in range(3)]
        try:
            found = [_weights.stamps(weight) for _ in range(2000)]
        finally:
            beside.set()
        for each in busy:
            each.result()
    # A switch of threads just before an op begins costs a stamp; counting its owners would cost almost every one.
    assert sum(each == [0] for each in found) < 100
    assert len({each[0] for each in found}) < 100
    assert _weights.running.count == 0


def test_training_caches_nothing_and_copies_die_with_their_weights():
    _native.C.clear_packed()
    shape, run = layer("float32")
    weight = parameter(shape)
    run(weight).sum().backward()
    assert _native.C.packed_count() == 0
    with torch.no_grad():
        run(weight)
    assert _native.C.packed_count() == 1
    del weight
    gc.collect()
    assert _native.C.packed_count() == 0


def test_a_weight_that_is_not_dense_is_not_cached():
    """A digest would read more than its memory, or make a copy first."""
    _native.C.clear_packed()
    shape, run = layer("float32")
    row, wide = torch.randn(1, shape[1]), torch.randn(shape[0], 2 * shape[1])
    for weight in (row.expand(*shape), wide[:, : shape[1]]):
        actual = run(weight)
        assert _native.C.packed_count() == 0
        assert torch.equal(actual, run(weight.clone()))
        _native.C.clear_packed()


class Stream:
    """A stream that remembers for what its work waits."""

    def __init__(self, log, name):
        self.log, self.name = log, name

    def record_event(self):
        return f"{self.name}'s event"

    def wait_event(self, event):
        self.log.append(f"{self.name} waits for {event}")

    def wait_stream(self, other):
        self.log.append(f"{self.name} waits for {other.name}")


def test_a_copy_on_a_second_stream_waits_for_the_first(monkeypatch):
    """A reader waits once for the writing, the next writer for the readers and the last writer."""
    log = []
    first, second = Stream(log, "first"), Stream(log, "second")
    current = [first]
    monkeypatch.setattr(_weights, "_stream", lambda tensor: current[0])
    monkeypatch.setattr(torch.Tensor, "record_stream", lambda copy, stream: log.append(f"memory used by {stream.name}"))
    weight = torch.randn(5)

    def use(stream):
        current[0], log[:] = stream, []
        assert torch.equal(_weights.rounded_copy(weight, torch.float16), weight.half())
        return list(log)

    assert use(first) == use(first) == []
    assert use(second) == ["second waits for first's event", "memory used by second"]
    assert use(second) == use(first) == []
    weight.add_(1)
    assert use(first) == ["first waits for second"]
    assert use(second) == ["second waits for first's event", "memory used by second"]
    weight.add_(1)
    assert use(second) == ["second waits for first"]
    log.clear()
    current[0] = first
    entries = _weights.fresh_roundings([weight])
    assert _weights.roundings_of(entries).keys() == {id(weight)}
    assert log == ["first waits for second"]
    _weights.mark_rounded(entries)
    assert use(second) == ["second waits for first's event", "memory used by second"]


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.Adam])
def test_a_gpus_copy_follows_fused_optimizers_and_second_parameters(kind):
    """The GPU's cache hashes nothing: fused steps are made to count, shared memory is copied each time."""
    weight = parameter((80, 64))
    _weights.rounded_copy(weight, torch.float16)
    fused(kind)(weight)
    assert torch.equal(_weights.rounded_copy(weight, torch.float16), weight.detach().half())
    edit_second_parameter(weight)
    assert torch.equal(_weights.rounded_copy(weight, torch.float16), weight.detach().half())


THREADED = [
    "fused SGD", "second Parameter", "second Parameter, frozen", "front of a buffer, all", ".data of a trained one",
    "NumPy, frozen", "thawed, trained, frozen", "loaded", "other memory",
]  # fmt: skip


@pytest.mark.parametrize("way", THREADED)
def test_eight_readers_beside_a_writer(way):
    """While eight threads run the op, one changes the weight; after the change all of them see it."""
    make, change = WAYS[way]
    shape, run = projection("float32")
    weight, stop = make(shape), threading.Event()

    def read():
        with torch.no_grad():
            return run(weight)

    def go_on():
        while not stop.is_set():
            read()

    with ThreadPoolExecutor(16) as threads:
        busy = [threads.submit(go_on) for _ in range(8)]
        try:
            for _ in range(5):
                change(weight)
                actual = [each.result() for each in [threads.submit(read) for _ in range(8)]]
                with torch.no_grad():
                    expected = run(weight.detach().clone())
                assert all(torch.equal(each, expected) for each in actual)
        finally:
            stop.set()
        for each in busy:
            each.result()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_child_forked_while_threads_run_ops_can_run_them():
    """A mutex that another thread held at the fork would stop the child for good."""
    big, stop = frozen((1024, 1024)), threading.Event()  # 4 MiB: packed copies come from the pool of buffers
    x = torch.randn(4, 1024)

    def pack_again():
        with torch.no_grad():
            while not stop.is_set():
                ops.highway(x, [], [], frozen((80, 1024)), None)
                big.add_(0.25)
                ops.highway(x, [], [], big, None)

    with ThreadPoolExecutor(3) as threads:
        busy = [threads.submit(pack_again) for _ in range(3)]
        try:
            for _ in range(15):
                child = os.fork()
                if child == 0:
                    with torch.no_grad():
                        ops.highway(x, [], [], torch.ones(64, 1024), None)
                        ops.highway(x, [], [], torch.ones(1024, 1024), None)
                    _native.C.clear_packed()
                    _native.C.clear_idle_buffers()
                    os._exit(0)
                assert ended(child), "the child waits for a lock"
        finally:
            stop.set()
        for each in busy:
            each.result()


def ended(child, seconds=20.0):
    """True if the child ends well in time; a child that does not is killed."""
    for _ in range(int(seconds * 100)):
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return status == 0
        threading.Event().wait(0.01)
    os.kill(child, 9)
    os.waitpid(child, 0)
    return False
