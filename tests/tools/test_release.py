"""Which Python a wheel is built with, and which version it gets."""

import sys

import elmo_fast
from tools import release

NAME = "{}.{}".format(*sys.version_info)


def test_the_version_is_read_from_the_sources():
    assert release.version() == elmo_fast.__version__


def test_this_python_comes_first_and_serves_its_own_version_alone(tmp_path, monkeypatch):
    """A program of that name that fails, an absent one and one of another version do not count."""
    (broken := tmp_path / f"python{NAME}").write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    assert list(release.interpreters(NAME)) == [sys.executable, str(broken)]
    assert not release.suits(str(broken), NAME)
    assert not release.suits(str(tmp_path / "absent"), NAME)
    assert not release.suits(sys.executable, "3.10")


def test_a_python_needs_the_headers_and_the_oldest_version(tmp_path):
    """A free-threaded one prints False too."""
    for printed, expected in (
        ("3 12 1 True", True),
        ("3 12 1 False", False),
        ("3 11 4 True", True),
        ("3 11 2 True", False),
    ):
        (python := tmp_path / "python").write_text(f"#!/bin/sh\necho {printed}\n")
        python.chmod(0o755)
        assert release.suits(str(python), f"3.{printed.split()[1]}") is expected
