"""Choose layers of a biLM by name, pool the vectors of a sentence's tokens, and scale vectors to length 1."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from elmo_fast.errors import ElmoFastError, check_choice
from elmo_fast.op_choices import POOLS

Layers = str | int | Sequence[int]


def layer_numbers(layers: Layers, count: int) -> list[int] | None:
    """Return the numbers of the named layers; None stands for the mean of all.

    Args:
        layers: "average", "top", "all", a number from 0 (the words by themselves), or several numbers.
        count: L+1, how many the model has.

    Raises: ElmoFastError.
    """
    named: dict[Any, list[int] | None] = {"average": None, "top": [count - 1], "all": list(range(count))}
    if isinstance(layers, str) and layers in named:
        return named[layers]
    numbers: Any = [layers] if isinstance(layers, int) else layers
    known = isinstance(numbers, Sequence) and all(type(k) is int and 0 <= k < count for k in numbers)
    if not known or not numbers:
        raise ElmoFastError(
            f'layers must be "average", "top", "all", a number from 0 to {count - 1} or a list of such; got {layers!r}'
        )
    return list(numbers)


def layer_names(layers: Layers, count: int) -> list[str]:
    """Return the name of each chosen layer: "average", or its number. count: L+1. Raises: ElmoFastError."""
    numbers = layer_numbers(layers, count)
    return ["average"] if numbers is None else [str(number) for number in numbers]


def layer_number(layer: str | int, count: int, also: str = "") -> int:
    """Return the number of one layer, given as "top" or as a number from 0, which may be text.

    also: further names that the caller accepts, for the error. Raises: ElmoFastError.
    """
    if layer == "top":
        return count - 1
    if str(layer).isdecimal() and int(layer) < count:
        return int(layer)
    raise ElmoFastError(f'layer must be {also}"top" or a number from 0 to {count - 1}; got {layer!r}')


def chosen_layers(activations: Sequence[Tensor], layers: Layers) -> list[Tensor]:
    """Return the named ones of the L+1 layers [..., 2D], or the mean of all. layers: as in layer_numbers."""
    numbers = layer_numbers(layers, len(activations))
    if numbers is None:
        return [sum(activations[1:], start=activations[0]) / len(activations)]
    return [activations[k] for k in numbers]


def combined_width(layers: Layers, count: int, width: int) -> int:
    """W of the chosen ones of `count` layers of that width, side by side. Raises: ElmoFastError."""
    return width * len(layer_numbers(layers, count) or [0])


def pool(vectors: npt.NDArray[Any], mode: str = "mean") -> npt.NDArray[Any]:
    """Reduce the vectors of a sentence's tokens to one vector: [..., T, 2D] to [..., 2D], of the same dtype.

    Args:
        vectors: of one sentence, in the order of its tokens, without padding.
        mode: "mean" of the tokens, their "max" in each dimension, or "first_last": the forward half of the last token
            and the backward half of the first one, where each direction has read the whole sentence.

    A sentence without tokens gives zeros. Raises ElmoFastError for an unknown mode.
    """
    check_choice("pool", mode, POOLS)
    tokens, width = vectors.shape[-2:]
    if not tokens:
        return np.zeros((*vectors.shape[:-2], width), vectors.dtype)
    if mode == "mean":
        return vectors.mean(-2, dtype=np.float32).astype(vectors.dtype, copy=False)
    if mode == "max":
        return vectors.max(-2)
    return np.concatenate([vectors[..., -1, : width // 2], vectors[..., 0, width // 2 :]], axis=-1)


def column_names(width: int) -> list[str]:
    """Return the names of the numbers of a vector in a table: elmo_0, elmo_1, ..."""
    return [f"elmo_{number}" for number in range(width)]


def unit_rows(vectors: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    """Divide each vector by its length, [..., D]; zeros stay."""
    lengths = np.sqrt(np.einsum("...d,...d->...", vectors, vectors, dtype=np.float64)).astype(np.float32)[..., None]
    return np.divide(vectors, lengths, out=np.zeros_like(vectors), where=lengths > 0)
