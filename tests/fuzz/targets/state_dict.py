"""AllenNLP's state dictionaries (.th): bytes damaged, tensors of other kinds, objects that are none."""

import random

import torch

from elmo_fast.checkpoints import load_checkpoint, read_allennlp_state, read_options
from tests.fuzz import folders
from tests.fuzz.damage import damaged, value
from tests.fuzz.judge import Wrong, may_refuse
from tests.support.weights import make_weights


@folders.valid
def valid(folder):
    state, _ = load_checkpoint(None, *make_weights(folder))
    tensors = {f"elmo._elmo_lstm.{name}": tensor for name, tensor in state.items()}
    torch.save(tensors, folder / "weights.th")
    torch.save(tensors, folder / "legacy.th", _use_new_zipfile_serialization=False)
    return folder


class Object:
    """Object that weights_only rejects."""


def case(rng: random.Random) -> None:
    folder = folders.copied(valid())
    path = folder / rng.choice(("weights.th", "legacy.th"))
    if rng.random() < 0.5:
        path.write_bytes(damaged(rng, path.read_bytes()))
    else:
        state = torch.load(path, weights_only=True)
        for _ in range(rng.choice((1, 1, 2, 5))):
            change(rng, state)
        torch.save(state if rng.random() < 0.8 else rng.choice((Object(), [state], {"model": state}, None, 3)), path)
    with may_refuse():
        read = read_allennlp_state(path, read_options(folder / "options.json"))
        if not all(torch.isfinite(tensor).all() and tensor.dtype == torch.float32 for tensor in read.values()):
            raise Wrong("state_dict: weights that are not finite float32 were accepted")


def change(rng, state):
    name = rng.choice(sorted(map(str, state)))
    old = state.pop(name) if rng.random() < 0.7 else state.get(name)
    # One number that was spread before is not copied a billion times.
    few = isinstance(old, torch.Tensor) and old.layout == torch.strided and old.is_cpu and old.numel() < 10**6
    old = old if few else torch.zeros(3, 4)
    state[rng.choice((name, name, name + "x", "", name.upper(), f"other.{name}"))] = rng.choice(
        (
            lambda: old.double(), lambda: old.half(), lambda: old.long(), lambda: old.to(torch.complex64),
            lambda: old[:1], lambda: old.T if old.dim() == 2 else old, lambda: old.to_sparse(), lambda: old * torch.nan,
            lambda: old.new_zeros(()).expand(old.shape), lambda: torch.empty(old.shape, device="meta"),
            lambda: torch.zeros(1).expand(10**9), lambda: old.to(torch.bfloat16), lambda: value(rng),
            lambda: old * 1e39, lambda: torch.nn.Parameter(old.float()), lambda: {"inner": old}, lambda: (old > 0),
        )
    )()  # fmt: skip
