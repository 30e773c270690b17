"""Names of backends, precisions, activations, losses, tokenizers and poolings, each listed once, without torch."""

from typing import Literal, get_args

Backend = Literal["auto", "native", "cuda", "triton", "reference"]
BACKEND_CHOICES: tuple[str, ...] = get_args(Backend)

Precision = Literal["float32", "bfloat16", "float16"]
PRECISIONS: tuple[str, ...] = get_args(Precision)

# Of modules and ops that only infer: "int8" has no gradients.
InferencePrecision = Literal[Precision, "int8"]
INFERENCE_PRECISIONS: tuple[str, ...] = get_args(InferencePrecision)


def trained_precision(precision: str) -> str:
    """Return the precision of what is trained or measured with a biLM of `precision`: float32 with int8."""
    return "float32" if precision == "int8" else precision


Activation = Literal["relu", "tanh"]
ACTIVATIONS: tuple[str, ...] = get_args(Activation)

# Of a language model's training.
Loss = Literal["sampled_softmax", "negative_sampling", "hierarchical_softmax", "full_softmax"]
LOSSES: tuple[str, ...] = get_args(Loss)

# Of text, stored with a model (text/tokenizers.py).
Tokenizer = Literal["whitespace", "basic", "spacy", "logs"]
TOKENIZERS: tuple[str, ...] = get_args(Tokenizer)

# Of the vectors of a sentence's tokens (modules/layers.py).
Pool = Literal["mean", "max", "first_last"]
POOLS: tuple[str, ...] = get_args(Pool)
