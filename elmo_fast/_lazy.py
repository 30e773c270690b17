"""Names of a package that are loaded on first use, so that importing the package costs almost nothing."""

import importlib
import pathlib
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any


def lazy(
    package: str, modules: Mapping[str, Sequence[str]], *own: str
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return the package's `__getattr__` and `__dir__` (PEP 562).

    package: its dotted name; modules: module of the package, or "elmo_fast.ROOM.MODULE" -> public names that it
    defines; own: further public names, which the package itself defines
    """
    homes = {name: module for module, names in modules.items() for name in names}
    public = sorted([*homes, *own])

    def load(name: str) -> Any:
        if name in homes:
            home = homes[name] if homes[name].startswith("elmo_fast.") else f"{package}.{homes[name]}"
            value = getattr(importlib.import_module(home), name)
            document(value)
            return value
        raise AttributeError(f"module {package!r} has no attribute {name!r}; it has: {', '.join(public)}")

    return load, lambda: public


def document(kind: Any) -> None:
    """Give what help() shows: a constructor its class's docstring, a NamedTuple's field the string below it."""
    if isinstance(kind, type) and "__init__" in vars(kind):
        kind.__init__.__doc__ = kind.__doc__  # type: ignore[misc]
    if not hasattr(kind, "_fields"):
        return
    try:
        source = pathlib.Path(str(sys.modules[kind.__module__].__file__)).read_text(encoding="utf-8")
    except OSError:  # installed without its sources: help() then shows "Alias for field number 0"
        return
    body = source.partition(f"class {kind.__name__}(NamedTuple):")[2].partition("\n\n\n")[0]
    for name, sentence in re.findall(r'^    (\w+): .*\n    """([^"]+)"""', body, re.MULTILINE):
        getattr(kind, name).__doc__ = sentence
