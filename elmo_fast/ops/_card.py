"""What the host asks about a GPU: its size, and which one it is."""

import functools
import hashlib
import importlib.metadata
import pathlib
import re

import torch

from elmo_fast import __version__
from elmo_fast.ops import _native

# Of an H100 or H200, less four for a round number of blocks. Tiles are chosen for it on every GPU.
MULTIPROCESSORS = 128
DRIVER = pathlib.Path("/proc/driver/nvidia/version")

# Bytes of shared memory for a block: 99 KiB on consumer cards (sm_86, 89, 120), 163 on sm_80, 227 on sm_90 and 100.
SMALL = 100 * 1024


@functools.cache
def shared_memory(device: torch.device) -> int:
    """Bytes of shared memory that a block may have; of an H100 where there is no GPU, as for `multiprocessors`."""
    if not torch.cuda.is_available():
        return 227 * 1024
    found: int = getattr(torch.cuda.get_device_properties(device), "shared_memory_per_block_optin", SMALL)
    return found


def is_small(device: torch.device) -> bool:
    """Whether a block has little shared memory, as on consumer cards; their tensor cores are fed from registers."""
    return shared_memory(device) <= SMALL


def input_precision(dtype: torch.dtype, device: torch.device) -> str:
    """The `input_precision` of a tl.dot with operands of `dtype`, float32 or 16 bit.

    float32 is three products of tf32 parts on tensor cores, which keep float32's tolerances (docs/gpu.md). On small
    GPUs, where tensor cores are no faster at tf32 than the other units at float32, it is an exact product.
    """
    return "tf32x3" if dtype == torch.float32 and not is_small(device) else "ieee"


@functools.cache
def multiprocessors(device: torch.device) -> int:
    """Multiprocessors of the GPU; of an H100 if there is none, as launches are then only recorded."""
    if not torch.cuda.is_available():
        return MULTIPROCESSORS
    return torch.cuda.get_device_properties(device).multi_processor_count


def present(device: torch.device) -> bool:
    """Whether this is a GPU of this machine, on which kernels run."""
    return device.type == "cuda" and torch.cuda.is_available()


@functools.cache
def identity(device: torch.device) -> dict[str, str]:
    """All that a kernel's results may depend on besides its arguments: the GPU, its driver, libraries, our sources."""
    found = torch.cuda.get_device_properties(device)
    return {
        "gpu": found.name,
        "capability": f"{found.major}.{found.minor}",
        "multiprocessors": str(found.multi_processor_count),
        "driver": driver(),
        "cuda": str(torch.version.cuda),
        **software(),
    }


@functools.cache
def software() -> dict[str, str]:
    """The versions of torch, Triton and this package, and a digest of the kernels' sources."""
    try:
        triton = importlib.metadata.version("triton")
    except importlib.metadata.PackageNotFoundError:
        triton = "absent"
    return {"torch": torch.__version__, "triton": triton, "elmo_fast": __version__, "kernels": sources()}


def driver() -> str:
    """The version of NVIDIA's driver, from the kernel's module; else the newest CUDA version that it supports."""
    try:
        told = re.search(r"\b\d+\.\d+(\.\d+)?\b", DRIVER.read_text(encoding="utf-8"))
    except OSError:
        told = None
    return told[0] if told else f"CUDA {torch._C._cuda_getDriverVersion()}"  # type: ignore[attr-defined]


def sources() -> str:
    """A digest of all files of the ops, of the modules whose CUDA graphs are checked and, if it has CUDA kernels, of
    the compiled extension."""
    package, digest = pathlib.Path(__file__).parents[1], hashlib.sha256()
    files = [file for name in ("ops", "modules", "pretrain/step") for file in sorted((package / name).rglob("*.py"))]
    if _native.C is not None and _native.C.has_cuda:
        files.append(pathlib.Path(str(_native.C.__file__)))
    for file in files:
        digest.update(f"{file.relative_to(package)}\n".encode())
        digest.update(file.read_bytes())
    return digest.hexdigest()[:16]
