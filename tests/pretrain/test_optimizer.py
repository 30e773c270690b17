"""The optimizer and the learning rate's course."""

import math

import pytest
import torch

from elmo_fast.pretrain.step.adagrad import AdaGrad
from elmo_fast.pretrain.step.optimizer import learning_rate_factor, make_optimizer, make_scheduler
from tests.pretrain.toy import toy_config


def rates(steps, begin=0, **changes):
    """The learning rate in force at each step, read from a real optimizer as the trainer drives it."""
    config = toy_config(**changes).optimizer
    parameter = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([parameter], config.rate)
    scheduler = make_scheduler(config, optimizer, steps, begin)
    found = []
    for _ in range(begin, steps):
        found.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return found


def test_a_constant_rate_is_bilm_tfs():
    assert rates(3) == [0.2] * 3
    assert rates(2, optimiser="adamw") == [0.001] * 2
    assert rates(1, optimiser="adamw", learning_rate=0.5) == [0.5]


def test_a_line_down_after_a_line_up():
    found = rates(12, learning_rate=1.0, schedule="linear", warmup_steps=3, final_share=0.1)
    assert found[:3] == pytest.approx([0.25, 0.5, 0.75])
    assert found[3:] == pytest.approx([1 - 0.9 * k / 9 for k in range(9)])


def test_a_cosine_goes_from_one_to_the_share_left():
    factor = learning_rate_factor(toy_config(schedule="cosine", final_share=0.2).optimizer, 100)
    assert [factor(0), factor(50), factor(100), factor(1000)] == pytest.approx([1, 0.6, 0.2, 0.2])
    assert factor(25) == pytest.approx(0.2 + 0.8 * (1 + math.cos(math.pi / 4)) / 2)


@pytest.mark.parametrize("schedule", ["linear", "cosine"])
def test_the_rate_after_a_restart_is_the_one_without(schedule):
    """Bit for bit: the course has no state but the step."""
    settings = {"schedule": schedule, "warmup_steps": 4, "learning_rate": 0.3}
    assert rates(20, begin=7, **settings) == rates(20, **settings)[7:]


def test_each_name_gives_its_optimizer():
    from elmo_fast.pretrain.language_model import make_language_model

    config = toy_config(optimiser="adamw", weight_decay=0.1)
    model = make_language_model(config, 20)
    adamw = make_optimizer(config.optimizer, model)
    assert type(adamw) is torch.optim.AdamW
    assert (adamw.defaults["lr"], adamw.defaults["weight_decay"]) == (0.001, 0.1)
    config.optimizer.optimiser = "adagrad"
    assert type(make_optimizer(config.optimizer, model)) is AdaGrad
