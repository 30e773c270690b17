"""Refuses an extension that was built from other sources than those of the checkout."""

import os
import pathlib
import runpy

import pytest


def refuse_old_extension(root: pathlib.Path) -> None:
    """Raises where an extension in the checkout was built from other sources than csrc/ has now."""
    if not list(root.glob("elmo_fast/_C*.so")) or "ELMO_FAST_ANY_EXTENSION" in os.environ:
        return
    build = runpy.run_path(str(root / "setup.py"))
    if not build["DIGEST"].is_file() or build["DIGEST"].read_text(encoding="utf-8") != build["digest_of_sources"]():
        raise pytest.UsageError(
            "elmo_fast/_C.*.so was not built from csrc/ and CMakeLists.txt as they are now: run `make build`, or copy "
            "both elmo_fast/_C.*.so and elmo_fast/_C.digest from a checkout with the same sources"
        )
