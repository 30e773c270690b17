"""_C.pyi, by which mypy knows the compiled extension, has what the extension has."""

import ast
import inspect
import pathlib

import pytest

import elmo_fast
from elmo_fast.ops import _native

pytestmark = pytest.mark.skipif(_native.C is None, reason=str(_native.WHY_NOT))


def arguments_in_docstring(function):
    """The names in the first line, which pybind11 writes: f(first: int, second: str) -> None."""
    call = ast.parse(f"def {function.__doc__.splitlines()[0]}: ...".replace("*,", "*, ")).body[0]
    return [argument.arg for argument in call.args.args]


def names(node):
    """{public name: argument names of a function, names of a class, None of a value} in the stub."""
    found = {}
    for each in node.body:
        if isinstance(each, ast.FunctionDef):
            is_property = any(ast.unparse(name) == "property" for name in each.decorator_list)
            found[each.name] = None if is_property else [argument.arg for argument in each.args.args]
        elif isinstance(each, ast.ClassDef):
            found[each.name] = names(each)
        elif isinstance(each, ast.AnnAssign):
            found[each.target.id] = None
    return found


def names_of(scope):
    """The same of the extension."""
    found = {}
    for name, value in vars(scope).items():
        if name.startswith("_") and name != "__init__":
            continue
        if inspect.isclass(value):
            found[name] = names_of(value)
        else:
            found[name] = arguments_in_docstring(value) if callable(value) else None
    return found


def test_the_stub_has_the_names_and_arguments_of_the_extension():
    stub = ast.parse((pathlib.Path(elmo_fast.__file__).parent / "_C.pyi").read_text(encoding="utf-8"))
    assert names(stub) == names_of(_native.C)
