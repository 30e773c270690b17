"""Names of a package that are loaded on first use, so that importing the package costs almost nothing."""

import importlib
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
            from elmo_fast._docstrings import document

            return document(getattr(importlib.import_module(home), name))
        raise AttributeError(f"module {package!r} has no attribute {name!r}; it has: {', '.join(public)}")

    return load, lambda: public
