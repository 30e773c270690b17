"""Checkpoints of pretraining and metrics.jsonl: what is damaged is refused, or is bit by bit what was saved."""

import dataclasses
import random

import torch

from elmo_fast.checkpoints import saved_steps
from elmo_fast.pretrain.checkpoint import read_training_state
from elmo_fast.pretrain.metrics import MetricsFile, read_metrics
from elmo_fast.pretrain.run import pretrain
from tests.fuzz import folders
from tests.fuzz.damage import damaged, damaged_json
from tests.fuzz.judge import Wrong, may_refuse
from tests.pretrain.toy import toy_config
from tests.tasks.toy import silent


@folders.valid
def valid(folder):
    pretrain(toy_config(folder, max_steps=3, log_interval=1), report=silent)
    return folder / "out"


def case(rng: random.Random) -> None:
    folder = folders.copied(valid())
    if rng.random() < 0.35:
        path = folder / "metrics.jsonl"
        path.write_bytes(damaged(rng, path.read_bytes()))
        with may_refuse():
            read_metrics(folder)
        with may_refuse(), MetricsFile(path, 3):
            pass
        return
    at = saved_steps(folder)[-1][1]
    path = rng.choice(sorted(at.iterdir()))
    path.write_bytes(damaged_json(rng, path.read_text()) if path.suffix == ".json" else damaged(rng, path.read_bytes()))
    with may_refuse():
        actual, whole = (_all(read_training_state(saved_steps(f)[-1][1])) for f in (folder, valid()))
        if actual[0] != whole[0]:
            raise Wrong(f"checkpoint: {path.name} damaged and believed: another position")
        for mine, expected in zip(actual[1:], whole[1:], strict=True):
            if mine.keys() != expected.keys() or not all(torch.equal(mine[name], expected[name]) for name in expected):
                raise Wrong(f"checkpoint: {path.name} damaged and believed: other tensors")


def _all(resumed):
    state = {} if resumed.state is None else dict(zip("hc", resumed.state, strict=True))
    return dataclasses.asdict(resumed.position), resumed.weights, resumed.optimizer, state
