"""Names of a package that are loaded when first used, so that importing the package costs next to nothing."""

import importlib
from collections.abc import Callable, Mapping
from typing import Any


def loader(package: str, homes: Mapping[str, str], names: list[str]) -> Callable[[str], Any]:
    """The package's `__getattr__` (PEP 562).

    package: its dotted name; homes: name -> the module below the package that has it; names: all that there are, for
    the error of another.
    """

    def load(name: str) -> Any:
        if name in homes:
            return getattr(importlib.import_module(f"{package}.{homes[name]}"), name)
        raise AttributeError(f"module {package!r} has no attribute {name!r}; it has: {', '.join(names)}")

    return load
