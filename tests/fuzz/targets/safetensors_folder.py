"""The own format: what is damaged is refused, or gives the same options and the same bits."""

import random

import torch

from elmo_fast.checkpoints import load_checkpoint, load_folder, save_folder
from tests.fuzz import place
from tests.fuzz.damage import damaged, damaged_json
from tests.fuzz.judge import Wrong, may_refuse
from tests.weights import make_weights


@place.valid
def valid(folder):
    save_folder(folder / "model", *load_checkpoint(None, *make_weights(folder / "files", softmax=7)))
    return folder / "model"


def case(rng: random.Random) -> None:
    folder = place.copied(valid())
    files = sorted(path.name for path in folder.iterdir() if path.is_file())
    path = folder / rng.choice(files)
    if rng.random() < 0.03:
        path.unlink()
    elif path.suffix == ".json":
        path.write_bytes(damaged_json(rng, path.read_text()))
    else:
        path.write_bytes(damaged(rng, path.read_bytes()))
    with may_refuse():
        state, options = load_folder(folder)
        whole, wanted = load_folder(valid())
        if options != wanted:
            raise Wrong(f"{path.name} damaged and believed: other options")
        if state.keys() != whole.keys() or not all(torch.equal(state[name], whole[name]) for name in whole):
            raise Wrong(f"{path.name} damaged and believed: other weights")
