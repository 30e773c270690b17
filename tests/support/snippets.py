"""Runs what a page shows: its Python and shell blocks, in order, in one folder; what they print is compared."""

import functools
import io
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
from contextlib import redirect_stdout
from typing import NamedTuple

from tests.support import fork_server
from tests.support.weights import make_weights

ROOT = pathlib.Path(__file__).resolve().parents[2]
BLOCK = re.compile(
    r"(<!-- not run: [^\n]*-->\n)?^```(\w*)\n(.*?)^```\n(?:```text\n(.*?)^```\n)?", re.MULTILINE | re.DOTALL
)
ORIGINAL_FILTERS = ((1, 32), (2, 32), (3, 64), (4, 128), (5, 256), (6, 512), (7, 1024))


class Snippet(NamedTuple):
    """A block that is run, and what the page says it prints ("": nothing is said)."""

    language: str
    code: str
    printed: str


def snippets(text):
    """The blocks of a page that are run, and the code of those that are not."""
    actual, left_out = [], []
    for skipped, language, code, printed in BLOCK.findall(text):
        if skipped:
            left_out.append(code)
        else:
            actual.append(Snippet(language, code, printed))
    return actual, left_out


@functools.cache
def model_of_pages(folder):
    """options.json and weights.hdf5 of the published small size, random, in the server's folder."""
    return make_weights(folder, cell=1024, proj=128, filters=ORIGINAL_FILTERS, char_dim=16, n_highway=1, scale=0.5)


def make_folder(path, server):
    """Fills an empty folder: the two files of a model, and bin/elmo-fast."""
    for file in model_of_pages(server.parent):
        shutil.copy(file, path)
    (path / "bin").mkdir()
    ask = shlex.join(["-P", "-S", fork_server.__file__, str(server)])
    for name, words in (("elmo-fast", ask), ("python", "")):
        script = path / "bin" / name
        script.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {words} "$@"\n')
        script.chmod(0o755)
    return path


def environment():
    """This process's, with no network and no GPU, this checkout's package, and warnings that are errors.

    Pages show what a CPU prints, whose numbers differ from a GPU's in the last digit, as its first line does.
    """
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep),
        "PYTHONWARNINGS": "error",
        "CUDA_VISIBLE_DEVICES": "",
        **dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), "http://127.0.0.1:9"),
    }


def run_shell(code, folder):
    """Return the output of `bash -e` for the code."""
    actual = environment() | {"PATH": f"{folder / 'bin'}:{os.environ['PATH']}"}
    done = subprocess.run(["bash", "-euc", code], cwd=folder, env=actual, capture_output=True, text=True)
    assert done.returncode == 0, f"{code}\n{done.stdout}\n{done.stderr}"
    assert "WARNING" not in done.stderr, f"{code}\n{done.stderr}"
    return done.stdout


def run_python(code, name):
    """Return the output of a Python block; it runs in this process, by itself, in the current folder."""
    out = io.StringIO()
    with redirect_stdout(out):
        exec(compile(code, name, "exec"), {"__name__": "__main__"})
    return out.getvalue()


def check(text, name, folder):
    """Runs every block of a page in `folder`, the current one; AssertionError where one prints something else."""
    for language, code, printed in snippets(text)[0]:
        output = run_python(code, name) if language == "python" else run_shell(code, folder)
        if printed:
            assert output == printed, code
