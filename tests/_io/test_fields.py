"""JSON files of our own: values that fit the type are taken, others reported with file, key, type and value."""

import dataclasses
import json
from typing import Any, Literal, TypedDict

import pytest

from elmo_fast._docstrings import docstrings
from elmo_fast._io.fields import parsed, read_json
from elmo_fast.errors import CheckpointError


@dataclasses.dataclass
class Inner:
    name: str
    size: float = 1.0

    def __post_init__(self):
        if self.name == str(self.size):
            raise CheckpointError("name and size must differ")


@dataclasses.dataclass
class Outer:
    format: Literal["toy"]
    version: Literal[1]
    inner: Inner
    rows: list[list[float]]
    counts: dict[str, int]
    column: int | str | None = None
    flag: bool = False
    rest: Any = dataclasses.field(default_factory=dict)


Loose = TypedDict("Loose", {"made from": dict[str, int]})

WHOLE = {
    "format": "toy",
    "version": 1,
    "inner": {"name": "a", "size": 2},
    "rows": [[0.5, 1], []],
    "counts": {"a": 1},
    "column": "xpos",
    "flag": True,
    "rest": [None, {"x": 1e400}],
}


@dataclasses.dataclass
class Settings:
    """Of the next test."""

    plain: str = "no docstring"
    size: int = 3
    """how large
    it is"""
    names: list[str] = dataclasses.field(default_factory=list)
    """entries"""

    def method(self):
        """Do nothing."""


def test_the_docstring_below_a_field_is_its_own_in_one_line():
    """Neither that of the class nor a default that is a string is taken for one."""
    assert docstrings(Settings) == {"size": "how large it is", "names": "entries"}


def test_what_fits_is_taken_as_it_is(tmp_path):
    (tmp_path / "a.json").write_text(json.dumps(WHOLE))
    read = read_json(tmp_path / "a.json", Outer)
    assert read == Outer("toy", 1, Inner("a", 2), [[0.5, 1], []], {"a": 1}, "xpos", True, [None, {"x": float("inf")}])
    assert parsed('\ufeff{"name": "é"}'.encode(), Inner, "x") == Inner("é")
    loose = {"made from": {"a": 1}, "other": [1]}
    assert parsed(json.dumps(loose), Loose, "x") == loose


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"version": 2}, "version: wanted 1, found 2"),
        ({"version": True}, "version: wanted 1, found true"),
        ({"format": []}, 'format: wanted "toy", found a list'),
        ({"inner": 3}, "inner: wanted an object, found 3"),
        ({"inner": {}}, "inner.name: wanted a string, found nothing"),
        ({"inner": {"name": None}}, "inner.name: wanted a string, found null"),
        ({"inner": {"name": "2", "size": 2}}, "name and size must differ"),
        ({"inner": {"name": "a", "width": 1}}, "inner.width: unknown key; known: name, size"),
        ({"rows": {}}, "rows: wanted a list, found an object"),
        ({"rows": [[], [1, "x"]]}, r'rows\[1\]\[1\]: wanted a number, found "x"'),
        ({"counts": {"a": 1.0}}, "counts.a: wanted a whole number, found 1.0"),
        ({"counts": {"a": True}}, "counts.a: wanted a whole number, found true"),
        ({"column": 1.5}, "column: wanted a whole number or a string or null, found 1.5"),
        ({"flag": 0}, "flag: wanted true or false, found 0"),
        ({"flag": "x" * 100}, r'flag: wanted true or false, found "x{56}\.\.\.$'),
    ],
)
def test_what_does_not_fit_is_named(tmp_path, change, sentence):
    (tmp_path / "a.json").write_text(json.dumps(WHOLE | change))
    with pytest.raises(CheckpointError, match=rf"a\.json: {sentence}"):
        read_json(tmp_path / "a.json", Outer)


@pytest.mark.parametrize("text", [b"", b"{", b"[" * 100_000, b'{"a":' * 100_000, b"\xff\x00", b"1" * 5000, b"\0"])
def test_what_is_not_json_is_named(tmp_path, text):
    """Also what is too deep for Python's parser, and numbers too long for it."""
    (tmp_path / "a.json").write_bytes(text)
    (tmp_path / "b.json").write_text("{}", "utf-16")
    assert read_json(tmp_path / "b.json", dict[str, int]) == {}  # as JSON allows
    with pytest.raises(CheckpointError, match=r"a\.json: not JSON text, or damaged \("):
        read_json(tmp_path / "a.json", Outer)


def test_an_endless_file_is_refused():
    with pytest.raises(CheckpointError, match=r"^/dev/zero: more than 67,108,864 bytes, which is no JSON file"):
        read_json("/dev/zero", Outer)


def test_what_is_not_there_is_named(tmp_path):
    for path in (tmp_path / "absent.json", tmp_path):
        with pytest.raises(CheckpointError, match=rf"{path.name}: cannot be read"):
            read_json(path, Outer)
