"""Small calls of scalar_mix: several mixes of layers with an odd width, normalised or not."""

from typing import Any

from elmo_fast.ops._cases import Case, Draw, How, Tensors, listed, numbered
from elmo_fast.ops.scalar_mix.op import scalar_mix

MULTIPLIES = False


def cases(draw: Draw) -> list[Case]:
    """Two mixes of three layers; normalised over the valid positions, with dropout, of a width that 16 divides."""
    shapes = (5, 7, 33), (5, 7, 48)
    odd, even = (
        {
            **numbered("layers", [draw.normal(*shape) for _ in range(3)]),
            "scalars": draw.normal(2, 3),
            "gammas": draw.normal(2),
        }
        for shape in shapes
    )

    def call(t: Tensors, how: How) -> Tensors:
        more: dict[str, Any] = (
            {"layer_norm": True, "statistics_mask": t["mask"], "dropout": 0.3, "seed": 5} if "mask" in t else {}
        )
        mixed = scalar_mix(listed("layers", t), t["scalars"], t["gammas"], backend=how["backend"], **more)
        return {"mixed": mixed}

    return [Case(odd, call), Case({**even, "mask": draw.whole(4, *shapes[1][:-1]) > 0}, call)]
