"""The names of backends, precisions and activations, each listed once; knowing them needs no torch."""

from typing import Literal, get_args

Backend = Literal["auto", "native", "cuda", "triton", "triton_persistent", "reference"]
BACKENDS: tuple[str, ...] = get_args(Backend)

Precision = Literal["float32", "bfloat16", "float16"]
PRECISIONS: tuple[str, ...] = get_args(Precision)

# Of modules and ops that only infer: "int8" has no gradients.
InferencePrecision = Literal["float32", "bfloat16", "float16", "int8"]
INFERENCE_PRECISIONS: tuple[str, ...] = get_args(InferencePrecision)

Activation = Literal["relu", "tanh"]
ACTIVATIONS: tuple[str, ...] = get_args(Activation)
