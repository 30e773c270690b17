"""Which of several processes this one is, as torchrun or srun says in the environment."""

import os
from collections.abc import Mapping
from typing import NamedTuple

from elmo_fast.errors import ElmoFastError


class Rank(NamedTuple):
    """The number of this process among `world_size` of them, from 0, and its number on its machine."""

    rank: int
    world_size: int
    local_rank: int = 0


def rank_of_torchrun(environment: Mapping[str, str] = os.environ) -> Rank | None:
    """Return this process's rank among those that torchrun started, None if it did not; raise ElmoFastError."""
    if {"RANK", "WORLD_SIZE", "MASTER_ADDR"} <= environment.keys():
        return _checked(environment, "RANK", "WORLD_SIZE", "LOCAL_RANK")
    return None


def rank_of_srun(environment: Mapping[str, str] = os.environ) -> Rank | None:
    """Return this process's rank among the tasks of a step of srun; None if there is no step, or it has one task."""
    # The script of a job has SLURM_NTASKS too, but is no step.
    if {"SLURM_PROCID", "SLURM_NTASKS", "SLURM_STEP_ID"} <= environment.keys():
        step = _checked(environment, "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID")
        return step if step.world_size > 1 else None
    return None


def _checked(environment: Mapping[str, str], rank: str, world_size: str, local_rank: str) -> Rank:
    texts = {name: environment.get(name, "0") for name in (rank, world_size, local_rank)}
    for name, text in texts.items():
        if not text.isdecimal():
            raise ElmoFastError(f"the environment variable {name} must be a number; got {text!r}")
    result = Rank(*map(int, texts.values()))
    if result.rank >= result.world_size:
        raise ElmoFastError(f"{rank}={result.rank} must be less than {world_size}={result.world_size}")
    return result
