"""Docstrings of fields, for --help and help()."""

import ast
import functools
import inspect
import itertools
import textwrap
from typing import Any


@functools.cache
def docstrings(kind: type) -> dict[str, str]:
    """Return the docstring below each field of a class that has one, in one line; none without the class's source."""
    try:
        definition: Any = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0]
    except OSError:
        return {}
    return {
        field.target.id: " ".join(below.value.value.split())
        for field, below in itertools.pairwise(definition.body)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant)
        if isinstance(below.value.value, str)
    }


def document(kind: Any) -> Any:
    """Give each field of a NamedTuple the string below it, for help(); returns `kind`, whatever it is."""
    for name, sentence in docstrings(kind).items() if hasattr(kind, "_fields") else ():
        getattr(kind, name).__doc__ = sentence
    return kind
