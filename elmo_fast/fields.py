"""Fields of a configuration that say what they are."""

import dataclasses
from typing import Any


def described(default: Any, sentence: str) -> Any:
    """A dataclass field with its sentence, which the command line shows as help; a list of lists is copied for each."""
    metadata = {"help": sentence}
    if isinstance(default, list):
        return dataclasses.field(default_factory=lambda: [list(row) for row in default], metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)
