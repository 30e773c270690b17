"""A stand-in for a CUDA graph, on a machine without a GPU: what a function ran, op by op and launch by launch, is run
again on the same memory."""

import contextlib
import itertools

import torch
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from elmo_fast.ops import _graphs, _triton

# Reading a value on the host, or a shape that depends on values: a capture refuses both.
REFUSED = {"_local_scalar_dense", "nonzero", "_unique2", "unique_dim", "masked_select", "equal", "is_nonzero"}
NOT_RUN = {"empty", "new_empty", "empty_like", "empty_strided", "new_empty_strided", "_indices", "_values"}
# Sparse results that share their arguments' memory.
SHARING = {
    "sparse_coo_tensor",
    "_sparse_coo_tensor_with_dims_and_tensors",
    "_sparse_coo_tensor_unsafe",
    "detach",
    "alias",
}


def tensors_of(value):
    """All tensors in arguments or results."""
    if isinstance(value, torch.Tensor):
        return [value]
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    return [tensor for part in parts for tensor in tensors_of(part)]


def storages_of(value):
    """The memory of all dense tensors in arguments or results."""
    return [tensor.untyped_storage() for tensor in tensors_of(value) if not tensor.is_sparse]


class SparseAsOnGpu(TorchDispatchMode):
    """Sparse gradients are not coalesced, and their sum is a concatenation, unless it has more rows than the tensor has
    elements: then it is coalesced, as torch's add_out_sparse_cuda does."""

    def coalesced(self, gradient):
        with _disable_current_modes():
            merged = gradient.coalesce()
            return Sparse.made(merged.indices(), merged.values(), gradient)

    def __torch_dispatch__(self, function, types, arguments=(), options=None):
        name, first = function._schema.name.removeprefix("aten::"), (tensors_of(arguments) or [None])[0]
        if name == "_coalesce":
            return first
        if name in ("add", "add_", "mul", "clone") and first.is_sparse:
            with self:
                result = getattr(Sparse, name)(*arguments)
                grown = name in ("add", "add_") and result._values().shape[0] > result.numel()
            return self.coalesced(result) if grown else result
        actual = self.run(function, arguments, options or {})
        assert name in SHARING or not any(each.is_sparse for each in tensors_of(actual)), name
        return actual

    def run(self, function, arguments, options):
        return function(*arguments, **options)


class Sparse:
    """Run autograd's and hooks' operations on sparse gradients as ops on their indices and values."""

    @staticmethod
    def made(indices, values, like):
        return torch.sparse_coo_tensor(indices, values, like.shape, check_invariants=False)

    @staticmethod
    def add(a, b):
        indices, values = torch.cat([a._indices(), b._indices()], 1), torch.cat([a._values(), b._values()])
        return Sparse.made(indices, values, a)

    @staticmethod
    def add_(a, b):
        a.data = Sparse.add(a, b)
        return a

    @staticmethod
    def mul(a, factor):
        return Sparse.made(a._indices(), a._values() * factor, a)

    @staticmethod
    def clone(a):
        return Sparse.made(a._indices().clone(), a._values().clone(), a)


class Recording(SparseAsOnGpu):
    """Runs ops as ever and keeps how to run each again; `forget` then undoes them, as a capture computes nothing."""

    def __init__(self):
        super().__init__()
        self.replays, self.before, self.allocated, self.kept, self.names = [], {}, {}, [], []
        self.pieces = 0

    def run(self, function, arguments, options):
        namespace, _, name = function._schema.name.partition("::")
        if namespace == _triton.NAMESPACE and name in _triton._undispatched:
            with self:  # its launches, and what torch launches between them
                return _triton.undispatched(name)(*arguments, **options)
        masks = name == "index" and any(each.dtype == torch.bool for each in tensors_of(arguments[1]))
        if masks or name in REFUSED or torch.Tag.nondeterministic_seeded in function.tags:
            raise RuntimeError(f"{name}: operation not permitted when stream is capturing")
        written = [a for i, a in enumerate(arguments) if _is_written(function._schema.arguments[i])]
        written += [options[a.name] for a in function._schema.arguments if a.name in options and _is_written(a)]
        self.about_to_write(written)
        actual = function(*arguments, **options)
        self.kept.append((arguments, options, actual))  # addresses of memory that is freed would be used again
        values = {storage.data_ptr() for storage in storages_of([arguments, options])}
        fresh = [t for t in tensors_of(actual) if not t.is_sparse and t.untyped_storage().data_ptr() not in values]
        self.allocated |= {t.untyped_storage().data_ptr(): t for t in fresh}
        if written or (fresh and name not in NOT_RUN):
            self.names.append(name)
            self.replays.append(lambda: [a.copy_(b) for a, b in zip(fresh, again(), strict=True)])

        def again():
            result = function(*arguments, **options)
            return tensors_of(result) if fresh else []

        return actual

    def coalesced(self, gradient):
        raise RuntimeError("coalesce reads a number: operation not permitted when stream is capturing")

    def about_to_write(self, value):
        for storage in storages_of(value):
            if storage.data_ptr() and storage.data_ptr() not in self.allocated:
                self.before.setdefault(storage.data_ptr(), (storage, storage.clone()))

    def launched(self, runner, kernel, arguments, constants):
        """A launch of Triton's interpreter, whose own use of torch is no business of the graph's."""
        with _disable_current_modes():
            self.about_to_write(list(arguments))
            runner(*arguments, **constants)
        self.kept.append(arguments)
        self.names.append(kernel)
        self.replays.append(lambda: runner(*arguments, **constants))

    def forget(self):
        for storage, held in self.before.values():
            storage.copy_(held)
        for tensor in self.allocated.values():
            tensor.fill_(float("nan") if tensor.is_floating_point() else 1)


def _is_written(argument):
    return argument.alias_info is not None and argument.alias_info.is_write


@contextlib.contextmanager
def _launches_seen(recording):
    from triton.runtime.interpreter import InterpretedFunction

    getting = InterpretedFunction.__getitem__

    def seen(self, grid):
        runner = getting(self, grid)
        return lambda *arguments, **constants: recording.launched(runner, self.fn.__name__, arguments, constants)

    InterpretedFunction.__getitem__ = seen
    try:
        yield
    finally:
        InterpretedFunction.__getitem__ = getting


class Recorded(list):
    """The entries made, each with what it recorded."""

    def capture(self, function, inputs, pool):
        """As `_graphs.capture` that runs nothing before: what the host does between pieces is recorded, not done."""
        recording = Recording()
        try:
            with _launches_seen(recording) if _triton.INTERPRETED else contextlib.nullcontext():
                pieces = _graphs.pieces_of(function(*inputs))
                while True:
                    recording.pieces += 1
                    launched = len(recording.replays)
                    try:
                        with recording:
                            between = next(pieces)
                    except StopIteration as end:
                        outputs = end.value
                        break
                    assert len(recording.replays) > launched, "a piece without launches: torch warns of an empty graph"
                    recording.replays.append(between)
        finally:
            recording.forget()
        replayed = itertools.count(1)

        def replay():
            recording.times = next(replayed)
            with torch.no_grad():
                for each in recording.replays:
                    each()

        self.append(recording)
        return _graphs.Entry(inputs, outputs, replay, function)
