"""Computes the golden vectors of this folder by the original programs, on tiny models with random weights.

    python -m venv peer && peer/bin/pip install torch numpy h5py overrides==3.1.0
    peer/bin/pip install --no-deps allennlp==2.10.1 elmoformanylangs==0.0.4.post2
    peer/bin/python -m tests.golden.make

AllenNLP imports many packages that its ELMo never uses: empty ones stand in for them.
"""

import importlib.abc
import importlib.machinery
import json
import pathlib
import sys
import types

import numpy as np
import torch
import torch.utils.data  # before the stand-ins, which it would use

from tests.support.manylangs import SENTENCES, write_model
from tests.support.weights import make_weights

FOLDER = pathlib.Path(__file__).parent
# Two batches, between which the state is carried; the second has fewer and shorter sentences.
BATCHES = [[["Résumé", "of", "a", "cat", "."], ["x" * 60, "日本語"], ["."]], [["It", "sat", "."], ["Again"]]]
UNUSED = ("base58", "boto3", "botocore", "cached_path", "checklist", "datasets", "dill", "fairscale", "google",
          "huggingface_hub", "lmdb", "more_itertools", "nltk", "rich", "sentencepiece", "spacy", "tensorboardX",
          "termcolor", "torchvision", "transformers", "typer", "wandb", "_jsonnet")  # fmt: skip


class StandIn(types.ModuleType):
    """A package whose every attribute is an empty class."""

    __path__ = ()

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds a stand-in for each package that is not used."""

    def find_spec(self, name, path=None, target=None):
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if name.split(".")[0] in UNUSED else None

    def create_module(self, spec):
        return StandIn(spec.name)

    def exec_module(self, module):
        pass


def make_allennlp():
    """Layers and two mixes of AllenNLP's Elmo, of two batches."""
    import cached_path

    cached_path.cached_path = lambda path, **_: path
    from allennlp.modules.elmo import Elmo, batch_to_ids

    files = make_weights(
        FOLDER / "allennlp", cell=20, char_dim=4, filters=((1, 4), (2, 6), (3, 8)), cell_clip=0.5, proj_clip=0.4
    )
    elmo = Elmo(*map(str, files), 2, dropout=0, do_layer_norm=True).eval()
    vectors = {}
    with torch.no_grad():
        for k, mix in enumerate((elmo.scalar_mix_0, elmo.scalar_mix_1)):
            mix.gamma.fill_(1.5 - k)
            for j, parameter in enumerate(mix.scalar_parameters):
                parameter.fill_((-1) ** k * j / 2)
        for i, batch in enumerate(BATCHES):
            ids = batch_to_ids(batch)
            vectors[f"layers_{i}"] = torch.stack(elmo._elmo_lstm(ids)["activations"]).numpy()
        elmo._elmo_lstm._elmo_lstm.reset_states()
        for i, batch in enumerate(BATCHES):
            for k, mixed in enumerate(elmo(batch_to_ids(batch))["elmo_representations"]):
                vectors[f"mix_{k}_{i}"] = mixed.numpy()
    mixes = {name: each for name, each in elmo.state_dict().items() if name.startswith("scalar_mix")}
    np.savez_compressed(FOLDER / "allennlp" / "vectors.npz", **vectors, **mixes)


def make_manylangs():
    """Vectors of ELMoForManyLangs' Embedder: of one batch or, by the joined LSTM, which also reads padding, alone."""
    from elmoformanylangs import Embedder

    for name, encoder, batch_size in (("manylangs", "elmo", 64), ("manylangs_joined", "lstm", 1)):
        folder = write_model(FOLDER / name, encoder=encoder)
        (folder / "config.json").write_text(json.dumps({"seed": 1, "config_path": "cnn.json"}))
        vectors = Embedder(str(folder), batch_size).sents2elmo(SENTENCES, output_layer=-2)
        np.savez_compressed(folder / "vectors.npz", *vectors)


if __name__ == "__main__":
    sys.meta_path.insert(0, Finder())
    make_allennlp()
    make_manylangs()
    for file in FOLDER.glob("*/*.json"):
        file.write_text(json.dumps(json.loads(file.read_text())) + "\n")
