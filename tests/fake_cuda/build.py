"""Compiles and loads the devices that pretend, once for each version of torch and of their source. Imports no torch."""

import ctypes
import hashlib
import importlib.metadata
import importlib.util
import os
import pathlib
import shutil
import subprocess

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


def load():
    """Loads them into this process, before torch: it asks for a device's hooks once."""
    ctypes.CDLL(str(library()), mode=ctypes.RTLD_GLOBAL)
