"""Runs training, evaluation and embedding on fake tensors of a CUDA device that pretends, and prints as JSON what the
host code did.

python -m tests.fake_cuda DEVICE PRECISION: every op's host functions really run, launches are recorded, and results are
compared with the registered fakes. Tensors have shapes and no values, so code that reads a value on the host
(`.item()`, `nonzero`, a boolean mask) fails; what copies one there is listed.
"""

import ctypes
import hashlib
import importlib.metadata
import importlib.util
import json
import os
import pathlib
import shutil
import subprocess
import sys

SOURCE = pathlib.Path(__file__).with_name("devices.cpp")
BUILD = pathlib.Path(__file__).parents[2] / "build" / "fake_cuda"


def library():
    """The compiled devices; compiled now if they were not before."""
    digest = hashlib.sha256(importlib.metadata.version("torch").encode() + SOURCE.read_bytes()).hexdigest()[:16]
    made = BUILD / f"{digest}.so"
    if not made.is_file():
        BUILD.mkdir(parents=True, exist_ok=True)
        home, part = pathlib.Path(importlib.util.find_spec("torch").origin).parent, made.with_suffix(f".{os.getpid()}")
        flags = ["-std=c++20", "-O0", "-shared", "-fPIC", "-w", f"-isystem{home / 'include'}"]
        libraries = [f"-L{home / 'lib'}", f"-Wl,-rpath,{home / 'lib'}", "-ltorch_cpu", "-lc10"]
        subprocess.run([shutil.which("g++"), *flags, str(SOURCE), *libraries, "-o", str(part)], check=True)
        part.replace(made)
    return made


def main(device, precision):
    os.environ |= {"TRITON_INTERPRET": "0", "ELMO_FAST_CUDA_GRAPHS": "0"}
    # Before torch, which asks for a device's hooks once.
    ctypes.CDLL(str(library()), mode=ctypes.RTLD_GLOBAL)
    from tests.fake_cuda import watch

    watch.install()  # before elmo_fast
    from tests.fake_cuda import works

    print(json.dumps(works.all_works(device, precision)))


if __name__ == "__main__":
    main(*sys.argv[1:])
