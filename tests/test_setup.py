"""Output of setup.py during a build, what it keeps of one that failed, and the sources that it builds."""

import contextlib
import pathlib
import runpy
import shutil
import subprocess
import sys
from types import SimpleNamespace

import pytest

from elmo_fast.ops import _sources
from tests.support.extension import refuse_old_extension

SETUP = pathlib.Path(__file__).parents[1] / "setup.py"


@pytest.fixture
def run():
    return runpy.run_path(str(SETUP))["run"]


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_the_first_error_is_kept_and_all_lines_go_to_the_log(run, tmp_path, capsys, stream):
    tool = f"import sys; print('a.cpp:1: error: one\\nb.cpp:2: error: two', file=sys.{stream}); sys.exit(1)"
    log = tmp_path / "build" / "failure.log"
    with pytest.raises(RuntimeError, match=r"failed: a\.cpp:1: error: one$"):
        run(sys.executable, "-c", tool, log=log)
    assert log.read_text() == capsys.readouterr().out == "a.cpp:1: error: one\nb.cpp:2: error: two\n"


def test_an_extension_built_from_other_sources_is_refused(tmp_path, monkeypatch):
    """Without a digest too; not where there is no extension."""
    monkeypatch.delenv("ELMO_FAST_ANY_EXTENSION", raising=False)
    for name in ("csrc", "elmo_fast/ops"):
        (tmp_path / name).mkdir(parents=True)
    shutil.copy(_sources.__file__, tmp_path / "elmo_fast" / "ops")
    for name in ("CMakeLists.txt", "elmo_fast/ops/_schemas.py"):
        (tmp_path / name).touch()
    source = tmp_path / "csrc" / "a.cpp"
    source.write_text("1")
    refuse_old_extension(tmp_path)
    (tmp_path / "elmo_fast" / "_C.cpython-311-x86_64-linux-gnu.so").touch()
    with pytest.raises(pytest.UsageError, match="make build"):
        refuse_old_extension(tmp_path)
    (tmp_path / _sources.DIGEST).write_text(_sources.digest_of_sources(tmp_path))
    refuse_old_extension(tmp_path)
    source.write_text("2")
    with pytest.raises(
        pytest.UsageError, match=r"csrc/, CMakeLists\.txt and elmo_fast/ops/_schemas\.py as they are now"
    ):
        refuse_old_extension(tmp_path)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        ("cmake failed: CMake Error at a:3: No CMAKE_CXX_COMPILER could be found.", "install a C++20 compiler"),
        ("CMake Error at b:9: Could NOT find Python (missing: Development.Module)", "install the headers of this"),
        ("No module named 'torch'", "install cmake, ninja, pybind11 and torch"),
        ("ninja failed: g++: error: unrecognized command-line option '-std=gnu++20'", "install a newer C++ compiler"),
        ("cmake failed: a.cpp:1: error: one", "read what failed in {log}, correct it"),
    ],
)
def test_each_failure_has_its_own_advice(tmp_path, error, expected):
    """And a compiler is not asked for where one failed for another reason."""
    log = tmp_path / "failure.log"
    log.touch()
    assert runpy.run_path(str(SETUP))["advice"](error, log).startswith(expected.format(log=log))


def test_the_note_names_no_folder_of_the_build():
    """It is read long after, when pip has removed the folder that it built in."""
    setup = runpy.run_path(str(SETUP))
    error = f"ninja failed: {setup['HERE']}/csrc/a.cpp:3:1: error: expected ';'"
    assert setup["lasting_note"](error) == "ninja failed: csrc/a.cpp:3:1: error: expected ';'\ncorrect that\n"


def test_an_extension_is_linked_once_for_whoever_builds_it(tmp_path, monkeypatch):
    """Once for pip and once in place, into other folders each, from one that ninja finds up to date."""
    setup, linked = runpy.run_path(str(SETUP)), []
    monkeypatch.setitem(setup["CMakeBuild"].compile.__globals__, "HERE", tmp_path)

    def popen(command, **settings):
        linked.extend(each.partition("=")[2] for each in command if "LIBRARY_OUTPUT_DIRECTORY" in each)
        pathlib.Path(linked[-1]).mkdir(parents=True, exist_ok=True)
        (pathlib.Path(linked[-1]) / "_C.so").write_text("linked")
        return contextlib.nullcontext(SimpleNamespace(stdout=[], returncode=0))

    monkeypatch.setattr(subprocess, "Popen", popen)
    for folder in ("pip", "place"):
        setup["CMakeBuild"].compile(None, tmp_path / folder / "_C.so")
        assert (tmp_path / folder / "_C.so").read_text() == "linked"
    assert linked[0] == linked[1]


def test_an_old_setuptools_is_named(monkeypatch):
    """A new environment of Python 3.11 has that one, and --no-build-isolation builds with it."""
    monkeypatch.setattr("setuptools.__version__", "65.5.0")
    with pytest.raises(SystemExit, match=r'setuptools 77 or newer, and this is 65\.5\.0: pip install "setuptools>=77"'):
        runpy.run_path(str(SETUP))
