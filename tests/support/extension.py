"""Refuses an extension that was built from other sources than those of the checkout."""

import os
import pathlib
import runpy

import pytest


def refuse_old_extension(root: pathlib.Path) -> None:
    """Raises where an extension in the checkout was built from other sources than it has now."""
    if "ELMO_FAST_ANY_EXTENSION" in os.environ:
        return
    # By its path: importing elmo_fast.ops would import Triton too, before the tests have chosen its interpreter.
    if (why := runpy.run_path(str(root / "elmo_fast" / "ops" / "_sources.py"))["why_stale"](root)) is not None:
        raise pytest.UsageError(
            f"{why}: run `make build`, or copy both elmo_fast/_C.*.so and elmo_fast/_C.digest from a checkout with "
            "the same sources"
        )
