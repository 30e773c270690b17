"""The names of backends, precisions and activations, each listed once; knowing them needs no torch."""

from typing import Literal, get_args

Backend = Literal["auto", "native", "cuda", "triton", "triton_persistent", "reference"]
BACKENDS: tuple[str, ...] = get_args(Backend)

Precision = Literal["float32", "bfloat16", "float16"]
PRECISIONS: tuple[str, ...] = get_args(Precision)

Activation = Literal["relu", "tanh"]
ACTIVATIONS: tuple[str, ...] = get_args(Activation)
