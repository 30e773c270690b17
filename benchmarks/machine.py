"""What a figure holds for: the processor, the versions, the commit and the command."""

import datetime
import importlib.metadata
import os
import pathlib
import platform
import subprocess
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[1]
FLAGS = ("avx2", "avx512f", "avx_vnni", "avx512_vnni", "avx512_bf16", "avx512_fp16", "amx_tile", "amx_bf16", "amx_fp16")
LIBRARIES = ("torch", "numpy", "h5py", "safetensors", "jsonargparse", "triton")
# What holds torch and the libraries within it to AVX2.
AVX2_ALONE = {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "MKL_ENABLE_INSTRUCTIONS": "AVX2",
              "FBGEMM_ENABLE_INSTRUCTIONS": "AVX2"}  # fmt: skip
QUERY = ("name", "driver_version", "clocks.sm", "clocks.max.sm", "clocks.mem", "temperature.gpu", "power.limit")


def cpuinfo() -> dict[str, str]:
    """What Linux says of the first processor, by name; empty elsewhere."""
    found: dict[str, str] = {}
    path = pathlib.Path("/proc/cpuinfo")
    if path.is_file():
        for line in path.read_text(encoding="utf-8").split("\n\n")[0].splitlines():
            name, _, value = line.partition(":")
            found[name.strip()] = value.strip()
    return found


def flags() -> list[str]:
    """Which of FLAGS the processor has; elmo_fast is not imported to know it."""
    has = cpuinfo().get("flags", "").split()
    return [flag for flag in FLAGS if flag in has]


def processor() -> dict[str, Any]:
    """The processor's name and flags, the cores this process may use, the instruction set of products, and what limits
    it."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {
        "cpu": " ".join([cpuinfo().get("model name", platform.processor() or platform.machine()), *generation()]),
        "cores": cores,
        "flags": flags(),
        "instruction set": instruction_set(),
        **({"limit": f"ELMO_FAST_ISA={limit}"} if (limit := os.environ.get("ELMO_FAST_ISA")) else {}),
        "system": f"{platform.system()} {platform.machine()}",
    }


def generation() -> list[str]:
    """The processor's family and model where Linux says them: a virtual machine may hide them from its name."""
    found = cpuinfo()
    return [f"{name} {found[key]}" for name, key in (("family", "cpu family"), ("model", "model")) if key in found]


def folder() -> str:
    """The name of the folder for results that hold for one generation of processors and one instruction set."""
    return "-".join([instruction_set(), *(each.split()[-1] for each in generation())])


def instruction_set() -> str:
    """What the products of elmo_fast use here (ELMO_FAST_ISA may name a slower one)."""
    from elmo_fast.ops import _native

    return _native.C.isa() if _native.C is not None else "none"


def hold_peers() -> None:
    """Where ELMO_FAST_ISA=avx2, torch's own products are held to AVX2 too, here and in processes that are started.

    To be called before torch computes anything.
    """
    if os.environ.get("ELMO_FAST_ISA") == "avx2":
        os.environ |= AVX2_ALONE


def versions() -> dict[str, str]:
    """Python's version and those of the installed libraries that a figure may depend on."""
    import elmo_fast

    found = {"python": platform.python_version(), "elmo_fast": elmo_fast.__version__}
    for name in LIBRARIES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "absent"
    return found


def commit() -> str:
    """The commit, with "+changes" where tracked files other than results and the pages with tables differ from it."""

    def git(*words: str) -> str:
        return subprocess.run(
            ["git", "-C", str(ROOT), *words], capture_output=True, text=True, check=True
        ).stdout.strip()

    try:
        changed = git("status", "--porcelain", "-uno", "--", ".", ":!benchmarks/results", ":!README.md", ":!docs")
        return git("rev-parse", "--short=12", "HEAD") + ("+changes" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return os.environ.get("ELMO_FAST_COMMIT", "unknown")  # a copy of the files alone must be told its commit


def asked_of_the_driver() -> dict[str, str]:
    """What `nvidia-smi` says of the first GPU (it is asked, nothing is set); empty where it cannot be asked."""
    command = ["nvidia-smi", "--id=0", f"--query-gpu={','.join(QUERY)}", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=20)
    except (OSError, subprocess.SubprocessError):
        return {}
    values = [value.strip() for value in done.stdout.splitlines()[0].split(",")]
    return dict(zip(QUERY, values, strict=True)) if len(values) == len(QUERY) else {}


def gpu() -> dict[str, Any]:
    """The GPU in use as torch and the driver describe it; {"gpu": "none"} where torch finds none."""
    import torch

    if not torch.cuda.is_available():
        return {"gpu": "none", "driver": "none", "cuda": torch.version.cuda or "none"}
    properties, asked = torch.cuda.get_device_properties(0), asked_of_the_driver()
    return {
        "gpu": properties.name,
        "driver": asked.get("driver_version", "unknown"),
        "cuda": torch.version.cuda,
        "compute capability": f"{properties.major}.{properties.minor}",
        "multiprocessors": properties.multi_processor_count,
        "memory, MiB": properties.total_memory // 2**20,
        "L2, MiB": properties.L2_cache_size / 2**20,
        "clocks": {name: value for name, value in asked.items() if name not in ("name", "driver_version")},
    }


def describe(command: str) -> dict[str, Any]:
    """All of the above, with the date, the command and the load of the machine just before."""
    return {
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "commit": commit(),
        "command": command,
        "load": round(os.getloadavg()[0], 2),
        "machine": processor(),
        "versions": versions(),
    }


def describe_gpu(command: str) -> dict[str, Any]:
    """As `describe`, with the GPU."""
    return {**describe(command), "gpu": gpu()}
