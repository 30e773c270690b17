"""Docstrings name only what exists: an entry `name: ...` is a parameter, a name in backticks is one of the code's."""

import ast
import builtins
import keyword
import pathlib
import re
import textwrap

import pytest

PACKAGE = pathlib.Path(__file__).resolve().parents[1] / "elmo_fast"
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
LABELS = {"Raises", "Warns", "Source", "Args", "Returns", "Yields", "Attributes", "Floor"}
# Names in backticks that other libraries and files define.
FOREIGN = {
    "ELMoEmbeddings", "_ElmoBiLm", "_ElmoCharacterEncoder", "LstmCellWithProjection", "_build_word_embeddings",
    "weight_layers", "to_empty", "load_state_dict", "save_to_disk", "launch_pdl",
    "Pipeline", "embedding", "embeddings", "offsets", "names", "sentence", "label", "text",
}  # fmt: skip
# At the start of a paragraph or of an indented line, or after a full stop or semicolon: `name: ` or `name, other: `.
ENTRY = re.compile(r"(?:\A|\n\n *|\n    |(?<=[.;])\s+)((?:`?\w+`?(?:, | and ))*`?\*{0,2}[^\W\d]\w*`?): (?! )")
BLOCK = re.compile(r"^( *)(?:Returns|Yields|Attributes):\n(?:\1 +.*\n|\n)*", re.MULTILINE)
TICKED = re.compile(r"(?<![`}\w])`([^\W\d]\w*)(?:\([^`]*)?`(?!`)")


def parameters(function):
    named = function.args
    several = [*named.posonlyargs, *named.args, *named.kwonlyargs, named.vararg, named.kwarg]
    return {each.arg for each in several if each is not None}


def fields(node):
    """The names assigned in the body of a class or module, also within its `if` and `try`."""
    names = set()
    for each in node.body:
        if isinstance(each, (ast.Assign, ast.AnnAssign, ast.If, ast.Try, ast.With, ast.For)):
            names |= {
                name.id for name in ast.walk(each) if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store)
            }
    return names


def defined(node):
    """The functions and classes in a body, and its fields."""
    return fields(node) | {each.name for each in node.body if isinstance(each, (*FUNCTIONS, ast.ClassDef))}


def used(node):
    """Every identifier in a piece of code."""
    names = set()
    for each in ast.walk(node):
        match each:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name) | ast.keyword(arg=str(name)):
                names.add(name)
    return names


def everywhere(trees):
    """Names that any docstring may use in backticks: modules, and what modules and classes define."""
    names = {name for path in trees for name in (path.stem, path.parent.name)} | FOREIGN | set(dir(builtins))
    for tree in trees.values():
        names |= defined(tree)
        for each in ast.walk(tree):
            if isinstance(each, ast.ClassDef):
                names |= defined(each)
            elif isinstance(each, ast.alias):
                names.add((each.asname or each.name).split(".")[0])
    return names


def complaints(tree, shared, any_parameter=frozenset()):
    """Every name in a docstring of the module that is neither a parameter nor known to the code."""
    strings = {each.value for each in ast.walk(tree) if isinstance(each, ast.Constant) and isinstance(each.value, str)}

    def walk(node, enclosing, names):
        for each in ast.iter_child_nodes(node):
            if not isinstance(each, (*FUNCTIONS, ast.ClassDef)):
                if isinstance(each, ast.stmt) and hasattr(each, "body"):
                    yield from walk(each, enclosing, names)
                continue
            if isinstance(each, ast.ClassDef):
                methods = [member for member in each.body if isinstance(member, FUNCTIONS)]
                makers = [member for member in methods if member.name in ("__init__", "__new__")]
                attributes = {inner.attr for inner in ast.walk(each) if isinstance(inner, ast.Attribute)}
                own = defined(each).union(attributes, *map(parameters, makers))
                known, within = own, names.union(own, *map(parameters, methods))
                open_ended = any(member.args.kwarg for member in makers)
            else:
                own = parameters(each)
                known, within, open_ended = enclosing | own, names | own, each.args.kwarg is not None
            if (text := ast.get_docstring(each)) is not None:
                returns = getattr(each, "returns", None)
                if (
                    isinstance(returns, ast.Constant)
                    and returns.value is None
                    and text.startswith(("Return ", "Yield "))
                ):
                    yield f"line {each.lineno}, {each.name}: returns nothing"
                yield from check(each, text, known | any_parameter if open_ended else known, within)
            yield from walk(each, known if isinstance(each, FUNCTIONS) else set(), within)

    def check(node, text, known, names):
        blocks = "".join(block[0] for block in BLOCK.finditer(f"{text}\n"))
        returned = set(re.findall(r"\b\w+(?=: |, )", blocks))
        for match in ENTRY.finditer(BLOCK.sub("", f"{text}\n")):
            for name in re.split(r", | and ", match[1]):
                name = name.strip("`*")
                if name not in known | LABELS | {"None", "True", "False"} and not name.endswith("Error"):
                    yield f"line {node.lineno}, {node.name}: {name!r} is not a parameter"
        for name in TICKED.findall(text):
            certain = name in shared or name in names | returned | strings or keyword.iskeyword(name) or name.isdigit()
            if not certain and name not in used(node):
                yield f"line {node.lineno}, {node.name}: `{name}` names nothing"

    return list(walk(tree, set(), set()))


def test_docstrings_of_the_package_name_what_exists():
    """Docstrings of public and private functions and classes."""
    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(PACKAGE.rglob("*.py"))}
    assert len(trees) > 150
    shared = everywhere(trees)
    functions = [each for tree in trees.values() for each in ast.walk(tree) if isinstance(each, FUNCTIONS)]
    any_parameter = set().union(*map(parameters, functions))
    actual = [
        f"{path.relative_to(PACKAGE.parent)}, {complaint}"
        for path, tree in trees.items()
        for complaint in complaints(tree, shared, any_parameter)
    ]
    assert not actual, "\n".join(actual)


@pytest.mark.parametrize(
    ("docstring", "wrong"),
    [
        ("Return it.\n\nrows: how many; other: absent.", ["'other' is not a parameter"]),
        ("Return it.\n\nArgs:\n    rows: how many.\n    row: absent.", ["'row' is not a parameter"]),
        ("Return it.\n\nRows: how many.", ["'Rows' is not a parameter"]),
        ("Return it; `held` is closed.", ["`held` names nothing"]),
        ("Return the `rows` of `Reader`, as `path` says. Raises: OSError.\n\nReturns:\n    done: a number", []),
        ("Read what the text says about it: everything.\n\nNone: no rows.", []),
    ],
)
def test_the_check_finds_names_that_do_not_exist(docstring, wrong):
    """Also where a message of the same function contains the word."""
    code = f'''
class Reader:
    path: str

    def read(self, rows):
        """{docstring}"""
        raise ValueError("no held-out text")
'''
    actual = complaints(ast.parse(textwrap.dedent(code)), {"Reader"})
    assert [complaint.partition(": ")[2] for complaint in actual] == wrong
