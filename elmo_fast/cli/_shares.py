"""Which of several processes this is: as --shard says, or torchrun, or SLURM's srun."""

import os
import re
from collections.abc import Mapping

from elmo_fast.errors import ElmoFastError
from elmo_fast.process import Place, place_by_srun, place_by_torchrun


def place_of(shard: str | None, environment: Mapping[str, str] = os.environ) -> Place | None:
    """This process's place among those that work together; None: it works alone.

    shard: "i/N", which overrides what a launcher says; without it, torchrun's variables, or those of a step of srun
    with several tasks. Raises ElmoFastError for another text, or i outside 0 to N - 1.
    """
    if shard is not None:
        found = re.fullmatch(r"(\d+)/(\d+)", shard)
        if found is None or not int(found[1]) < int(found[2]):
            raise ElmoFastError(f"--shard must be i/N with i from 0 to N-1, such as 0/4; got {shard!r}")
        return Place(int(found[1]), int(found[2]))
    return place_by_torchrun(environment) or place_by_srun(environment)


def device_of(name: str, place: Place) -> str:
    """The device of this process: "cuda" is the GPU of its number on its machine, round after round."""
    if name != "cuda":
        return name
    import torch

    return f"cuda:{place.on_machine % max(1, torch.cuda.device_count())}"
