"""`mini`, the model that comes with the package: loaded by its name everywhere, taken where no model is named."""

import pathlib

import h5py
import numpy as np

import elmo_fast
from elmo_fast import Elmo, ElmoEmbedder
from elmo_fast.checkpoints import bundled_models, named_folder
from elmo_fast.cli.main import main

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


def test_embed_takes_it_where_no_model_is_named_and_says_so(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    pathlib.Path("in.txt").write_text("".join(f"{each}\n" for each in BANKS))
    assert main(["embed", "in.txt", "unnamed.hdf5", "--top"]) == 0
    assert "model  mini, which comes with elmo_fast; --model names another\n" in capsys.readouterr().err
    assert main(["embed", "in.txt", "named.hdf5", "--top", "--model", "mini"]) == 0
    assert "--model names another" not in capsys.readouterr().err
    with h5py.File("unnamed.hdf5") as unnamed, h5py.File("named.hdf5") as named:
        assert unnamed["0"].shape == (9, 256)
        np.testing.assert_array_equal(unnamed["2"], named["2"])
