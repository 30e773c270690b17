"""Safetensors files that are written piece by piece: the library writes tensors that lie in memory as a whole."""

import json
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

DTYPES = {"float16": "F16", "float32": "F32", "int64": "I64", "uint8": "U8", "uint64": "U64"}
ALIGNED = 64


class Layout(NamedTuple):
    """The header, its length before it, and where each tensor begins; end: the size of the file."""

    header: bytes
    starts: dict[str, int]
    end: int


def layout(tensors: Mapping[str, tuple[Any, tuple[int, ...]]], metadata: Mapping[str, str]) -> Layout:
    """The layout of a file. tensors: by name its dtype and shape, in their order in the file."""
    content: dict[str, Any] = {"__metadata__": dict(metadata)}
    places, at = {}, 0
    for name, (dtype, shape) in tensors.items():
        end = at + math.prod(shape) * np.dtype(dtype).itemsize
        content[name] = {"dtype": DTYPES[np.dtype(dtype).name], "shape": list(shape), "data_offsets": [at, end]}
        places[name], at = at, end
    text = json.dumps(content).encode()
    text += b" " * (-(8 + len(text)) % ALIGNED)  # so that the tensors lie as memory maps want them
    start = 8 + len(text)
    return Layout(len(text).to_bytes(8, "little") + text, {name: start + at for name, at in places.items()}, start + at)
