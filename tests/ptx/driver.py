"""A Triton driver whose GPU is the emulator: Triton specialises, compiles for sm_80 and caches as it does for a card.

The kernel's "binary" is its PTX: the assembler is left out. Only tensors of the CPU can be given.
"""

import pathlib
from typing import Any

import numpy as np
import triton
from triton.backends.compiler import GPUTarget
from triton.backends.driver import DriverBase

from tests.ptx.blocks import Kernel, kernel
from tests.ptx.counts import Counts
from tests.ptx.lanes import WARP
from tests.ptx.launch import Launch, run

CACHE = pathlib.Path(__file__).parents[2] / "build" / "ptx"
SHARED = 166912  # bytes that a block may have on sm_80: 163 KiB (CUDA C++ Programming Guide, compute capabilities)
REGISTERS, THREADS = 0, 1024


class Emulator(DriverBase):
    """What Triton asks of a driver, for one device."""

    def __init__(self) -> None:
        self.utils, self.launcher_cls = self, Launcher
        self.counts, self.random = Counts(), np.random.default_rng(0)

    @classmethod
    def is_active(cls) -> bool:
        return True

    def map_python_to_cpp_type(self, ty: str) -> str:
        raise NotImplementedError("nothing is compiled for the host")

    def get_benchmarker(self) -> Any:
        raise NotImplementedError("an emulator's time says nothing")

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", 80, WARP)

    def get_active_torch_device(self) -> Any:
        import torch

        return torch.device("cpu")

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0

    def get_device_properties(self, device: int) -> dict[str, int]:
        return {"max_shared_mem": SHARED}

    def load_binary(self, name: str, binary: bytes, shared: int, device: int) -> tuple[Any, Kernel, int, int, int]:
        return self, kernel(binary.decode(), name), REGISTERS, 0, THREADS

    def launch(self, launch: Launch) -> None:
        run(launch, self.counts, self.random)


class Launcher:
    """What Triton calls to launch a compiled kernel."""

    def __init__(self, source: Any, metadata: Any):
        self.metadata = metadata
        self.parameters = [name for name, kind in source.signature.items() if kind != "constexpr"]
        self.names = list(source.signature)

    def __call__(self, x: int, y: int, z: int, stream: int, kernel: Kernel, packed: Any, *rest: Any) -> None:
        given = dict(zip(self.names, rest[-len(self.names) :], strict=True))
        arguments = [(name, given[name]) for name in self.parameters]
        shape = Launch(kernel, (x, y, z), self.metadata.num_warps * WARP, self.metadata.shared, arguments)
        triton.runtime.driver.active.launch(shape)


def without_assembler(backend: Any = None, stages: dict | None = None, *rest: Any) -> tuple[str, str] | None:
    """Triton's hook for a compiler's stages: asked without arguments, it names itself for the cache."""
    if stages is None:
        return "emulated", "emulated"
    stages["cubin"] = lambda text, metadata: text.encode()
    return None


def install() -> Emulator:
    """From now on Triton launches on the emulator."""
    emulator = Emulator()
    triton.runtime.driver.set_active(emulator)
    triton.knobs.runtime.add_stages_inspection_hook = without_assembler
    triton.knobs.cache.dir = str(CACHE)
    return emulator
