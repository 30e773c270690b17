"""`mini`, the model that comes with the package: loaded by its name everywhere, taken where no model is named."""

import pathlib

import numpy as np

import elmo_fast
from elmo_fast import Elmo, ElmoEmbedder
from elmo_fast.checkpoints import bundled_models, named_folder

BANKS = [
    "He sat on the bank of the river .",
    "They walked along the bank of the stream .",
    "She paid the money into the bank .",
]


def test_it_is_small_and_has_a_card():
    assert bundled_models() == ["mini"]
    folder = named_folder("mini")
    assert folder == pathlib.Path(elmo_fast.__file__).parent / "models" / "mini"
    assert sum(path.stat().st_size for path in folder.iterdir()) < 4_500_000
    assert "perplexity" in (folder / "README.md").read_text(encoding="utf-8")


def test_python_finds_it_by_its_name():
    embedder = ElmoEmbedder.from_pretrained("mini", stateful=False)
    river, stream, money = (embedder.embed_sentence(each.split())[1][each.split().index("bank")] for each in BANKS)

    def cosine(a, b):
        return a @ b / np.linalg.norm(a) / np.linalg.norm(b)

    assert cosine(river, stream) > cosine(river, money)
    elmo = Elmo.from_pretrained("mini", dropout=0.0).eval()
    (mixed,) = elmo(elmo.batch_to_ids([["I", "like", "Berlin"]]))["elmo_representations"]
    assert mixed.shape == (1, 3, 256)
    assert mixed.isfinite().all()
