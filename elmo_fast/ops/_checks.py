"""Argument checks, run once, in the public function; a message names the argument, what it must be and what it is."""

import inspect
import os
import string
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence
from torch.utils import _pytree as pytree

from elmo_fast.errors import ElmoFastError


def described(tensor: Tensor) -> str:
    """Describe a tensor for an error message: shape, dtype and device."""
    return f"shape {tuple(tensor.shape)}, {str(tensor.dtype).removeprefix('torch.')}, {tensor.device}"


IDS = "a tensor of ids, as batch_to_ids(sentences) returns"


def check_tensor(op: str, name: str, value: object, expected: str = "a tensor") -> None:
    """Raise ElmoFastError unless `value` is a tensor; expected: what it must be, for the error."""
    if isinstance(value, Tensor):
        return
    advice = ""
    if isinstance(value, PackedSequence):
        advice = ": pass the padded tensor that torch.nn.utils.rnn.pad_packed_sequence returns, and its lengths or mask"
    elif isinstance(value, np.ndarray):
        advice = ": pass torch.from_numpy(array)"
    elif expected == IDS and isinstance(value, str | list | tuple):
        advice = "; ElmoEmbedder takes words and text"
    raise ElmoFastError(f"{op}: {name} must be {expected}; got {type(value).__name__}{advice}")


def check_shapes(op: str, *tensors: tuple[str, Tensor, str], **sizes: int) -> None:
    """Raise ElmoFastError unless each tensor, a (name, tensor, "B T D"), has one dimension per letter.

    A letter is one size in all of them: its own in `sizes`, or that of the first tensor which has the letter. It may be
    a word, and a number after it, as in "width1", is not shown.
    """
    for name, tensor, letters in tensors:
        if not isinstance(tensor, Tensor):
            check_tensor(op, name, tensor)
        names, shape, known = letters.split(), tensor.shape, len(sizes)
        fits = len(names) == len(shape)
        for letter, size in zip(names, shape, strict=True) if fits else ():
            if sizes.setdefault(letter, size) != size:
                fits = False
        if not fits:
            before = list(sizes)[:known]  # without the letters that this tensor has first
            shown = [name.rstrip(string.digits) for name in names]
            expected = ", ".join(f"{s}={sizes[n]}" if n in before else s for n, s in zip(names, shown, strict=True))
            raise ElmoFastError(f"{op}: {name} must have shape [{expected}]; got {described(tensor)}")


def check_dtype(op: str, name: str, tensor: Tensor, *allowed: torch.dtype) -> None:
    """Raise ElmoFastError unless the dtype of `tensor` is one of `allowed`."""
    if not isinstance(tensor, Tensor):
        check_tensor(op, name, tensor)
    if tensor.dtype not in allowed:
        expected = " or ".join(str(d).removeprefix("torch.") for d in allowed)
        raise ElmoFastError(f"{op}: {name} must be {expected}; got {described(tensor)}")


def check_same(op: str, names: str, tensors: Sequence[Tensor], *, floating: bool = False) -> None:
    """Raise ElmoFastError unless all tensors share the device and dtype of the first, a floating one if asked for.

    names: of the tensors, as in "x, weights and biases", the first one alone.
    """
    first = tensors[0]
    if floating and isinstance(first, Tensor) and not first.is_floating_point():
        name = names.split(",")[0].split(" and ")[0]
        raise ElmoFastError(f"{op}: {name} must hold floating-point numbers; got {described(first)}")
    for tensor in tensors:
        if not isinstance(tensor, Tensor):
            check_tensor(op, names, tensor)
        if tensor.device != first.device or tensor.dtype != first.dtype:
            raise ElmoFastError(
                f"{op}: {names} must share one device and dtype; got {described(first)} and {described(tensor)}"
            )


def check_device(op: str, names: str, tensor: Tensor, other: Tensor) -> None:
    """Raise ElmoFastError unless both tensors are on the same device."""
    if tensor.device != other.device:
        raise ElmoFastError(f"{op}: {names} must be on one device; got {described(tensor)} and {described(other)}")


def check_clips(op: str, **clips: float | None) -> None:
    """Raise ElmoFastError unless each clip is a number above 0, or None."""
    for name, clip in clips.items():
        if clip is not None and not (isinstance(clip, int | float | np.floating) and clip > 0):
            raise ElmoFastError(f"{op}: {name} must be a number > 0, or None for no clip; got {clip!r}")


def check_count(op: str, name: str, count: Tensor, rows: Tensor) -> None:
    """Raise ElmoFastError unless `count` is a whole number, [] int64, on the device of `rows`, called `name`."""
    check_shapes(op, ("count", count, ""))
    check_dtype(op, "count", count, torch.int64)
    check_device(op, f"{name} and count", rows, count)


def check_output_layer(
    op: str, hidden: Tensor, targets: Tensor, weight: Tensor, bias: Tensor, chunk_bytes: int, **samples: Tensor
) -> None:
    """Raise ElmoFastError unless these are valid arguments of a loss over a vocabulary.

    They are rows [N, D], words [N], a table [V, D] and its bias [V] with V > 0 and, if it has samples, words [S] with S
    > 0.
    """
    for name, ids in samples.items():
        check_shapes(op, (name, ids, "S"))
        check_same(op, f"targets and {name}", [targets, ids])
    check_shapes(
        op, ("hidden", hidden, "N D"), ("weight", weight, "V D"), ("bias", bias, "V"), ("targets", targets, "N")
    )
    check_same(op, "hidden, weight and bias", [hidden, weight, bias], floating=True)
    check_dtype(op, "targets", targets, torch.int64)
    check_device(op, "targets and hidden", targets, hidden)
    if weight.shape[0] == 0:
        raise ElmoFastError(f"{op}: weight must hold at least one word; got none")
    if any(len(ids) == 0 for ids in samples.values()):
        raise ElmoFastError(f"{op}: samples must hold at least one word; got none")
    if chunk_bytes < 1:
        raise ElmoFastError(f"{op}: chunk_bytes must be at least 1; got {chunk_bytes}")
    check_words(op, weight.shape[0], targets=targets, **samples)


def check_words(op: str, num_words: int, **words: Tensor) -> None:
    """Raise ElmoFastError unless all ids are words of the table; see `check_values`."""
    for name, ids in words.items():
        check_values(op, name, ids, num_words - 1, "be words from 0 to V - 1 = {}")


def check_values(op: str, name: str, tensor: Tensor, most: int, requirement: str) -> None:
    """Raise ElmoFastError unless all numbers lie from 0 to `most`.

    Numbers on a GPU are not read, nor are any while compiling. requirement: has {} for `most`, which must not be
    formatted while compiling: that would make it a constant.
    """
    if torch.compiler.is_compiling() or tensor.device.type != "cpu" or not tensor.numel():
        return
    lowest, highest = tensor.aminmax()
    low, high = int(lowest), int(highest)
    if low < 0 or high > most:
        raise ElmoFastError(f"{op}: {name} must {requirement.format(most)}; got values from {low} to {high}")


def _first_not_finite(values: Any, name: str) -> str | None:
    for path, each in pytree.tree_leaves_with_path(values):
        if isinstance(each, Tensor) and each.is_floating_point() and not bool(torch.isfinite(each).all()):
            return name + pytree.keystr(path)
    return None


def checked(op: str, run: Callable[..., Any], names: Sequence[str] | None = None) -> Callable[..., Any]:
    """Return `run`; with ELMO_FAST_CHECK_FINITE=1 one that raises ElmoFastError if it gets or returns NaN or infinity.

    The check waits for the device: use it to find a fault, not in a long run.

    names: of the arguments, in order; None: those of the function.
    """
    if os.environ.get("ELMO_FAST_CHECK_FINITE") != "1" or torch.compiler.is_compiling():
        return run
    names = names or list(inspect.signature(run).parameters)

    def checking(*arguments: Any, **options: Any) -> Any:
        named = {**dict(zip(names, arguments, strict=False)), **options}
        bad = next(filter(None, (_first_not_finite(value, name) for name, value in named.items())), None)
        if bad is not None:
            raise ElmoFastError(f"{op}: {bad} holds NaN or infinity before the op; check the code that computed it")
        results = run(*arguments, **options)
        # A list in a tuple is what the backward pass needs: memory of which some is never read.
        several = isinstance(results, tuple)
        bad = _first_not_finite([x for x in results if isinstance(x, Tensor)] if several else results, "results")
        if bad is not None:
            raise ElmoFastError(
                f"{op}: {bad} holds NaN or infinity although all arguments are finite; "
                "a sum overflowed: look for very large weights or inputs, or use a wider precision"
            )
        return results

    return checking
