"""Run a command of this environment, and its child processes, on two CUDA devices in the CPU's memory.

python -m tests.standin COMMAND ...
"""

import os
import pathlib
import shutil
import sys

from tests.standin import library

library()  # before processes begin at once
os.environ["STANDIN"] = "1"
os.environ.setdefault("TRITON_INTERPRET", "1")
here = str(pathlib.Path(__file__).parent)
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [here, os.environ.get("PYTHONPATH")]))
command, *arguments = sys.argv[1:]
path = os.pathsep.join([str(pathlib.Path(sys.executable).parent), os.environ["PATH"]])
program = sys.executable if command == "python" else shutil.which(command, path=path)
if program is None:
    sys.exit(f"python -m tests.standin: there is no program {command!r}")
os.execv(program, [program, *arguments])
