"""Which of several processes this is: as --shard says, or torchrun, or SLURM's srun."""

import os
import re
from collections.abc import Mapping
from typing import NamedTuple

from elmo_fast.errors import ElmoFastError


class Place(NamedTuple):
    """This process is `number` of `processes`, from 0; and its number on its machine."""

    number: int
    processes: int
    on_machine: int = 0


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
    if {"RANK", "WORLD_SIZE", "MASTER_ADDR"} <= environment.keys():
        return _checked(environment, "RANK", "WORLD_SIZE", "LOCAL_RANK")
    # The script of a job has SLURM_NTASKS too, but is no step.
    if {"SLURM_PROCID", "SLURM_NTASKS", "SLURM_STEP_ID"} <= environment.keys():
        step = _checked(environment, "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID")
        return step if step.processes > 1 else None
    return None


def _checked(environment: Mapping[str, str], number: str, processes: str, on_machine: str) -> Place:
    texts = {name: environment.get(name, "0") for name in (number, processes, on_machine)}
    for name, text in texts.items():
        if not text.isdecimal():
            raise ElmoFastError(f"the environment variable {name} must be a number; got {text!r}")
    place = Place(*map(int, texts.values()))
    if place.number >= place.processes:
        raise ElmoFastError(f"{number}={place.number} must be less than {processes}={place.processes}")
    return place


def device_of(name: str, place: Place) -> str:
    """The device of this process: "cuda" is the GPU of its number on its machine, round after round."""
    if name != "cuda":
        return name
    import torch

    return f"cuda:{place.on_machine % max(1, torch.cuda.device_count())}"
