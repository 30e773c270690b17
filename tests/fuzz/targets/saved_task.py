"""Folders of trained tasks: what is damaged is refused, or predicts bit by bit the same."""

import random

import torch

from elmo_fast.tasks import load_task, train_task
from tests.fuzz import place
from tests.fuzz.judge import Wrong, may_refuse
from tests.tasks.toy import silent, toy_config


@place.valid
def valid(folder):
    config = toy_config(folder, epochs=1)
    train_task(config, report=silent)
    return folder / "run"


def case(rng: random.Random) -> None:
    path = place.damaged_copy(valid(), rng)
    with may_refuse():
        found, whole = load_task(path.parent), load_task(valid())
        state, wanted = found.model.state_dict(), whole.model.state_dict()
        if found.labels.names != whole.labels.names:
            raise Wrong(f"saved_task: {path.name} damaged and believed: other labels")
        if state.keys() != wanted.keys() or not all(torch.equal(state[name], wanted[name]) for name in wanted):
            raise Wrong(f"saved_task: {path.name} damaged and believed: other weights")
