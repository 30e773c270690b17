"""Importing costs next to nothing, takes neither torch nor a compiled extension, and a missing extension says why."""

import os
import pathlib
import shutil
import subprocess
import sys

import elmo_fast
from elmo_fast.errors import reinstall_command

ROOT = pathlib.Path(elmo_fast.__file__).parents[1]
# Stands in front of every other finder: the extension is not there.
WITHOUT_EXTENSION = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name == "elmo_fast._C":
            raise ImportError("blocked for this test")
sys.meta_path.insert(0, Absent())
"""


def python(code, *words, **environment):
    """Runs code in a new interpreter that sees this checkout; returns what it printed."""
    paths = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code, *words],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": paths, **environment},
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_import_loads_no_torch_and_no_library():
    """`import elmo_fast` loads nothing but itself, in two modules."""
    code = "import sys, elmo_fast; print(sorted({m.partition('.')[0] for m in sys.modules} & set(sys.argv[1:])))"
    heavy = ["torch", "numpy", "h5py", "safetensors", "jsonargparse", "tqdm", "matplotlib", "yaml"]
    assert python(code, *heavy) == "[]"
    assert python("import h5py\n" + code, *heavy) != "[]"  # the question can be answered otherwise
    own = "import sys, elmo_fast; print(*sorted(name for name in sys.modules if name.partition('.')[0] == 'elmo_fast'))"
    assert python(own) == "elmo_fast elmo_fast._lazy"


def test_without_the_extension_the_native_backend_says_why_in_one_sentence():
    """The package imports and works; backend="auto" warns with the sentence; backend="native" raises with it."""
    code = WITHOUT_EXTENSION + (
        "import warnings, torch\n"
        "from elmo_fast import ops\n"
        "from elmo_fast.errors import ElmoFastError, PerformanceWarning\n"
        "x, w, b = torch.ones(2, 3), [torch.ones(6, 3)], [torch.zeros(6)]\n"
        "with warnings.catch_warnings(record=True) as caught:\n"
        "    warnings.simplefilter('always')\n"
        "    assert ops.highway(x, w, b).shape == (2, 3)\n"
        "assert [c.category for c in caught] == [PerformanceWarning]\n"
        "print(caught[0].message)\n"
        "try:\n"
        "    ops.highway(x, w, b, backend='native')\n"
        "except ElmoFastError as error:\n"
        "    print(error)\n"
    )
    warned, refused = python(code).splitlines()
    for sentence in (warned, refused):
        assert "the compiled extension elmo_fast._C is missing (" in sentence
        assert f"install a C++20 compiler, then run {reinstall_command()}" in sentence
    assert warned.startswith("all C++ ops: using the slower backend 'reference', because ")
    assert refused.startswith("highway: backend 'native' cannot serve this: ")


def test_without_triton_the_cpu_works_and_the_gpu_backend_says_why_not():
    """The CPU needs no Triton: no import fails, no warning comes, and explain has the sentence for a GPU."""
    code = (
        "import sys\n"
        "sys.modules['triton'] = None\n"
        "import torch\n"
        "import elmo_fast.modules, elmo_fast.pretrain.trainer\n"
        "from elmo_fast import ops\n"
        "assert ops.highway(torch.ones(2, 3), [torch.ones(6, 3)], [torch.zeros(6)]).shape == (2, 3)\n"
        "said = [ops.explain(op, 'cuda').refusals.get('triton', '') for op in ops.op_names()]\n"
        "wanted = 'is missing (import of triton halted; None in sys.modules); ', 'elmo-fast[gpu]'\n"
        "print(sum(all(words in why for words in wanted) for why in said))\n"
    )
    assert int(python(code)) >= 8


def test_an_extension_of_other_schemas_is_not_loaded(tmp_path):
    """One built before a pull may define the ops itself, which would end the process: its file is read first."""
    stale = tmp_path / "_C.so"
    stale.write_bytes(b"no library: loading it would fail")
    code = (
        "import sys\nfrom importlib.machinery import ExtensionFileLoader\n"
        "from importlib.util import spec_from_file_location\n"
        "class Stale:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'elmo_fast._C':\n"
        "            loader = ExtensionFileLoader(name, sys.argv[1])\n"
        "            return spec_from_file_location(name, sys.argv[1], loader=loader)\n"
        "sys.meta_path.insert(0, Stale())\n"
        "from elmo_fast.ops import _native\nprint(_native.C, _native.WHY_NOT)"
    )
    assert python(code, str(stale)) == (
        "None the compiled extension elmo_fast._C was built for other schemas (ops/_schemas.py); "
        f"rebuild it: {reinstall_command()}"
    )


def test_every_module_imports_where_unix_modules_are_missing():
    """No fcntl, no resource, no SIGKILL and SIGHUP, no compiled extension, as on Windows."""
    code = WITHOUT_EXTENSION.replace(
        'name == "elmo_fast._C"', 'name in ("elmo_fast._C", "fcntl", "resource", "termios", "pwd", "grp", "pty")'
    ) + (
        "import signal, importlib, pkgutil, elmo_fast\n"
        "del signal.SIGKILL, signal.SIGHUP\n"
        "others = ('elmo_fast._C', 'elmo_fast.integrations', 'elmo_fast.__main__')\n"
        "names = [m.name for m in pkgutil.walk_packages(elmo_fast.__path__, 'elmo_fast.')]\n"
        "names = [name for name in names if not name.startswith(others) and 'kernels' not in name]\n"
        "for name in names: importlib.import_module(name)\n"
        "print(len(names))\n"
    )
    assert int(python(code)) > 150


def test_sources_that_are_not_compiled_say_what_to_run(tmp_path):
    """One sentence, from Python started in the clone; what a build leaves there, also one that failed, ends it."""
    package = tmp_path / "elmo_fast"
    package.mkdir()
    (tmp_path / "setup.py").touch()
    for name in ("__init__.py", "_lazy.py"):
        shutil.copy(ROOT / "elmo_fast" / name, package)

    def started():
        done = subprocess.run([sys.executable, "-c", "import elmo_fast"], cwd=tmp_path, capture_output=True, text=True)
        return done.stderr.splitlines()[-1] if done.returncode else ""

    assert started() == (
        f"ImportError: {tmp_path} holds the sources of elmo_fast, which are not compiled: run `make build` or `pip "
        "install --no-build-isolation -e .` there or, if elmo_fast is installed, start Python in a different folder"
    )
    for name in ("_C.cpython-311-x86_64-linux-gnu.so", "_build_failure.txt"):
        (package / name).touch()
        assert started() == ""
        (package / name).unlink()
    assert started()
    (tmp_path / "setup.py").unlink()  # as installed
    assert started() == ""
