"""A small call of log_uniform_sample, whose ids, order and tries are the same on every backend."""

from elmo_fast.ops._cases import Case, Draw, How, Tensors
from elmo_fast.ops.log_uniform_sample.op import log_uniform_sample

MULTIPLIES = False


def call(t: Tensors, how: How) -> Tensors:
    """Half of the words, on the device of the seed."""
    seed = t["seed"] if t["seed"].is_cuda and how["backend"] == "cuda" else int(t["seed"])
    ids, tries = log_uniform_sample(150, 300, seed=seed, device=t["seed"].device, backend=how["backend"])
    return {"ids": ids.double(), "tries": tries.double()}


def cases(draw: Draw) -> list[Case]:
    """One seed."""
    return [Case({"seed": draw.whole(2**31)}, call, differentiates=False)]
