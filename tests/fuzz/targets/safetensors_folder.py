"""The own format: what is damaged is refused, or gives the same options and the same bits."""

import random

import torch

from elmo_fast.checkpoints import load_checkpoint, load_folder, save_folder
from tests.fuzz import folders
from tests.fuzz.judge import Wrong, may_refuse
from tests.support.weights import make_weights


@folders.valid
def valid(folder):
    save_folder(folder / "model", *load_checkpoint(None, *make_weights(folder / "files", softmax=7)))
    return folder / "model"


def case(rng: random.Random) -> None:
    path = folders.damaged_copy(valid(), rng)
    with may_refuse():
        state, options = load_folder(path.parent)
        whole, expected = load_folder(valid())
        if options != expected:
            raise Wrong(f"{path.name} damaged and believed: other options")
        if state.keys() != whole.keys() or not all(torch.equal(state[name], whole[name]) for name in whole):
            raise Wrong(f"{path.name} damaged and believed: other weights")
