"""Two CUDA devices made of the CPU, with values: `python -m tests.standin COMMAND ...` (docs/gpu.md)."""

import contextlib
import ctypes
import functools
import hashlib
import importlib.abc
import importlib.metadata
import importlib.util
import os
import pathlib
import shutil
import subprocess
import sys
import threading
import types

SOURCE = pathlib.Path(__file__).with_name("devices.cpp")
BUILD = pathlib.Path(__file__).parents[2] / "build" / "standin"
COUNT, NAME = 2, "Stand-in GPU"


def library():
    """The compiled devices; compiled now if they were not before."""
    digest = hashlib.sha256(importlib.metadata.version("torch").encode() + SOURCE.read_bytes()).hexdigest()[:16]
    made = BUILD / f"{digest}.so"
    if not made.is_file():
        made.parent.mkdir(parents=True, exist_ok=True)
        home, part = pathlib.Path(importlib.util.find_spec("torch").origin).parent, made.with_suffix(f".{os.getpid()}")
        includes = [f"-isystem{home / 'include'}", f"-isystem{home / 'include/torch/csrc/api/include'}"]
        libraries = [f"-L{home / 'lib'}", f"-Wl,-rpath,{home / 'lib'}", "-ltorch_cpu", "-lc10"]
        flags = ["-std=c++20", "-O0", "-shared", "-fPIC", "-w"]
        subprocess.run([shutil.which("g++"), *flags, *includes, str(SOURCE), *libraries, "-o", str(part)], check=True)
        part.replace(made)
    return made


def install():
    """Load the devices as soon as torch is imported."""
    sys.meta_path.insert(0, _Watch())


class _Watch(importlib.abc.MetaPathFinder):
    """Acts before torch, torch.cuda and Triton's interpreter are imported."""

    def find_spec(self, name, path=None, target=None):
        if name == "torch" and "torch" not in sys.modules:
            self.devices = ctypes.CDLL(str(library()), mode=ctypes.RTLD_GLOBAL)  # before torch asks for hooks
            self.devices.standin_total.restype = self.devices.standin_allocated.restype = ctypes.c_int64
            self.devices.standin_peak.restype = self.devices.standin_new.restype = ctypes.c_int64
        if name == "torch.version":
            return _Version.spec(name, path)
        if name == "torch.cuda":
            _complete(sys.modules["torch"]._C, self.devices)
        if name == "torch.multiprocessing":  # one of the last
            _complete_storage(sys.modules["torch"])
        if name == "triton.runtime.interpreter":
            return _Interpreter.spec(name, path)
        if os.environ.get("STANDIN_KERNELS") == "native" and name in ("elmo_fast.ops._triton", "elmo_fast.ops._native"):
            return _Native.spec(name, path)
        if name == "triton.backends.nvidia.driver":  # which would look for libcuda.so
            return _Driver.spec(name, path)
        return None


class _Changed(importlib.machinery.SourceFileLoader):
    @classmethod
    def spec(cls, name, path):
        file = str(pathlib.Path(path[0]) / f"{name.rpartition('.')[2]}.py")
        return importlib.util.spec_from_file_location(name, file, loader=cls(name, file))


class _Version(_Changed):
    def exec_module(self, module):
        super().exec_module(module)
        module.cuda = "13.0"


class _Driver(_Changed):
    def exec_module(self, module):
        super().exec_module(module)
        module.CudaDriver.is_active = staticmethod(lambda: False)


class _Native(_Changed):
    """elmo_fast's ops of a GPU, run by its C++ kernels for the CPU on twins: hundreds of times as fast."""

    def exec_module(self, module):
        super().exec_module(module)
        if hasattr(module, "implements"):
            refuses = module.unsupported
            has_kernel = sys.modules["torch"]._C._dispatch_has_kernel_for_dispatch_key
            implements = module.implements
            alike = (
                "char_cnn", "highway", "projected_lstm", "log_uniform_sample", "full_softmax", "hierarchical_softmax",
                "negative_sampling",
            )  # fmt: skip
            module.implements = lambda name: implements(name) and not (  # the others take other arguments on a GPU
                name.startswith(alike) and has_kernel(f"elmo_fast::{name}", "CPU")
            )
            module.unsupported = lambda device, dtype, precision: refuses(
                device, dtype, "float32" if precision == "bfloat16" else precision
            )
        else:
            module.C.enable_caching = lambda: None  # a twin's version says nothing


class _Interpreter(_Changed):
    """Triton's interpreter, which copies tensors of a device to the CPU and back: here they are there."""

    def exec_module(self, module):
        super().exec_module(module)
        executor, interpreted, lock = module.GridExecutor, module.GridExecutor.__call__, threading.RLock()
        executor._restore_args_dev = lambda *_: None

        def lowered(arg):
            import torch

            if isinstance(arg, tuple):
                return module._tuple_create(arg, map(lowered, arg))
            if isinstance(arg, torch.Tensor) and arg.is_cuda:
                return torch.ops.standin.twin(arg)
            return arg

        executor._init_args_hst = lambda self, args, kwargs: (
            [lowered(each) for each in args], {name: lowered(each) for name, each in kwargs.items()}
        )  # fmt: skip

        def run(*args, **kwargs):
            with lock:  # the interpreter changes triton.language while it runs
                return interpreted(*args, **kwargs)

        @functools.wraps(interpreted)
        def launch(self, *args, **kwargs):
            import torch

            tensors = [t for a in args for t in (a if isinstance(a, tuple) else (a,)) if isinstance(t, torch.Tensor)]
            devices = {t.device for t in tensors}
            if not any(device.type == "cuda" for device in devices):
                return run(self, *args, **kwargs)
            if len(devices) > 1:
                raise ValueError(f"Pointer argument cannot be accessed from Triton (cpu tensor?): {devices}")
            capturing, (device,) = torch.cuda.is_current_stream_capturing(), devices
            torch.ops.standin.record_call(device.index, tensors if capturing else [], 0)
            if capturing:
                args, kwargs = self._init_args_hst(args, kwargs)
                _calls.add(call := _Call(lambda: run(self, *args, **kwargs)))
                torch.ops.standin.record_call(device.index, [], call.address)
                graph = _CUDAGraph.active
                graph.kept.append(call)
            return run(self, *args, **kwargs)

        executor.__call__ = launch


_calls, _errors = set(), []


class _Call:
    """A C function that launches a kernel again."""

    def __init__(self, function):
        def once():
            try:
                function()
            except BaseException as error:  # noqa: BLE001 (the replay raises it)
                _errors.append(error)

        self.function = ctypes.CFUNCTYPE(None)(once)
        self.address = ctypes.cast(self.function, ctypes.c_void_p).value


class _CUDAGraph:
    active = None

    def __new__(cls, keep_graph=False):
        self = super().__new__(cls)
        self.number, self.kept, self._pool = None, [], None
        return self

    def capture_begin(self, pool=None, capture_error_mode="global"):
        import torch

        self._pool = pool or (0, _devices.standin_new())
        self.number = torch.ops.standin.capture_begin(torch.cuda.current_device(), self._pool[1])
        _CUDAGraph.active = self

    def capture_end(self):
        import torch

        _CUDAGraph.active = None
        torch.ops.standin.capture_end(self.number)

    def replay(self):
        import torch

        torch.ops.standin.replay(self.number)
        if _errors:
            raise _errors.pop()

    def reset(self):
        import torch

        if self.number is not None:
            torch.ops.standin.drop(self.number)
            self.number, self.kept = None, []

    def pool(self):
        return self._pool

    def __del__(self):
        with contextlib.suppress(Exception):
            self.reset()


def _complete_storage(torch):
    """torch.UntypedStorage(size, device="cuda"), as torch.load asks for it."""
    kind, new = torch.UntypedStorage, torch.UntypedStorage.__new__

    def made(cls, *arguments, device=None, **options):
        if device is None or torch.device(device).type != "cuda":
            return new(cls, *arguments, **options | ({} if device is None else {"device": device}))
        return torch.empty(*arguments, dtype=torch.uint8, device=device).untyped_storage()

    kind.__new__ = made


def _complete(c, devices):
    """Give torch._C what a build with CUDA has, before torch.cuda looks for it."""
    import torch  # in the making: torch._C is there

    global _devices
    _devices = devices
    op = lambda name, *arguments: getattr(torch.ops.standin, name)(*arguments)  # noqa: E731
    state = types.SimpleNamespace(initialized_in=None)

    class Stream(c.Stream):
        def __new__(cls, priority=0, stream_id=None, device_index=None, device_type=1, stream_ptr=0):
            index = devices.standin_device() if device_index is None else device_index
            number = devices.standin_new() if stream_id is None else stream_id
            return super().__new__(cls, stream_id=number, device_index=index, device_type=1)

        cuda_stream = property(lambda self: self.stream_id)
        priority_range = staticmethod(lambda: (0, -5))

        def query(self):
            return True

        def synchronize(self):
            op("synchronize", self.device_index, -1, "Stream.synchronize")

        def __eq__(self, other):
            return isinstance(other, c.Stream) and (self.stream_id, self.device_index) == (other.stream_id, other.device_index)

        def __hash__(self):
            return hash((self.stream_id, self.device_index))

    class Event:
        def __new__(cls, enable_timing=False, blocking=False, interprocess=False, external=False):
            self = super().__new__(cls)
            self.timing, self.recorded, self.device, self.cuda_event = enable_timing, None, None, 0
            return self

        def record(self, stream):
            import time

            if self.device is not None and self.device != stream.device:
                raise RuntimeError(f"Event device {self.device} does not match recording stream's device {stream.device}.")
            self.device, self.recorded = stream.device, op("record", stream.device_index, stream.stream_id)
            self.cuda_event, self.time = self.recorded[0], time.perf_counter()

        def wait(self, stream):
            if self.recorded is not None:
                op("wait", stream.device_index, stream.stream_id, *self.recorded[1:])

        def query(self):
            if self.recorded is not None:
                op("synchronize", self.device.index, self.recorded[0], "Event.query")
            return True

        def synchronize(self):
            if self.recorded is not None:
                op("synchronize", self.device.index, self.recorded[0], "Event.synchronize")

        def elapsed_time(self, end):
            if not (self.timing and end.timing):
                raise ValueError("Both events must be created with argument 'enable_timing=True'.")
            return 1e3 * (end.time - self.time)

    class Properties:
        name, major, minor, multi_processor_count, warp_size = NAME, 9, 0, 4, 32
        total_memory, is_integrated, is_multi_gpu_board = devices.standin_total(), 0, 0
        shared_memory_per_block, shared_memory_per_block_optin, shared_memory_per_multiprocessor = 48 << 10, 227 << 10, 228 << 10
        max_threads_per_multi_processor, regs_per_multiprocessor, L2_cache_size, gcnArchName = 2048, 65536, 50 << 20, ""

    def initialize():
        state.initialized_in = os.getpid()
        torch.cuda.default_generators = tuple(op("default_generator", i) for i in range(COUNT))
        torch.cuda._get_device_properties = lambda index: Properties()

    def stream_of(index):
        return devices.standin_stream(index), index, 1

    def set_stream(stream_id, device_index, device_type):
        devices.standin_set_device(device_index)
        devices.standin_set_stream(device_index, stream_id)

    def set_device(index):
        if not isinstance(index, int) or not 0 <= index < COUNT:
            raise RuntimeError("CUDA error: invalid device ordinal")
        devices.standin_set_device(index)

    def exchange(index):
        before = devices.standin_device()
        if index >= 0:
            set_device(index)
        return before

    def statistics(index):
        now, peak = devices.standin_allocated(index), devices.standin_peak(index)
        numbers = {"current": now, "peak": peak, "allocated": peak, "freed": 0}
        names = ("allocated_bytes", "reserved_bytes", "active_bytes", "requested_bytes", "inactive_split_bytes")
        return {name: {"all": dict(numbers)} for name in names} | {"num_alloc_retries": 0, "num_ooms": 0}

    cudart = types.ModuleType("torch._C._cudart")
    cudart.cudaMemGetInfo = lambda index: (devices.standin_total() - devices.standin_allocated(index), devices.standin_total())
    cudart.cudaError, cudart.cudaGetErrorString = types.SimpleNamespace(success=0), str
    new = {
        "_has_cuda": True, "_cudart": cudart, "_CudaStreamBase": Stream, "_CudaEventBase": Event, "_CUDAGraph": _CUDAGraph,
        "_CudaDeviceProperties": Properties, "_graph_pool_handle": lambda: (0, devices.standin_new()),
        "_cuda_isCurrentStreamCapturing": lambda: bool(devices.standin_capturing()), "_cuda_init": initialize,
        "_cuda_isInBadFork": lambda: state.initialized_in not in (None, os.getpid()),
        "_cuda_getDeviceCount": lambda: COUNT, "_cuda_getDevice": lambda: devices.standin_device(), "_cuda_setDevice": set_device,
        "_cuda_exchangeDevice": exchange, "_cuda_maybeExchangeDevice": lambda index: exchange(index), "_cuda_getCurrentStream": stream_of,
        "_cuda_getDefaultStream": lambda index: (0, index, 1), "_cuda_setStream": set_stream,
        "_cuda_synchronize": lambda: op("synchronize", devices.standin_device(), -1, "torch.cuda.synchronize"),
        "_cuda_emptyCache": lambda: None, "_host_emptyCache": lambda: None, "_cuda_ipc_collect": lambda: None,
        "_cuda_memoryStats": statistics, "_cuda_resetPeakMemoryStats": lambda index: devices.standin_reset_peak(index),
        "_cuda_resetAccumulatedMemoryStats": lambda index: None, "_cuda_getArchFlags": lambda: None,
        "_cuda_getCurrentRawStream": lambda index: devices.standin_stream(index),
        "_cuda_canDeviceAccessPeer": lambda a, b: True, "_cuda_hasPrimaryContext": lambda index: True,
        "_cuda_getCompiledVersion": lambda: 13000, "_cuda_sleep": lambda cycles: None, "_cuda_set_sync_debug_mode": lambda mode: devices.standin_sync_mode(mode) and None,
        "_cuda_get_sync_debug_mode": lambda: devices.standin_sync_mode(-1),
    }  # fmt: skip
    for name in ("_cuda_CUDAAllocator_AllocatorState", "_cuda_CUDAAllocator"):  # imported by torch._inductor
        new[name] = type(name, (), {})
    for name, value in new.items():
        setattr(c, name, value)
