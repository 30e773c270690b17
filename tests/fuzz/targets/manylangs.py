"""ELMoForManyLangs' folders: lexicons and configurations damaged, tensors of other kinds; what is accepted is saved and
read back alike, and spells words."""

import random

import torch

from elmo_fast import BiLM
from elmo_fast.checkpoints import load_checkpoint, save_folder
from tests.fuzz import folders
from tests.fuzz.damage import damaged, damaged_json
from tests.fuzz.judge import Wrong, may_refuse
from tests.fuzz.targets.state_dict import change
from tests.support.manylangs import SENTENCES, write_model

_SLOTS = 1000  # more of them are allowed, and no fault


@folders.valid
def valid(folder):
    return write_model(folder)


def case(rng: random.Random) -> None:
    folder = folders.copied(valid())
    path = folder / rng.choice(("char.dic", "word.dic", "config.json", "cnn.json", "encoder.pkl", "token_embedder.pkl"))
    if path.suffix == ".json":
        path.write_bytes(damaged_json(rng, path.read_text()))
    elif path.suffix == ".dic" or rng.random() < 0.5:
        path.write_bytes(damaged(rng, path.read_bytes()))
    else:
        state = torch.load(path, weights_only=True)
        for _ in range(rng.choice((1, 2))):
            change(rng, state)
        torch.save(state, path)
    with may_refuse():
        state, options = load_checkpoint(folder)
        save_folder(folder / "own", state, options)
        again, actual = load_checkpoint(folder / "own")
        if actual != options or any(not torch.equal(again[name], tensor) for name, tensor in state.items()):
            raise Wrong("manylangs: what was read and written is read otherwise")
        if options.char_cnn is None or options.char_cnn.max_characters_per_token < _SLOTS:
            bilm = BiLM(options, state)
            bilm(bilm.batch_to_ids(SENTENCES))
