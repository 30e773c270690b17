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
LABELS = {"Raises", "Warns", "Source", "Args", "Returns", "Yields", "Attributes", "Floor", "None", "True", "False"}
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


def names_in(node):
    """Every identifier in a piece of code, and every string that is a name."""
    names = set()
    for each in ast.walk(node):
        match each:
            case (
                ast.Name(id=str(name))
                | ast.Attribute(attr=name)
                | ast.arg(arg=name)
                | ast.keyword(arg=str(name))
                | ast.Constant(value=str(name))
                | ast.FunctionDef(name=name)
                | ast.ClassDef(name=name)
                | ast.alias(name=name)
            ):
                names.add(name)
    return names


def complaints(tree, everywhere, any_parameter=frozenset(), known=frozenset()):
    """Yield every name in a docstring of the module that is neither a parameter nor in the code.

    everywhere: the names of the package; any_parameter: those of all its functions, as some take `**settings`; known:
    what an entry may name in an inner function or class besides its own.
    """
    for each in ast.iter_child_nodes(tree):
        inner = known
        if isinstance(each, (*FUNCTIONS, ast.ClassDef)):
            functions = [each] if isinstance(each, FUNCTIONS) else [m for m in each.body if isinstance(m, FUNCTIONS)]
            inner = known.union(*map(parameters, functions))
            if any(function.args.kwarg for function in functions):
                inner |= any_parameter
            if isinstance(each, ast.ClassDef):
                inner |= names_in(each)
            text = f"{ast.get_docstring(each) or ''}\n"
            for entry in ENTRY.findall(BLOCK.sub("", text)):
                names = {name.strip("`*") for name in re.split(r", | and ", entry)} - inner - LABELS
                yield from (f"{each.name}: {name!r} is not a parameter" for name in names if not name.endswith("Error"))
            for name in set(TICKED.findall(text)) - everywhere:
                yield f"{each.name}: `{name}` names nothing"
        yield from complaints(each, everywhere, any_parameter, inner)


def test_docstrings_of_the_package_name_what_exists():
    """Docstrings of public and private functions and classes."""
    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(PACKAGE.rglob("*.py"))}
    assert len(trees) > 150
    everywhere = {name for path in trees for name in (path.stem, path.parent.name)} | FOREIGN | set(dir(builtins))
    everywhere = everywhere.union(keyword.kwlist, *map(names_in, trees.values()))
    functions = [each for tree in trees.values() for each in ast.walk(tree) if isinstance(each, FUNCTIONS)]
    any_parameter = set().union(*map(parameters, functions))
    actual = [
        f"{path.relative_to(PACKAGE.parent)}, {complaint}"
        for path, tree in trees.items()
        for complaint in complaints(tree, everywhere, any_parameter)
    ]
    assert not actual, "\n".join(actual)


@pytest.mark.parametrize(
    ("docstring", "wrong"),
    [
        ("Return it.\n\nrows: how many; other: absent.", ["'other' is not a parameter"]),
        ("Return it.\n\nArgs:\n    rows: how many.\n    row: absent.", ["'row' is not a parameter"]),
        ("Return it; `held` is closed.", ["`held` names nothing"]),
        ("Return the `rows` of `Reader`, as `path` says. Raises: OSError.\n\nReturns:\n    done: a number", []),
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
    tree = ast.parse(textwrap.dedent(code))
    assert [complaint.partition(": ")[2] for complaint in complaints(tree, names_in(tree))] == wrong
