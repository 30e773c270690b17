"""What an absent library, or a broken one, looks like to the user."""

import sys

import pytest

from elmo_fast.errors import ElmoFastError, MissingExtraError, require


def test_a_missing_extra_is_one_sentence_with_the_line_that_installs_it():
    words = r"^A map needs nowhere_1, .*pip install \"elmo-fast\[plots\]\"$"
    with pytest.raises(MissingExtraError, match=words) as caught:
        require("nowhere_1.maps", "plots", "A map")
    assert caught.value.name == "nowhere_1"
    assert isinstance(caught.value, ElmoFastError)
    assert isinstance(caught.value, ImportError)


def test_a_library_that_is_there_is_returned_by_its_whole_name():
    assert require("xml.dom.minidom", "plots", "A map") is sys.modules["xml.dom.minidom"]


def test_an_import_that_fails_inside_a_library_is_not_taken_for_its_absence(tmp_path, monkeypatch):
    """A broken installation keeps its own traceback."""
    (tmp_path / "half_installed.py").write_text("import nowhere_2\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="nowhere_2") as caught:
        require("half_installed", "plots", "A map")
    assert not isinstance(caught.value, MissingExtraError)
