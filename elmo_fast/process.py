"""Which of several processes this one is, as torchrun or srun says in the environment."""

import os
from collections.abc import Mapping
from typing import NamedTuple

from elmo_fast.errors import ElmoFastError


class Place(NamedTuple):
    """Process `number` of `processes`, from 0; and its number on its machine."""

    number: int
    processes: int
    on_machine: int = 0


def place_by_torchrun(environment: Mapping[str, str] = os.environ) -> Place | None:
    """Return this process's place among those that torchrun started, None if it did not; raise ElmoFastError."""
    if {"RANK", "WORLD_SIZE", "MASTER_ADDR"} <= environment.keys():
        return _checked(environment, "RANK", "WORLD_SIZE", "LOCAL_RANK")
    return None


def place_by_srun(environment: Mapping[str, str] = os.environ) -> Place | None:
    """Return this process's place among the tasks of a step of srun; None if there is no step, or it has one task."""
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
