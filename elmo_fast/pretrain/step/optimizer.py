"""The optimizer and the learning rate schedule of a configuration."""

import math
from collections.abc import Callable

import torch

from elmo_fast.ops import backend_for
from elmo_fast.pretrain.config import OptimizerConfig
from elmo_fast.pretrain.language_model import LanguageModel
from elmo_fast.pretrain.step.adagrad import AdaGrad


def make_optimizer(config: OptimizerConfig, model: LanguageModel) -> torch.optim.Optimizer:
    """AdaGrad as bilm-tf has it, with rows of the tables updated alone; or torch's AdamW over whole tensors."""
    rate, trained = config.rate, [parameter for _, parameter in model.trained()]
    if config.optimiser == "adagrad":
        return AdaGrad(trained, rate, config.initial_accumulator_value, backend=backend_for("adagrad", model.backend))
    return torch.optim.AdamW(trained, rate, weight_decay=config.weight_decay, fused=True)


def learning_rate_factor(config: OptimizerConfig, total_steps: int) -> Callable[[int], float]:
    """The factor of the learning rate at each step: up in a line over warmup_steps, then as `schedule` says."""
    warmup, end = config.warmup_steps, config.final_share

    def factor(step: int) -> float:
        if step < warmup:
            return (step + 1) / (warmup + 1)
        if config.schedule == "constant":
            return 1.0
        gone = min(1.0, (step - warmup) / max(1, total_steps - warmup))
        left = 1 - gone if config.schedule == "linear" else (1 + math.cos(math.pi * gone)) / 2
        return end + (1 - end) * left

    return factor


def make_scheduler(
    config: OptimizerConfig, optimizer: torch.optim.Optimizer, total_steps: int, step: int
) -> torch.optim.lr_scheduler.LambdaLR:
    """torch's scheduler of that learning rate, at `step`: it has no other state."""
    for group in optimizer.param_groups:
        group["initial_lr"] = config.rate
    scheduler = torch.optim.lr_scheduler.LambdaLR(
        optimizer, learning_rate_factor(config, total_steps), last_epoch=step - 1
    )
    return scheduler
