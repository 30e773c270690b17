"""Folders of trained tasks: what is damaged is refused, or predicts bit by bit the same."""

import random

import torch

from elmo_fast.tasks import load_task, train_task
from tests.fuzz import folders
from tests.fuzz.judge import Wrong, may_refuse
from tests.tasks.toy import silent, toy_config


@folders.valid
def valid(folder):
    config = toy_config(folder, epochs=1)
    train_task(config, report=silent)
    return folder / "run"


def case(rng: random.Random) -> None:
    path = folders.damaged_copy(valid(), rng)
    with may_refuse():
        actual, whole = load_task(path.parent), load_task(valid())
        state, expected = actual.model.state_dict(), whole.model.state_dict()
        if actual.labels.names != whole.labels.names:
            raise Wrong(f"saved_task: {path.name} damaged and believed: other labels")
        if state.keys() != expected.keys() or not all(torch.equal(state[name], expected[name]) for name in expected):
            raise Wrong(f"saved_task: {path.name} damaged and believed: other weights")
