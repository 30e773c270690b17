"""Configuration fields with a description."""

import dataclasses
from typing import Any


def described(default: Any, sentence: str, within: str | None = None) -> Any:
    """A dataclass field with a sentence that the command line shows as help; a list default is copied per instance.

    within: the range of a number, as an error message words it; None: "above 0" (pretrain/config_validation.py).
    """
    metadata = {"help": sentence, "within": within}
    if isinstance(default, list):
        return dataclasses.field(default_factory=lambda: [list(row) for row in default], metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)
