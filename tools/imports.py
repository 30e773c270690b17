"""Which files of the repository import which, as their sources say: inside functions and for type checkers too."""

import ast
import functools
import pathlib


@functools.cache
def imported(path: pathlib.Path, root: pathlib.Path) -> list[tuple[int, str]]:
    """Return (line, dotted name) of each import of a file below `root`; relative names become absolute."""
    package = path.relative_to(root).parts[:-1]
    result = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else ()
            base = ".".join([*above, *filter(None, [node.module])])
            names = [f"{base}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "import_module":
            names = [str(arg.value) for arg in node.args if isinstance(arg, ast.Constant)]
        else:
            continue
        result += [(node.lineno, name) for name in names]
    return result


@functools.cache
def file_of(name: str, root: pathlib.Path) -> pathlib.Path | None:
    """The file of a dotted name: a module, or the one from which a package's __init__ takes the name; else None."""
    place, parent = root.joinpath(*name.split(".")), root.joinpath(*name.split(".")[:-1])
    for file in (place.with_suffix(".py"), place / "__init__.py", parent.with_suffix(".py")):
        if file.is_file():
            return file
    if not (parent / "__init__.py").is_file():
        return None
    passed_on = {each.rpartition(".")[2]: each for _, each in imported(parent / "__init__.py", root)}
    passed_on |= lazily(parent / "__init__.py", root)
    target = passed_on.get(name.rpartition(".")[2], name)
    return parent / "__init__.py" if target == name else file_of(target, root)


def lazily(path: pathlib.Path, root: pathlib.Path) -> dict[str, str]:
    """Return the names that a package's __init__ loads on first use (`_MODULES`), with the modules they are in."""
    package = ".".join(path.relative_to(root).parts[:-1])
    homes = dict[str, str]()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "_MODULES":
            for module, names in eval(ast.unparse(node.value)).items():
                home = module if module.startswith("elmo_fast.") else f"{package}.{module}"
                homes |= {name: f"{home}.{name}" for name in names}
    return homes
