"""The names of backends and precisions, each listed once; knowing them needs no torch."""

from typing import Literal, get_args

Backend = Literal["auto", "native", "cuda", "triton", "triton_persistent", "reference"]
BACKENDS: tuple[str, ...] = get_args(Backend)

Precision = Literal["float32", "bfloat16", "float16"]
PRECISIONS: tuple[str, ...] = get_args(Precision)
