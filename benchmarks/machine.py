"""What a figure holds for: the processor, the versions, the commit and the command."""

import datetime
import importlib.metadata
import os
import pathlib
import platform
import subprocess
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[1]
FLAGS = ("avx2", "avx512f", "avx512_bf16", "avx512_fp16", "amx_tile", "amx_bf16", "amx_fp16")
LIBRARIES = ("torch", "numpy", "h5py", "safetensors", "jsonargparse")


def processor() -> dict[str, Any]:
    """The processor's model name, the cores this process may use, and which of FLAGS it has."""
    found: dict[str, str] = {}
    cpuinfo = pathlib.Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        for line in cpuinfo.read_text(encoding="utf-8").split("\n\n")[0].splitlines():
            name, _, value = line.partition(":")
            found[name.strip()] = value.strip()
    has = found.get("flags", "").split()
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {
        "cpu": found.get("model name", platform.processor() or platform.machine()),
        "cores": cores,
        "flags": [flag for flag in FLAGS if flag in has],
        "system": f"{platform.system()} {platform.machine()}",
    }


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
    """The commit, with "+changes" where tracked files other than results and README.md differ from it."""

    def git(*words: str) -> str:
        return subprocess.run(
            ["git", "-C", str(ROOT), *words], capture_output=True, text=True, check=True
        ).stdout.strip()

    try:
        changed = git("status", "--porcelain", "-uno", "--", ".", ":!benchmarks/results", ":!README.md")
        return git("rev-parse", "--short=12", "HEAD") + ("+changes" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


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
