"""Random weights of the sizes that are measured: the original ELMo's, and a small one's."""

import pathlib

from elmo_fast.pretrain.config import ORIGINAL_FILTERS
from tests.weights import make_weights

SIZES = {
    "original": {"cell": 4096, "proj": 512, "filters": ORIGINAL_FILTERS, "char_dim": 16},
    "small": {"cell": 256, "proj": 64, "filters": ((1, 16), (2, 16), (3, 32), (4, 64)), "char_dim": 16, "n_highway": 1},
}


def write(name: str, folder: pathlib.Path) -> tuple[pathlib.Path, pathlib.Path]:
    """Writes options.json and weights.hdf5 of the architecture `name`, seeded random weights; returns both paths."""
    return make_weights(folder / name, **SIZES[name])
