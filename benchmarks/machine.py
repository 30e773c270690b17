"""The processor, the versions and the commit that a figure holds for."""

import datetime
import importlib.metadata
import os
import pathlib
import platform
import subprocess
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[1]
FLAGS = ("avx2", "avx512f", "avx_vnni", "avx512_vnni", "avx512_bf16", "avx512_fp16", "amx_tile", "amx_bf16", "amx_fp16")
LIBRARIES = ("torch", "numpy", "h5py", "safetensors", "jsonargparse", "triton", "pytest-benchmark")
QUERY = ("name", "driver_version", "clocks.sm", "clocks.max.sm", "clocks.mem", "temperature.gpu", "power.limit")


def significant(value: float, digits: int = 4) -> float:
    """Round to so many significant digits: more would be noise in a file that people compare."""
    return float(f"{value:.{digits}g}")


def cpuinfo() -> dict[str, str]:
    """Read Linux's description of the first processor; empty elsewhere."""
    path = pathlib.Path("/proc/cpuinfo")
    if not path.is_file():
        return {}
    lines = path.read_text(encoding="utf-8").split("\n\n")[0].splitlines()
    return {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)}


def generation() -> list[str]:
    """Return the processor's family and model where Linux has them: a virtual machine may hide them from its name."""
    info = cpuinfo()
    return [f"{name} {info[key]}" for name, key in (("family", "cpu family"), ("model", "model")) if key in info]


def instruction_set() -> str:
    """Return the instruction set of elmo_fast's products (ELMO_FAST_ISA may name a slower one)."""
    from elmo_fast.ops import _native

    return _native.C.isa() if _native.C is not None else "none"


def folder() -> str:
    """Return the name of the folder of results for this generation of processors and instruction set."""
    return "-".join([instruction_set(), *(each.split()[-1] for each in generation())])


def commit() -> str:
    """Return the commit, with "+changes" if tracked files other than results and pages with tables differ from it."""

    def git(*words: str) -> str:
        return subprocess.run(
            ["git", "-C", str(ROOT), *words], capture_output=True, text=True, check=True
        ).stdout.strip()

    try:
        changed = git("status", "--porcelain", "-uno", "--", ".", ":!benchmarks/results", ":!README.md", ":!docs")
        return git("rev-parse", "--short=12", "HEAD") + ("+changes" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return os.environ.get("ELMO_FAST_COMMIT", "unknown")  # a copy of the files without git history


def describe_gpu() -> dict[str, Any]:
    """Describe the GPU in use by torch and the driver; {"gpu": "none"} without one."""
    import torch

    if not torch.cuda.is_available():
        return {"gpu": "none", "driver": "none", "cuda": torch.version.cuda or "none"}
    properties, status = torch.cuda.get_device_properties(0), {}
    command = ["nvidia-smi", "--id=0", f"--query-gpu={','.join(QUERY)}", "--format=csv,noheader,nounits"]
    try:
        line = subprocess.run(command, capture_output=True, text=True, check=True, timeout=20).stdout.splitlines()[0]
        status = dict(zip(QUERY, map(str.strip, line.split(",")), strict=False))
    except (OSError, subprocess.SubprocessError) as error:
        status = {"nvidia-smi": str(error)}
    return {
        "gpu": properties.name,
        "driver": status.pop("driver_version", "unknown"),
        "cuda": torch.version.cuda,
        "compute capability": f"{properties.major}.{properties.minor}",
        "multiprocessors": properties.multi_processor_count,
        "memory, MiB": properties.total_memory // 2**20,
        "status": status,
    }


def versions() -> dict[str, str]:
    """Return the versions of Python, elmo_fast and the libraries that a figure may depend on."""
    import elmo_fast

    result = {"python": platform.python_version(), "elmo_fast": elmo_fast.__version__}
    for name in LIBRARIES:
        try:
            result[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            result[name] = "absent"
    return result


def describe(command: str, *, gpu: bool = False) -> dict[str, Any]:
    """Return all of the above with the date, the command and the load of the machine just before."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    name = " ".join([cpuinfo().get("model name", platform.processor() or platform.machine()), *generation()])
    result = {
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "commit": commit(),
        "command": command,
        "load": round(os.getloadavg()[0], 2),
        "folder": folder(),
        "machine": {
            "cpu": name,
            "cores": cores,
            "flags": [flag for flag in FLAGS if flag in cpuinfo().get("flags", "").split()],
            "instruction set": instruction_set(),
            **({"limit": f"ELMO_FAST_ISA={limit}"} if (limit := os.environ.get("ELMO_FAST_ISA")) else {}),
            "system": f"{platform.system()} {platform.machine()}",
        },
        "versions": versions(),
    }
    return result | ({"gpu": describe_gpu()} if gpu else {})
