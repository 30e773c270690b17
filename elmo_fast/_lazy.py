"""Names of a package that are loaded on first use, so that importing the package costs almost nothing."""

import contextlib
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
            value = getattr(importlib.import_module(home), name)
            document_fields(value)
            return value
        raise AttributeError(f"module {package!r} has no attribute {name!r}; it has: {', '.join(public)}")

    return load, lambda: public


def document_fields(kind: Any) -> None:
    """Give each field of a NamedTuple the string below it in the source, for help(); leave anything else alone."""
    if hasattr(kind, "_fields"):
        from elmo_fast._io.fields import docstrings

        with contextlib.suppress(OSError):  # installed without its sources
            for name, sentence in docstrings(kind).items():
                getattr(kind, name).__doc__ = sentence
