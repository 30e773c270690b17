"""Triton's interpreter, made faster: what it does again for each call of a device function, it does once a launch.

It replaces the functions of triton.language by its own before a launch, and again in every call of one kernel function
by another, although nothing has put the old ones back meanwhile. That is a quarter of the time of a kernel of small
blocks, and the table of numpy's types, made at every operation, is a tenth.
"""

import functools
import inspect
import types
from collections.abc import Callable
from typing import Any


def spare_repeated_patches(interpreter: types.ModuleType) -> None:
    """Changes Triton's interpreter, the module triton.runtime.interpreter, in this process."""
    tl = interpreter.tl
    patch_lang, restore = interpreter._patch_lang, interpreter._LangPatchScope.restore
    numpy_kind = interpreter._get_np_dtype
    patched: set[Any] = set()
    kinds: dict[str, Any] = {}

    @functools.cache
    def languages(function: Callable[..., Any]) -> list[Any]:
        return [each for each in function.__globals__.values() if inspect.ismodule(each) and each in (tl, tl.core)]

    def patch_once(function: Callable[..., Any]) -> Any:
        if all(each in patched for each in languages(function)):
            return interpreter._LangPatchScope()
        patched.update(languages(function))
        return patch_lang(function)

    def forget_and_restore(scope: Any) -> None:
        patched.clear()
        restore(scope)

    def kind_of(tt_dtype: Any) -> Any:
        scalar = tt_dtype.scalar
        if scalar.name not in kinds:
            kinds[scalar.name] = numpy_kind(scalar)
        return kinds[scalar.name]

    interpreter._patch_lang = patch_once
    interpreter._LangPatchScope.restore = forget_and_restore
    interpreter._get_np_dtype = kind_of
