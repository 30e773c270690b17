"""Random biLM weights in the layout of bilm-tf (options.json + weights.hdf5), of any size, for tests."""

import json
from pathlib import Path

import numpy as np

SMALL_FILTERS = ((1, 4), (2, 8), (3, 12))


def make_weights(
    folder,
    *,
    cell=24,
    proj=8,
    filters=SMALL_FILTERS,
    n_highway=2,
    layers=2,
    char_dim=5,
    activation="relu",
    skip=True,
    cell_clip=3.0,
    proj_clip=3.0,
    max_characters=50,
    n_characters=262,
    words=None,
    softmax=None,
    scale=1.0,
    seed=0,
):
    """Writes options.json and weights.hdf5 to `folder` and returns both paths (options_file, weight_file).

    cell, proj: H and D; equal sizes leave out the state projection (W_P_0), as bilm-tf does.
    filters: (width, number) pairs; a sum equal to `proj` leaves out CNN_proj, as bilm-tf does.
    words: number of words of a model of word ids (dataset `embedding`) in place of the character encoder.
    softmax: number of words of `softmax/W` and `softmax/b`; left out by default.
    scale: factor on the LSTM's matrices and projections; 4 or more drives cells and projections into clips of 3.
    """
    import h5py

    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed)
    tensors = {}
    if words is None:
        tensors |= _character_tensors(rng, filters, char_dim, n_highway, proj)
    else:
        tensors["embedding"] = rng.normal(0, 1, (words, proj))
    for direction in range(2):
        for layer in range(layers):
            cell_name = f"RNN_{direction}/RNN/MultiRNNCell/Cell{layer}/LSTMCell"
            tensors[f"{cell_name}/W_0"] = rng.normal(0, 1.2 * scale / np.sqrt(2 * proj), (2 * proj, 4 * cell))
            tensors[f"{cell_name}/B"] = rng.uniform(-0.2, 0.2, 4 * cell)
            if cell != proj:
                tensors[f"{cell_name}/W_P_0"] = rng.normal(0, 2 * scale / np.sqrt(cell), (cell, proj))
    if softmax is not None:
        tensors["softmax/W"] = rng.normal(0, 1 / np.sqrt(proj), (softmax, proj))
        tensors["softmax/b"] = rng.uniform(-0.1, 0.1, softmax)

    lstm = {"dim": cell, "projection_dim": proj, "n_layers": layers, "cell_clip": cell_clip, "proj_clip": proj_clip}
    options = {"bidirectional": True, "dropout": 0.1, "lstm": {**lstm, "use_skip_connections": skip}}
    if words is None:
        options["char_cnn"] = {
            "activation": activation,
            "embedding": {"dim": char_dim},
            "filters": [list(pair) for pair in filters],
            "max_characters_per_token": max_characters,
            "n_characters": n_characters,
            "n_highway": n_highway,
        }
    if words is not None or softmax is not None:
        options["n_tokens_vocab"] = words or softmax
    options_file, weight_file = folder / "options.json", folder / "weights.hdf5"
    options_file.write_text(json.dumps(options))
    with h5py.File(weight_file, "w") as file:
        for name, values in tensors.items():
            file[name] = values.astype("float32")
    return options_file, weight_file


def _character_tensors(rng, filters, char_dim, n_highway, proj):
    n_filters = sum(number for _, number in filters)

    def square(n):
        return rng.uniform(-1, 1, (n, n)) / np.sqrt(n)

    tensors = {"char_embed": rng.normal(0, 0.5, (261, char_dim))}
    for i, (width, number) in enumerate(filters):
        bound = 1.5 / np.sqrt(width * char_dim)
        tensors[f"CNN/W_cnn_{i}"] = rng.uniform(-bound, bound, (1, width, char_dim, number))
        tensors[f"CNN/b_cnn_{i}"] = rng.uniform(-0.1, 0.1, number)
    for k in range(n_highway):
        for name, shift in (("transform", 0.0), ("carry", -1.0)):
            tensors[f"CNN_high_{k}/W_{name}"] = square(n_filters)
            tensors[f"CNN_high_{k}/b_{name}"] = rng.uniform(-0.1, 0.1, n_filters) + shift
    if n_filters != proj:
        tensors["CNN_proj/W_proj"] = rng.uniform(-1, 1, (n_filters, proj)) / np.sqrt(n_filters)
        tensors["CNN_proj/b_proj"] = rng.uniform(-0.1, 0.1, proj)
    return tensors
