"""What setup.py shows of a build while it goes on, what it keeps of one that failed, and of which sources."""

import pathlib
import runpy
import shutil
import sys

import pytest

from tests.conftest import refuse_old_extension

SETUP = pathlib.Path(__file__).parents[1] / "setup.py"
SLOW_TOOL = """
import pathlib, sys, time
print("[1/2] first", flush=True)
until = time.monotonic() + 20
while not pathlib.Path(sys.argv[1]).exists() and time.monotonic() < until:
    time.sleep(0.01)
print("[2/2] second" if pathlib.Path(sys.argv[1]).exists() else "nobody saw the first line")
"""


@pytest.fixture
def run():
    return runpy.run_path(str(SETUP))["run"]


def test_lines_of_a_build_are_shown_as_they_come(run, tmp_path, monkeypatch):
    shown, seen = [], tmp_path / "seen"

    class Terminal:
        def write(self, text):
            shown.append(text)
            if "first" in text:
                seen.touch()

        def flush(self):
            pass

    monkeypatch.setattr(sys, "stdout", Terminal())
    run(sys.executable, "-c", SLOW_TOOL, str(seen))
    assert "".join(shown) == "[1/2] first\n[2/2] second\n"


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_the_first_error_is_kept(run, capsys, stream):
    tool = f"import sys; print('a.cpp:1: error: one\\nb.cpp:2: error: two', file=sys.{stream}); sys.exit(1)"
    with pytest.raises(RuntimeError, match=r"failed: a\.cpp:1: error: one$"):
        run(sys.executable, "-c", tool)
    assert "b.cpp:2: error: two" in capsys.readouterr().out


def test_an_extension_built_from_other_sources_is_refused(tmp_path, monkeypatch):
    """Without a digest too; not where there is no extension."""
    monkeypatch.delenv("ELMO_FAST_ANY_EXTENSION", raising=False)
    for name in ("csrc", "elmo_fast"):
        (tmp_path / name).mkdir()
    shutil.copy(SETUP, tmp_path)
    (tmp_path / "CMakeLists.txt").touch()
    source = tmp_path / "csrc" / "a.cpp"
    source.write_text("1")
    refuse_old_extension(tmp_path)
    (tmp_path / "elmo_fast" / "_C.so").touch()
    with pytest.raises(pytest.UsageError, match="make build"):
        refuse_old_extension(tmp_path)
    build = runpy.run_path(str(tmp_path / "setup.py"))
    build["DIGEST"].write_text(build["digest_of_sources"]())
    refuse_old_extension(tmp_path)
    source.write_text("2")
    with pytest.raises(pytest.UsageError, match="make build"):
        refuse_old_extension(tmp_path)
