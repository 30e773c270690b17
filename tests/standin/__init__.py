"""Two CUDA devices in the CPU's memory: `python -m tests.standin COMMAND ...` runs a command on them.

docs/gpu.md says what they prove. This file compiles them, and gives them to torch, Triton and elmo_fast as these are
imported.
"""

import hashlib
import importlib.abc
import importlib.metadata
import importlib.util
import os
import pathlib
import shutil
import subprocess
import sys

SOURCE = pathlib.Path(__file__).with_name("devices.cpp")
BUILD = pathlib.Path(__file__).parents[2] / "build" / "standin"
NATIVE = ("char_cnn", "highway", "projected_lstm", "full_softmax", "hierarchical_softmax", "negative_sampling")


def library():
    """Return the compiled devices; compile them if this source was not compiled before for this torch."""
    digest = hashlib.sha256(importlib.metadata.version("torch").encode() + SOURCE.read_bytes()).hexdigest()[:16]
    compiled = BUILD / f"{digest}.so"
    if not compiled.is_file():
        BUILD.mkdir(parents=True, exist_ok=True)
        torch, part = (
            pathlib.Path(importlib.util.find_spec("torch").origin).parent,
            compiled.with_suffix(f".{os.getpid()}"),
        )
        flags = [
            "-std=c++20",
            "-O0",
            "-shared",
            "-fPIC",
            "-w",
            "-DAT_PER_OPERATOR_HEADERS",
            f"-isystem{torch / 'include'}",
        ]
        libraries = [f"-L{torch / 'lib'}", f"-Wl,-rpath,{torch / 'lib'}", "-ltorch_cpu", "-lc10"]
        subprocess.run([shutil.which("g++"), *flags, str(SOURCE), *libraries, "-o", str(part)], check=True)
        part.replace(compiled)
    return compiled


def install():
    """Watch imports from now on. Called before torch is imported, which asks for a device's hooks once."""
    from elmo_fast_standin import cuda, interpreter

    sys.meta_path.insert(0, _Finder(cuda, interpreter))


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, cuda, interpreter):
        self.cuda, self.interpreter = cuda, interpreter

    def find_spec(self, name, path=None, target=None):
        cuda, interpreter = self.cuda, self.interpreter
        if name == "torch" and "torch" not in sys.modules:
            cuda.load(library())
        elif name == "torch.cuda":
            cuda.complete(sys.modules["torch"]._C)
        elif name == "torch.multiprocessing":  # after torch.storage
            cuda.complete_storage()
        native = os.environ.get("STANDIN_KERNELS") == "native"
        changes = {
            "torch.version": lambda module: setattr(module, "cuda", "13.0"),
            "triton.runtime.interpreter": interpreter.change,
            # It would look for libcuda.so.
            "triton.backends.nvidia.driver": lambda m: setattr(m.CudaDriver, "is_active", staticmethod(lambda: False)),
        } | ({"elmo_fast.ops._triton": _leave_to_native, "elmo_fast.ops._native": _cache_nothing} if native else {})
        return _Changed.spec(name, path, changes[name]) if name in changes else None


class _Changed(importlib.machinery.SourceFileLoader):
    """Loads a module and changes it before anyone else sees it."""

    @classmethod
    def spec(cls, name, path, change):
        loader = cls(name, str(pathlib.Path(path[0]) / f"{name.rpartition('.')[2]}.py"))
        loader.change = change
        return importlib.util.spec_from_file_location(name, loader.path, loader=loader)

    def exec_module(self, module):
        super().exec_module(module)
        self.change(module)


def _leave_to_native(triton):
    """Let the CPU's C++ run the ops of a GPU whose arguments are the same there: hundreds of times as fast."""
    implements, unsupported = triton.implements, triton.unsupported
    has_kernel = sys.modules["torch"]._C._dispatch_has_kernel_for_dispatch_key
    triton.implements = lambda name: (
        implements(name) and not (name.startswith(NATIVE) and has_kernel(f"elmo_fast::{name}", "CPU"))
    )
    triton.unsupported = lambda device, dtype, precision: unsupported(
        device, dtype, "float32" if precision == "bfloat16" else precision
    )


def _cache_nothing(native):
    """Copies of weights are not cached: a twin's version and address say nothing about its values."""
    native.C.enable_caching = lambda: None
