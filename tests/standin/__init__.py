"""Two CUDA devices in the CPU's memory: `python -m tests.standin COMMAND ...` runs a command on them.

docs/gpu.md says what they prove. This file compiles them, and gives them to torch, Triton and elmo_fast as these are
imported.
"""

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

SOURCE = pathlib.Path(__file__).with_name("devices.cpp")
BUILD = pathlib.Path(__file__).parents[2] / "build" / "standin"
# Ops whose arguments mean the same to the CPU's C++ as on a GPU.
NATIVE = ("char_cnn", "highway", "projected_lstm", "full_softmax", "hierarchical_softmax", "negative_sampling")
NATIVE = {*NATIVE, *(f"{name}_backward" for name in NATIVE), "log_uniform_sample"}


def _reference(name):
    return getattr(importlib.import_module("elmo_fast.ops.adagrad"), name)


def _unique_rows(a):
    """padded_unique_rows without a wait: sorted by each column in turn, the last one first; the longest rows first."""
    import torch

    order = a.ids.new_zeros(len(a.ids)).sort(stable=True).indices
    for column in reversed(a.ids.unbind(1)):
        order = order[column[order].sort(stable=True).indices]
    slots = torch.arange(1, a.ids.shape[1] + 1, device=a.ids.device)
    lengths = (slots * (a.ids != a.ids[:, -1:])).amax(1)
    order = order[lengths[order].sort(stable=True, descending=True).indices]
    rows = a.ids[order]
    new = (rows != rows.roll(1, 0)).any(1)
    new[:1] = False
    ranks = new.cumsum(0)
    unique = rows.new_zeros(rows.shape).scatter_(0, ranks[:, None].expand_as(rows), rows)
    count = ranks[-1] + 1 if len(rows) else ranks.new_zeros(())
    return unique, ranks.new_empty(len(ranks)).scatter_(0, order, ranks), count, ranks, order


def _gather_rows_backward(a):
    known = ((a.inverse >= 0) & (a.inverse < a.entries))[:, None]
    sums = a.grad.new_zeros(a.entries, a.grad.shape[1])
    return sums.index_add_(0, a.inverse.clamp(0, a.entries - 1), a.grad.where(known, 0))


# Others in plain torch.
PLAIN = {
    "adagrad_": lambda a: _reference("_dense_reference")(*a),
    "square_norm": lambda a: _reference("_norm_reference")(a.tensors),
    "padded_unique_rows": _unique_rows,
    "gather_rows_backward": _gather_rows_backward,
}
# Module -> (C++'s layouts, its weights) from what its own `pack` takes.
PACKED = {
    "char_cnn.kernels": lambda embedding, weights: {"filters": weights},
    "highway.kernels": lambda weights, projection: {"highway": weights, "plain": projection},
    "projected_lstm.forward_kernels": lambda ih, hh, hr: {"gates": [*ih, *hh], "plain": hr},
}


def _pack_for_native(layouts, module):
    def pack(*weights_and_precision):
        from elmo_fast.ops import _packed

        *weights, precision = weights_and_precision
        return _packed.pack(precision, **layouts(*weights))

    module.pack = pack


def library():
    """Return the compiled devices; compile them if this source was not compiled before for this torch."""
    digest = hashlib.sha256(importlib.metadata.version("torch").encode() + SOURCE.read_bytes()).hexdigest()[:16]
    compiled = BUILD / f"{digest}.so"
    if not compiled.is_file():
        BUILD.mkdir(parents=True, exist_ok=True)
        torch = pathlib.Path(importlib.util.find_spec("torch").origin).parent
        part = compiled.with_suffix(f".{os.getpid()}")
        flags = ["-std=c++20", "-O0", "-shared", "-fPIC", "-w", "-DAT_PER_OPERATOR_HEADERS"]
        flags.append(f"-isystem{torch / 'include'}")
        libraries = [f"-L{torch / 'lib'}", f"-Wl,-rpath,{torch / 'lib'}", "-ltorch_cpu", "-lc10"]
        subprocess.run([shutil.which("g++"), *flags, str(SOURCE), *libraries, "-o", str(part)], check=True)
        part.replace(compiled)
    return compiled


def install():
    """Watch imports from now on. Called before torch is imported, which asks for a device's hooks once."""
    from elmo_fast_standin import cuda

    sys.meta_path.insert(0, _Finder(cuda))


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, cuda):
        self.cuda = cuda

    def find_spec(self, name, path=None, target=None):
        cuda = self.cuda
        if name == "torch" and "torch" not in sys.modules:
            cuda.load(library())
        elif name == "torch.cuda":
            cuda.complete(sys.modules["torch"]._C)
        elif name == "torch.multiprocessing":  # after torch.storage
            cuda.complete_storage()
        native = os.environ.get("STANDIN_KERNELS") == "native"
        changes = {
            "torch.version": lambda module: setattr(module, "cuda", "13.0"),
            "torch.distributed.distributed_c10d": cuda.complete_collectives,
            "triton.runtime.interpreter": _change_interpreter,
            # It would look for libcuda.so.
            "triton.backends.nvidia.driver": lambda m: setattr(m.CudaDriver, "is_active", staticmethod(lambda: False)),
        }
        if native:
            changes["elmo_fast.ops._triton"] = _leave_to_native
            changes |= {f"elmo_fast.ops.{op}": functools.partial(_pack_for_native, make) for op, make in PACKED.items()}
            # torch's operations are as exact as dropout's kernel.
            changes["elmo_fast.ops._sampling"] = lambda module: setattr(module, "has_kernel", lambda device: False)
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


def _change_interpreter(module):
    from elmo_fast_standin import interpreter

    interpreter.change(module)
    path = (
        pathlib.Path(__file__).parents[1] / "support" / "interpreter.py"
    )  # other folders named tests may be on the path
    spec = importlib.util.spec_from_file_location("elmo_fast_interpreter", path)
    faster = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(faster)
    faster.spare_repeated_patches(module)


def _leave_to_native(triton):
    """Let ops of a GPU run in the CPU's C++ or in plain torch: hundreds of times as fast as the interpreter."""
    implements, implement = triton.implements, triton.implement
    triton.implements = lambda name: implements(name) and name not in NATIVE
    triton.implement = lambda name, run, saved=None: implement(name, PLAIN.get(name, run), saved)
