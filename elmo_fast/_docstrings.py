"""Docstrings of fields, for --help."""

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
