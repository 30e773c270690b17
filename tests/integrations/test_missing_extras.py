"""Importing an integration without its library is an error of one sentence that names the line to install it."""

import importlib
import sys

import pytest

from elmo_fast.errors import MissingExtraError


class Absent:
    """A finder in front of all others for which one library is not installed."""

    def __init__(self, library):
        self.library = library

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == self.library:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


@pytest.mark.parametrize(
    ("name", "extra"),
    [
        ("sklearn", "tasks"),
        ("spacy", "spacy"),
        ("flair", "flair"),
        ("sentence_transformers", "sbert"),
    ],
)
def test_a_library_that_is_not_installed(name, extra, monkeypatch):
    module = f"elmo_fast.integrations.{name}"
    for loaded in [loaded for loaded in sys.modules if loaded == module or loaded.partition(".")[0] == name]:
        monkeypatch.delitem(sys.modules, loaded)
    monkeypatch.setattr(sys, "meta_path", [Absent(name), *sys.meta_path])
    with pytest.raises(MissingExtraError) as caught:
        importlib.import_module(module)
    assert str(caught.value).startswith(f"{module} needs {name}, which is not installed: pip install ")
    assert str(caught.value).endswith(f': pip install "elmo-fast[{extra}]"')
