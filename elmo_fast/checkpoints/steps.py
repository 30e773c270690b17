"""The folder of a run's checkpoints, and their names."""

import re
from pathlib import Path

CHECKPOINTS = "checkpoints"
_STEP = re.compile(r"step-(\d+)")


def step_name(step: int) -> str:
    """The name of the checkpoint after `step` steps."""
    return f"step-{step:07d}"


def saved_steps(run: Path) -> list[tuple[int, Path]]:
    """The checkpoints in a run's folder, each with its step, newest last."""
    found = (run / CHECKPOINTS).glob("step-*")
    return sorted((int(match[1]), path) for path in found if (match := _STEP.fullmatch(path.name)))
