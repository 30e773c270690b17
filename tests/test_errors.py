"""Errors for an absent library, a broken one, or a very long value, as the user sees them."""

import dataclasses
import functools
import pathlib
import re
import tomllib

import pytest

import elmo_fast
from elmo_fast._io.fields import read_json
from elmo_fast.checkpoints import read_options
from elmo_fast.cli.main import main
from elmo_fast.errors import ElmoFastError, MissingExtraError, reinstall_command, require
from elmo_fast.static import load_vectors


@dataclasses.dataclass
class Empty:
    """A file of no keys."""


def test_a_missing_extra_is_one_sentence_with_the_line_that_installs_it():
    words = r"^A map needs nowhere_1, .*: pip install \"elmo-fast\[plots\]\"$"
    with pytest.raises(MissingExtraError, match=words) as caught:
        require("nowhere_1.maps", "plots", "A map")
    assert caught.value.name == "nowhere_1"
    assert isinstance(caught.value, ElmoFastError)
    assert isinstance(caught.value, ImportError)


def test_every_extra_that_a_message_names_is_one():
    root = pathlib.Path(elmo_fast.__file__).parent
    text = "".join(path.read_text(encoding="utf-8") for path in root.rglob("*.py"))
    named = set(re.findall(r'require\(\s*"[\w.]+", "(\w+)"', text))
    project = tomllib.loads((root.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert {"flair", "sbert", "spacy", "tasks"} <= named <= project["optional-dependencies"].keys()


def test_the_command_that_builds_again_knows_a_clone(tmp_path, monkeypatch):
    (package := tmp_path / "elmo_fast").mkdir()
    monkeypatch.setattr("elmo_fast.errors.__file__", str(package / "errors.py"))
    assert reinstall_command().startswith("pip install --force-reinstall --no-deps --no-cache-dir SOURCE (elmo-fast")
    (tmp_path / "setup.py").touch()
    assert reinstall_command() == f"pip install --no-build-isolation -e {tmp_path}"


def test_an_import_error_inside_a_library_is_not_a_missing_library(tmp_path, monkeypatch):
    """A broken installation keeps its own traceback."""
    (tmp_path / "half_installed.py").write_text("import nowhere_2\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="nowhere_2") as caught:
        require("half_installed", "plots", "A map")
    assert not isinstance(caught.value, MissingExtraError)


@pytest.mark.filterwarnings("always")
def test_messages_hold_no_control_characters(tmp_path, capsys):
    """In an error about a file or the command line, a warning, and an error of the parser; as repr escapes them."""
    assert (
        str(ElmoFastError("a\x1b[2Jb\r\u202ec\ud800\x9b é\n- 日本")) == r"a\x1b[2Jb\r\u202ec\ud800\x9b é" + "\n- 日本"
    )
    file = tmp_path / "\x1b[31m.txt"
    convert = ["static", "convert", str(file), "--output", str(tmp_path / "a.txt")]
    for content, status in (("a 1 2\na 1 2\n", 0), ("two\x1b[31m words\n", 2)):  # a warning and a line, an error
        file.write_text(content)
        assert main(convert) == status
        assert capsys.readouterr().err.count(r"\x1b[31m.txt: ") == 2 - status // 2
    with pytest.raises(SystemExit):
        main(["static", "convert", "--no\x1b[31m"])
    assert r"--no\x1b[31m" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("read", "content"),
    [
        (read_options, '{"lstm": {"%s": 1}}'),
        (functools.partial(read_json, kind=Empty), '{"%s": 1}'),
        (load_vectors, "the 1.0 2.0\ncat 1.0 %s\n"),
    ],
    ids=["options", "json", "vectors"],
)
def test_a_long_value_is_cut_so_that_the_message_remains_a_sentence(tmp_path, read, content):
    path = tmp_path / "given.txt"
    path.write_text(content % ("x" * 9000))
    with pytest.raises(ElmoFastError, match=r"x\.\.\.") as error:
        read(path)
    assert len(str(error.value)) < 2000
