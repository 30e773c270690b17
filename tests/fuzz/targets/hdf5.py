"""HDF5 weights and cached vocabularies: bytes damaged, datasets of other kinds, links that lead elsewhere."""

import random

import numpy as np
import torch

from elmo_fast.checkpoints import load_checkpoint, read_token_embeddings
from tests.fuzz import folders
from tests.fuzz.damage import damaged
from tests.fuzz.judge import Wrong, may_refuse
from tests.support.weights import make_weights


@folders.valid
def valid(folder):
    return make_weights(folder, softmax=7)[0].parent


def case(rng: random.Random) -> None:
    import h5py

    folder = folders.copied(valid())
    weights = folder / "weights.hdf5"
    if rng.random() < 0.5:
        weights.write_bytes(damaged(rng, weights.read_bytes()))
    else:
        with h5py.File(weights, "r+") as file:
            for _ in range(rng.choice((1, 1, 2))):
                _change(rng, file, folder)
    with may_refuse():
        if rng.random() < 0.2:
            read_token_embeddings(weights)
        state, _ = load_checkpoint(None, folder / "options.json", weights)
        if not all(torch.isfinite(tensor).all() and tensor.dtype == torch.float32 for tensor in state.values()):
            raise Wrong("hdf5: weights that are not finite float32 were accepted")
        if any((tensor == SECRET).any() for tensor in state.values()):
            raise Wrong("hdf5: weights were read from another file")


SECRET = 12345.0


def _change(rng, file, folder):
    import h5py

    names = []
    file.visititems(lambda name, item: names.append(name) if isinstance(item, h5py.Dataset) else None)
    name = rng.choice(names or ["embedding"])
    readable = name in file and 0 < (file[name].size or 0) < 10**6 and file[name].dtype.kind in "fiu"
    values = np.asarray(file[name][()]) if readable else np.zeros((3, 4), "f4")
    if values.dtype.kind == "f":
        values = np.where(values == SECRET, 0, values)  # what the change before reads from elsewhere is not copied
    if file.get(name, getlink=True) is not None:  # also a link that leads nowhere
        del file[name]
    how = rng.randrange(11)
    if how == 0:
        file[name] = values.astype(rng.choice(("f8", "f2", "i4", "u1", "c8", "S3", "f8", ">f4", "?")))
    elif how == 1:
        file[name] = values.reshape(rng.choice(((-1,), (*values.shape, 1), values.shape[::-1])))
    elif how == 2:
        file.create_group(name)
    elif how == 3:
        other = folder / "other.bin"
        np.full(values.size, SECRET, "f4").tofile(other)
        file.create_dataset(name, values.shape, "f4", external=[(str(other), 0, h5py.h5f.UNLIMITED)])
    elif how == 4:
        with h5py.File(folder / "other.hdf5", "w") as other:
            other["x"] = np.full(values.shape, SECRET, "f4")
        if rng.random() < 0.5:
            file[name] = h5py.ExternalLink("other.hdf5", "x")
        else:
            layout = h5py.VirtualLayout(values.shape, "f4")
            layout[...] = h5py.VirtualSource("other.hdf5", "x", values.shape)
            file.create_virtual_dataset(name, layout)
    elif how == 5:
        file[name] = h5py.SoftLink(rng.choice(("/", "/" + name, "/absent", name.split("/")[0])))
    elif how == 6:
        file.create_dataset(name, shape=(10**9, 10**6), chunks=(1, 1000), dtype="f4")
    elif how == 7:
        file[name] = rng.choice(("text", np.float32(3), h5py.Empty("f4"), np.array([b"a"]), [["a"]]))
    elif how == 8:
        inner = file
        for _ in range(rng.choice((20, 1500))):
            inner = inner.require_group("g")
    elif how == 9:
        file[name] = np.where(np.random.default_rng(0).random(values.shape) < 0.1, np.nan, values)
    else:
        file.create_dataset(name, data=values, **({"compression": "gzip"} if values.shape else {}))
        file.require_group(rng.choice(("CNN", "unknown"))).create_dataset(f"extra{len(names)}", data=values)
