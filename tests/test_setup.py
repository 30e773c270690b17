"""What setup.py shows of a build while it goes on, and what it keeps of one that failed."""

import pathlib
import runpy
import sys

import pytest
import setuptools

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
def run(monkeypatch):
    monkeypatch.setattr(setuptools, "setup", lambda **options: None)
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
