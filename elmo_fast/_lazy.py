"""Names of a package that are loaded on first use, so that importing the package costs almost nothing."""

import importlib
from collections.abc import Callable, Mapping
from typing import Any


def loader(package: str, homes: Mapping[str, str], names: list[str]) -> Callable[[str], Any]:
    """The package's `__getattr__` (PEP 562).

    package: its dotted name; homes: name -> the module of the package that defines it; names: all public names, for
    the error about an unknown one.
    """

    def load(name: str) -> Any:
        if name in homes:
            from elmo_fast.fields import document_fields

            found = getattr(importlib.import_module(f"{package}.{homes[name]}"), name)
            document_fields(found)
            return found
        raise AttributeError(f"module {package!r} has no attribute {name!r}; it has: {', '.join(names)}")

    return load
