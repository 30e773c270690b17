"""python -m tests.standin COMMAND ...: runs a command of this environment with two CUDA devices made of the CPU."""

import os
import pathlib
import shutil
import sys

from tests.standin import library

here = pathlib.Path(__file__).parent
library()
os.environ["STANDIN"] = "1"
os.environ.setdefault("TRITON_INTERPRET", "1")
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(here), os.environ.get("PYTHONPATH")]))
command, *arguments = sys.argv[1:]
scripts = pathlib.Path(sys.executable).parent
path = f"{scripts}{os.pathsep}{os.environ['PATH']}"
program = sys.executable if command == "python" else shutil.which(command, path=path)
os.execv(program, [program, *arguments])
