"""Fields with a description: of configurations, for the command line, and of results, for help()."""

import dataclasses
import pathlib
import re
import sys
from typing import Any


def described(default: Any, sentence: str, within: str | None = None) -> Any:
    """A dataclass field with a sentence that the command line shows as help; a list default is copied per instance.

    within: the range of a number, as an error message words it; None: "above 0" (pretrain/config_validation.py).
    """
    metadata = {"help": sentence, "within": within}
    if isinstance(default, list):
        return dataclasses.field(default_factory=lambda: [list(row) for row in default], metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def document_fields(kind: Any) -> None:
    """Gives each field of a NamedTuple the string below it in the source, for help(); leaves anything else alone."""
    if not hasattr(kind, "_fields"):
        return
    try:
        source = pathlib.Path(str(sys.modules[kind.__module__].__file__)).read_text(encoding="utf-8")
    except OSError:  # installed without its sources: help() then shows "Alias for field number 0"
        return
    body = source.partition(f"class {kind.__name__}(NamedTuple):")[2].partition("\n\n\n")[0]
    for name, sentence in re.findall(r'^    (\w+): .*\n    """([^"]+)"""', body, re.MULTILINE):
        getattr(kind, name).__doc__ = sentence
