"""The optimizer and the learning rate's course."""

import math

import pytest
import torch

from elmo_fast.pretrain.optimizer import AdaGrad, make_optimizer, rate_of_step
from tests.pretrain.toy import toy_config


def rates(steps, **changes):
    """The learning rate of each step."""
    return [rate_of_step(toy_config(**changes).optimizer, steps, step) for step in range(steps)]


def test_a_constant_rate_is_bilm_tfs():
    assert rates(3) == [0.2] * 3
    assert rates(2, optimiser="adamw") == [0.001] * 2
    assert rates(1, optimiser="adamw", learning_rate=0.5) == [0.5]


def test_a_line_down_after_a_line_up():
    found = rates(12, learning_rate=1.0, schedule="linear", warmup_steps=3, final_share=0.1)
    assert found[:3] == pytest.approx([0.25, 0.5, 0.75])
    assert found[3:] == pytest.approx([1 - 0.9 * k / 9 for k in range(9)])


def test_a_cosine_goes_from_one_to_the_share_left():
    config = toy_config(schedule="cosine", final_share=0.2, learning_rate=1.0).optimizer
    found = [rate_of_step(config, 100, step) for step in (0, 50, 100, 1000, 25)]
    assert found == pytest.approx([1, 0.6, 0.2, 0.2, 0.2 + 0.8 * (1 + math.cos(math.pi / 4)) / 2])


def test_each_name_gives_its_optimizer():
    from elmo_fast.pretrain.language_model import make_language_model

    config = toy_config(optimiser="adamw", weight_decay=0.1)
    model = make_language_model(config, 20)
    adamw = make_optimizer(config.optimizer, model)
    assert type(adamw) is torch.optim.AdamW
    assert (adamw.defaults["lr"], adamw.defaults["weight_decay"]) == (0.001, 0.1)
    config.optimizer.optimiser = "adagrad"
    assert type(make_optimizer(config.optimizer, model)) is AdaGrad
