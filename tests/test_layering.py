"""Imports run one way (docs/design.md), between layers and files; imports inside functions count too."""

import ast
import graphlib
import pathlib

import pytest

import elmo_fast
from tools.imports import file_of, imported

PACKAGE = pathlib.Path(elmo_fast.__file__).parent
ROOT = PACKAGE.parent
# Public name of the package -> the layer that defines it.
HOMES = {name: module for module, names in elmo_fast._MODULES.items() for name in names}
# The core imports nothing of what is around it; a command of `cli` does, inside its functions, when it is run.
AROUND = {"compat", "integrations", "pictures", "report", "static", "tasks", "tokens"}
SUPPORT = {"_docstrings", "_lazy", "_runtime", "errors", "_io", "op_choices"}
BELOW_MODULES = SUPPORT | {"_runtime", "ops", "checkpoints", "text"}
BELOW_COMMANDS = BELOW_MODULES | {"corpus", "modules", "embed", "pretrain"}
# Layer -> the layers it may import besides itself. A layer that is not named here has no place yet: an error too.
MAY_IMPORT = {
    "_C": set(),
    "_docstrings": set(),
    "_lazy": {"_docstrings"},
    "errors": set(),
    "_runtime": {"errors"},
    "_io": {"errors", "_runtime"},
    "op_choices": set(),
    "ops": {"_docstrings", "_runtime", "errors", "_io", "op_choices"},
    "checkpoints": {"errors", "_io", "_runtime", "op_choices"},
    "text": {"errors", "_io", "op_choices"},
    "corpus": {"_lazy", "_runtime", "errors", "_io", "op_choices", "text", "ops"},
    "modules": BELOW_MODULES,
    "embed": BELOW_MODULES | {"modules"},
    "pretrain": BELOW_MODULES | {"corpus", "modules", "embed"},
    "cli": BELOW_COMMANDS | AROUND | {"_runtime"},
    "static": BELOW_MODULES | {"corpus", "embed", "modules"},
    "tokens": BELOW_MODULES | {"embed", "modules", "static"},
    "tasks": BELOW_MODULES | {"embed", "modules", "static"},
    "pictures": BELOW_COMMANDS | {"static"},
    "compat": BELOW_COMMANDS,
    "integrations": BELOW_MODULES | {"embed", "modules", "static"},
    "report": BELOW_COMMANDS | {"pictures", "static", "tasks", "tokens"},
    "__main__": {"cli"},
    "__init__": {"_lazy"},
}


def files_of(root):
    """Yield each file of the package below `root`, its place in the package, and what it imports of the package."""
    for path in sorted((root / "elmo_fast").rglob("*.py")):
        own = [(line, name[10:]) for line, name in imported(path, root) if f"{name}.".startswith("elmo_fast.")]
        yield path, path.relative_to(root / "elmo_fast"), own


def within_functions(path):
    """Lines of a file that run only when one of its functions is called."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    return {line for node in functions for line in range(node.lineno, node.end_lineno + 1)}


def violations(root):
    """One sentence per import that the table above forbids."""
    actual = []
    for path, place, own in files_of(root):
        parts = place.with_suffix("").parts
        layer = parts[0]
        if layer not in MAY_IMPORT:
            actual.append(f"{place}: layer {layer!r} is not in the table")
            continue
        for line, name in own:
            target = HOMES.get(name, name).split(".")
            where = f"{place}:{line} imports elmo_fast.{'.'.join(target)}"
            if target[0] in ("", "__version__", layer):
                actual += [where] if layer == "ops" and not within_ops(parts, target) else []
            elif target[0] == "_C":
                actual += [] if parts == ("ops", "_native") else [where]
            elif target[0] not in MAY_IMPORT[layer] or (
                layer == "cli" and target[0] in AROUND and line not in within_functions(path)
            ):
                actual.append(where)
    return actual


def within_ops(parts, target):
    """An op may use another op's public function, never its backends; what all share (ops/_*.py) knows no op."""
    if (
        len(target) < 2
        or target[1].startswith("_")
        or len(parts) < 2
        or target[1] == parts[1]
        or parts[1] == "__init__"
    ):
        return True
    return not parts[1].startswith("_") and not {"kernels", "reference"}.intersection(target[2:])


def circle(root):
    """Files that import one another in a circle, the first again at the end; [] where there is none."""
    files = {path: {file_of(f"elmo_fast.{name}", root) for _, name in own} for path, _, own in files_of(root)}
    try:
        graphlib.TopologicalSorter({path: actual - {path, None} for path, actual in files.items()}).prepare()
    except graphlib.CycleError as error:
        return [str(path.relative_to(root / "elmo_fast")) for path in error.args[1]]
    return []


def test_no_files_and_no_layers_import_one_another():
    """Neither the files nor the table of layers has a circle, imports for type checkers alone included."""
    assert circle(ROOT) == []
    graphlib.TopologicalSorter({layer: below - {layer} for layer, below in MAY_IMPORT.items()}).prepare()


def test_the_core_imports_nothing_around_it():
    """By the table, whose every layer is checked below; only the command line reaches further, when a command runs."""
    core = MAY_IMPORT.keys() - AROUND - {"cli"}
    assert not [(layer, around) for layer in core for around in MAY_IMPORT[layer] & AROUND]


def test_a_circle_is_found(tmp_path):
    """Inside functions, and through a name that a package's __init__ passes on."""
    (package := tmp_path / "elmo_fast" / "m").mkdir(parents=True)
    (package / "__init__.py").write_text("from elmo_fast.m.b import B\n")
    (package / "a.py").write_text("from elmo_fast.m import B\n")
    (package / "b.py").write_text("def f():\n    from . import a\n")
    assert {file.split("/")[-1] for file in circle(tmp_path)} == {"a.py", "b.py"}


def test_imports_run_one_way():
    """No file of the package imports upwards, or another op's backend, or the extension past ops/_native.py."""
    assert violations(ROOT) == []


@pytest.mark.parametrize(
    ("file", "source"),
    [
        ("text/vocabulary.py", "from elmo_fast.ops import highway\n"),
        ("ops/highway/kernels.py", "from ...modules import elmo\n"),
        ("ops/highway/__init__.py", "from elmo_fast import _C\n"),
        ("ops/highway/kernels.py", "from elmo_fast.ops.char_cnn import kernels\n"),
        ("ops/highway/__init__.py", "from elmo_fast.ops.char_cnn import reference\n"),
        ("ops/_checks.py", "from elmo_fast.ops import highway\n"),
        ("modules/elmo.py", "import importlib\nimportlib.import_module('elmo_fast.cli.main')\n"),
        ("modules/elmo.py", "from elmo_fast import ElmoVectors\n"),
        ("pretrain/trainer.py", "def f():\n    from elmo_fast.static import load_vectors\n"),
        ("cli/static.py", "from elmo_fast.static import load_vectors\n"),
        ("plots/curve.py", "import math\n"),
    ],
)
def test_a_forbidden_import_is_found(tmp_path, file, source):
    """The test above can fail: each way of importing upwards is caught in a file that does nothing else."""
    path = tmp_path / "elmo_fast" / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(source)
    assert len(violations(tmp_path)) == 1
