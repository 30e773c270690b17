"""Where the weights of exact shards are not those of every other run, as lines of text."""

import torch

from elmo_fast.ops._dispatch import explain
from elmo_fast.pretrain.checkpoint import TrainingState
from elmo_fast.pretrain.config import PretrainConfig


def describe_inexact(config: PretrainConfig, device: torch.device) -> list[str]:
    """A warning where the bits of exact shards depend on the number of threads."""
    run = config.run
    operands = "float32" if run.precision == "tf32" else run.precision
    plain = (
        run.backend == "reference" or explain("projected_lstm", device, torch.float32, operands).backend == "reference"
    )
    if config.optimizer.exact_shards is None or device.type != "cpu" or not plain:
        return []
    return [
        "WARNING the bits of plain torch's products (backend reference) depend on the number of threads: for weights "
        "that exact_shards makes equal, give every run the same --threads"
    ]


def describe_other_shards(resumed: TrainingState, config: PretrainConfig) -> list[str]:
    """A warning where the run resumes with another exact_shards: its weights will differ by rounding."""
    was, now = resumed.position.exact_shards, config.optimizer.exact_shards
    if was == now:
        return []
    return [
        f"WARNING exact_shards was {'null' if was is None else was}, now {'null' if now is None else now}: from step "
        f"{resumed.position.step} on gradients are added in another order, so that the weights will equal those of an "
        "undisturbed run but for rounding"
    ]
