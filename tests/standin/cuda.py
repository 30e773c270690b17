"""What torch._C has in a build with CUDA, so that torch.cuda's own Python runs here, with its own checks."""

import contextlib
import ctypes
import os
import time
import types
import warnings

COUNT, NAME = 2, "Stand-in GPU"
_devices = None


def load(library):
    """Load the compiled devices."""
    global _devices
    _devices = ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)
    _devices.standin_error.restype = ctypes.c_char_p


def call(name, *arguments):
    """Call a function of devices.cpp; raise RuntimeError with its message if it fails."""
    function = getattr(_devices, f"standin_{name}")
    function.restype = ctypes.c_int64
    value = function(*(ctypes.c_int64(each) if isinstance(each, int) else each for each in arguments))
    if value == -1 and (message := _devices.standin_error()):
        raise RuntimeError(message.decode())
    return value


class Graph:
    """torch._C._CUDAGraph."""

    active = None

    def __new__(cls, keep_graph=False):
        self = super().__new__(cls)
        self.number, self._kept, self._pool = None, [], None
        return self

    def capture_begin(self, pool=None, capture_error_mode="global"):
        self._pool = pool or (0, call("new"))
        self.number = call("capture_begin", call("device"), self._pool[1])
        Graph.active = self

    def record(self, function):
        """Record a function of Python as one of the calls of a replay."""
        self._kept.append(ctypes.CFUNCTYPE(None)(function))
        call("record", self._kept[-1])

    def capture_end(self):
        Graph.active = None
        if call("capture_end", self.number) == 0:
            warnings.warn(
                "The CUDA Graph is empty. This usually means that the graph was attempted to be captured on "
                "wrong device or stream.",
                stacklevel=2,
            )

    def replay(self):
        from elmo_fast_standin import interpreter

        call("replay", self.number)
        if interpreter.raised:
            raise interpreter.raised.pop()

    def reset(self):
        if self.number is not None:
            call("drop", self.number)
            self.number, self._kept = None, []

    def pool(self):
        return self._pool

    def __del__(self):
        with contextlib.suppress(Exception):  # at the interpreter's end
            self.reset()


class Event:
    """torch._C._CudaEventBase. Work is done when it is launched, so an event only knows its stream and its time."""

    def __new__(cls, enable_timing=False, blocking=False, interprocess=False, external=False):
        self = super().__new__(cls)
        self.timing, self.cuda_event, self.device = enable_timing, 0, None
        return self

    def record(self, stream):
        if self.device not in (None, stream.device):
            raise RuntimeError(f"Event device {self.device} does not match recording stream's device {stream.device}.")
        self.device, self.cuda_event, self._time = stream.device, call("new"), time.perf_counter()
        self._recorder = call("graph_of", stream.device_index, stream.stream_id), stream.stream_id

    def wait(self, stream):
        if self.device is not None:
            call("wait", stream.device_index, stream.stream_id, *self._recorder)

    def query(self):
        if self.device is not None:
            call("synchronize", self.device.index, self.cuda_event, b"Event.query")
        return True

    def synchronize(self):
        if self.device is not None:
            call("synchronize", self.device.index, self.cuda_event, b"Event.synchronize")

    def elapsed_time(self, end):
        if not (self.timing and end.timing):
            raise ValueError("Both events must be created with argument 'enable_timing=True'.")
        return 1e3 * (end._time - self._time)


class Properties:
    """torch._C._CudaDeviceProperties: of an H100, but for name, memory and multiprocessors."""

    name, major, minor, multi_processor_count, warp_size, gcnArchName = NAME, 9, 0, 4, 32, ""
    is_integrated, is_multi_gpu_board, L2_cache_size = 0, 0, 50 << 20
    shared_memory_per_block, shared_memory_per_block_optin = 48 << 10, 227 << 10
    shared_memory_per_multiprocessor = 228 << 10
    max_threads_per_multi_processor, regs_per_multiprocessor = 2048, 65536
    total_memory = property(lambda self: call("total"))


def _stream_class(base):
    """Return torch._C._CudaStreamBase."""

    class Stream(base):
        priority_range = staticmethod(lambda: (0, -5))
        cuda_stream = property(lambda self: self.stream_id)

        def __new__(cls, priority=0, stream_id=None, device_index=None, device_type=1, stream_ptr=0):
            index = call("device") if device_index is None else device_index
            number = call("new") if stream_id is None else stream_id
            return super().__new__(cls, stream_id=number, device_index=index, device_type=1)

        def query(self):
            return True

        def synchronize(self):
            call("synchronize", self.device_index, -1, b"Stream.synchronize")

        def __eq__(self, other):
            return isinstance(other, base) and hash(self) == hash(other)

        def __hash__(self):
            return hash((self.stream_id, self.device_index))

    return Stream


def complete_storage():
    """Let torch.UntypedStorage(size, device="cuda") allocate, as torch.load asks of it."""
    import torch

    new = torch.UntypedStorage.__new__

    def allocated(cls, *arguments, device=None, **options):
        if device is not None and torch.device(device).type == "cuda":
            return torch.empty(*arguments, dtype=torch.uint8, device=device).untyped_storage()
        return new(cls, *arguments, **options | ({} if device is None else {"device": device}))

    torch.UntypedStorage.__new__ = allocated


def complete_collectives(distributed):
    """Let gloo serve as NCCL: it gets the twins of the devices' tensors."""
    import torch

    def twins(argument):
        if isinstance(argument, list):
            return [twins(each) for each in argument]
        return torch.ops.standin.twin(argument) if getattr(argument, "is_cuda", False) else argument

    begin = distributed.init_process_group
    distributed.init_process_group = lambda backend, **options: begin(backend.replace("nccl", "gloo"), **options)
    group = distributed.ProcessGroup
    for name in ("allreduce", "allgather"):
        collective = getattr(group, name)
        setattr(group, name, lambda self, *words, do=collective: do(self, *(twins(each) for each in words)))


def complete(c):
    """Give torch._C what a build with CUDA has; called before torch.cuda looks for it."""
    initialized = []  # the process that did it

    def initialize():
        import torch

        initialized.append(os.getpid())
        torch.cuda.default_generators = tuple(torch.ops.standin.default_generator(i) for i in range(COUNT))
        torch.cuda._get_device_properties = lambda index: Properties()

    def set_device(index):
        if not isinstance(index, int) or not 0 <= index < COUNT:
            raise RuntimeError("CUDA error: invalid device ordinal")
        call("set_device", index)

    def exchange_device(index):
        before = call("device")
        if index >= 0:
            set_device(index)
        return before

    def set_stream(stream_id, device_index, device_type):
        call("set_device", device_index)
        call("set_stream", device_index, stream_id)

    def memory_stats(index):
        numbers = {"current": call("allocated", index), "peak": call("peak", index), "allocated": 0, "freed": 0}
        kinds = ("allocated_bytes", "reserved_bytes", "active_bytes", "requested_bytes", "inactive_split_bytes")
        return {kind: {"all": dict(numbers)} for kind in kinds} | {"num_alloc_retries": 0, "num_ooms": 0}

    cudart = types.ModuleType("torch._C._cudart")
    cudart.cudaMemGetInfo = lambda index: (call("total") - call("allocated", index), call("total"))
    cudart.cudaError, cudart.cudaGetErrorString = types.SimpleNamespace(success=0), str
    functions = {
        "_host_emptyCache": lambda: None,
        "_graph_pool_handle": lambda: (0, call("new")),
        "_cuda_init": initialize,
        "_cuda_isInBadFork": lambda: bool(initialized) and initialized[0] != os.getpid(),
        "_cuda_getDeviceCount": lambda: 0 if os.environ.get("CUDA_VISIBLE_DEVICES") == "" else COUNT,
        "_cuda_getDevice": lambda: call("device"),
        "_cuda_setDevice": set_device,
        "_cuda_exchangeDevice": exchange_device,
        "_cuda_maybeExchangeDevice": lambda index: exchange_device(index),
        "_cuda_getCurrentStream": lambda index: (call("stream", index), index, 1),
        "_cuda_getCurrentRawStream": lambda index: call("stream", index),
        "_cuda_getDefaultStream": lambda index: (0, index, 1),
        "_cuda_setStream": set_stream,
        "_cuda_isCurrentStreamCapturing": lambda: call("capturing") != 0,
        "_cuda_synchronize": lambda: call("synchronize", call("device"), -1, b"torch.cuda.synchronize"),
        "_cuda_memoryStats": memory_stats,
        "_cuda_resetPeakMemoryStats": lambda index: call("reset_peak", index),
        "_cuda_resetAccumulatedMemoryStats": lambda index: None,
        "_cuda_emptyCache": lambda: None,
        "_cuda_ipc_collect": lambda: None,
        "_cuda_getArchFlags": lambda: None,
        "_cuda_canDeviceAccessPeer": lambda one, other: True,
        "_cuda_hasPrimaryContext": lambda index: True,
        "_cuda_getCompiledVersion": lambda: 13000,
        "_cuda_sleep": lambda cycles: None,
        "_cuda_set_sync_debug_mode": lambda mode: call("sync_mode", mode) and None,
        "_cuda_get_sync_debug_mode": lambda: call("sync_mode", -1),
    }
    classes = {
        "_CudaStreamBase": _stream_class(c.Stream),
        "_CudaEventBase": Event,
        "_CUDAGraph": Graph,
        "_CudaDeviceProperties": Properties,
    }
    # torch._inductor imports these two.
    empty = {name: type(name, (), {}) for name in ("_cuda_CUDAAllocator_AllocatorState", "_cuda_CUDAAllocator")}
    for name, value in (functions | classes | empty | {"_has_cuda": True, "_cudart": cudart}).items():
        setattr(c, name, value)
