"""Docstrings of fields and constructors, for help() and --help."""

import ast
import functools
import inspect
import itertools
import sys
from typing import Any


def docstrings(kind: type) -> dict[str, str]:
    """Return the docstring below each field of a class that has one, in one line: its help on the command line."""
    return _docstrings_in(kind.__module__).get(kind.__name__, {})


@functools.cache
def _docstrings_in(module: str) -> dict[str, dict[str, str]]:
    """Return class -> field -> docstring below it, of the classes of an imported module; none without its source."""
    try:
        definitions = ast.parse(inspect.getsource(sys.modules[module])).body
    except OSError:
        return {}
    return {
        definition.name: {
            field.target.id: " ".join(below.value.value.split())
            for field, below in itertools.pairwise(definition.body)
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
            if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant)
            if isinstance(below.value.value, str)
        }
        for definition in definitions
        if isinstance(definition, ast.ClassDef)
    }


def document(kind: Any) -> None:
    """Give what help() shows: a constructor its class's docstring, a NamedTuple's field the string below it."""
    if isinstance(kind, type) and "__init__" in vars(kind):
        kind.__init__.__doc__ = kind.__doc__  # type: ignore[misc]
    for name, sentence in docstrings(kind).items() if hasattr(kind, "_fields") else ():
        getattr(kind, name).__doc__ = sentence
