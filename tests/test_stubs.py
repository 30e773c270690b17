"""Tests stub torch and the system, never a function of elmo_fast: what is stubbed is not tested."""

import ast
import contextlib
import pathlib
import pkgutil

from elmo_fast.errors import ElmoFastError

TESTS = pathlib.Path(__file__).parent


def stubbed(code):
    """Return the functions of elmo_fast that a file of tests replaces: by monkeypatch, mock or assignment."""
    nodes, names, written = list(ast.walk(ast.parse(code))), {"pkgutil": pkgutil}, []
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("elmo_fast"):
            with contextlib.suppress(ImportError, ElmoFastError):  # of an extra
                exec(ast.unparse(node), names)
        elif isinstance(node, ast.Assign):
            written += [ast.unparse(target) for target in node.targets if isinstance(target, ast.Attribute)]
        elif (
            isinstance(node, ast.Call)
            and node.args
            and ast.unparse(node.func).endswith(("setattr", "patch", ".object"))
        ):
            first, second = map(ast.unparse, [*node.args, node.args[0]][:2])
            named = isinstance(node.args[0], ast.Constant)
            written.append(f"pkgutil.resolve_name({first})" if named else f"{first}.{second[1:-1]}")
    actual = []
    for name in written:
        with contextlib.suppress(NameError, AttributeError, SyntaxError, ImportError, ValueError):
            actual.append((name, eval(name, names)))
    return [n for n, each in actual if callable(each) and getattr(each, "__module__", "").startswith("elmo_fast")]


def test_a_stub_of_our_own_function_is_seen():
    code = 'from elmo_fast.cli import check\nmonkeypatch.setattr(check, "mark_of", None)\ncheck.remind = None\n'
    code += (
        'monkeypatch.setattr("elmo_fast._runtime.memory.available", None)\nmonkeypatch.setattr(check, "DRIVER", None)\n'
    )
    assert len(stubbed(code)) == 3


def test_no_function_of_ours_is_stubbed():
    files = {path.relative_to(TESTS): path.read_text(encoding="utf-8") for path in sorted(TESTS.rglob("*.py"))}
    left = [f"{path}: {name}" for path, code in files.items() for name in stubbed(code)]
    assert not left, "\n".join(left)
