"""The backend of each op of a run, and why it is not a faster one, as lines of text."""

import torch

from elmo_fast import ops
from elmo_fast.modules.losses import LOSS_CLASSES
from elmo_fast.ops._dispatch import made_for, suppress_warnings

# The ops of the character encoder.
_CHARACTERS = ("unique_rows", "char_cnn", "highway")
# A step draws words on the host.
_DRAWS = ("log_uniform_sample", "alias_sample")


def describe_backends(
    precision: str,
    backend: str,
    optimizer: str,
    device: torch.device,
    *,
    loss: str = "sampled_softmax",
    characters: bool = True,
) -> list[str]:
    """A line on the ops' backends; one for each reason why a faster one is not used; one where a precision
    gains no speed.

    precision: "float32" | "tf32" | "bfloat16" | "float16"; backend: as the ops' argument; optimizer, loss: their
    names; characters: whether the model reads them. On a GPU, float32 is named a precision that gains no speed.
    """
    operands = "float32" if precision == "tf32" else precision
    served: dict[str, list[str]] = {}
    slower: dict[str, list[str]] = {}
    called = (*(_CHARACTERS if characters else ()), "projected_lstm", *LOSS_CLASSES[loss].ops_used)
    for op in (*called, *(["adagrad"] if optimizer == "adagrad" else [])):
        name = ops.backend_for(op, backend)
        if name == "auto":
            runs_on = torch.device("cpu") if op in _DRAWS else device
            choice = ops.explain(op, runs_on, torch.float32, operands)
            name = choice.backend
            suppress_warnings(op, choice, runs_on, operands)
            for faster, why in choice.refusals.items():
                if made_for(faster, runs_on):
                    slower.setdefault(f"{name}, not {faster}: {why}", []).append(op)
        served.setdefault(name, []).append(op)
    lines = [f"SLOWER {', '.join(each)}: {why}" for why, each in slower.items()]
    if operands != "float32" and device.type == "cpu":
        if backend == "reference":
            lines.append(f"SLOWER {operands}: the reference rounds operands, then multiplies them in float32")
        elif not ops.is_faster_on_cpu(operands):
            lines.append(f"SLOWER {operands}: {ops.products_on_cpu(operands)}")
    if precision == "float32" and device.type == "cuda":
        lines.append(
            "SLOWER float32: products have no tensor cores, or take three on them for one; --precision bfloat16 or "
            "float16 takes one and reads 2 bytes a number in place of 4"
        )
    return ["ops    " + "; ".join(f"{name}: {', '.join(each)}" for name, each in served.items()), *lines]
