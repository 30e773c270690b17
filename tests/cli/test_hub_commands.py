"""upload and download: what goes out is the model and its page, and nothing else of the folder."""

import json
import re
import shutil

import pytest
import yaml

from elmo_fast import ElmoEmbedder
from elmo_fast.pretrain.metrics import read_metrics
from elmo_fast.pretrain.run import pretrain
from tests.cli.conftest import pair, ran, refused
from tests.pretrain.toy import toy_config
from tests.support.command_line import elmo_fast
from tests.support.fake_hub import FakeHub
from tests.support.snippets import BLOCK

pytestmark = pytest.mark.filterwarnings("default:no --licence")
PARTS = ["README.md", "config.json", "manifest.json", "model.safetensors", "vocab.txt"]


@pytest.fixture
def hub(tmp_path, monkeypatch):
    return FakeHub(tmp_path / "cache").install(monkeypatch)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The folder of a finished run with all that a run leaves, and more: three checkpoints, metrics, logs."""
    config = toy_config(tmp_path_factory.mktemp("text"), checkpoint_interval=2, max_steps=6, n_epochs=50)
    folder = pretrain(config, report=lambda line: None).folder
    for step in (4, 6):
        (folder / "checkpoints" / f"step-000000{step}" / "optimiser.safetensors").write_bytes(b"secret")
    for name in ("train.log", "optimiser.safetensors", "rows.safetensors", "position.json", "notes.md", ".env"):
        (folder / name).write_bytes(b"secret")
    return folder


@pytest.fixture
def copied(run, tmp_path):
    """A copy of the run, to be changed."""
    return shutil.copytree(run, tmp_path / "run")


def page(hub):
    """(the head as YAML gives it, the text) of the repository's page."""
    _, head, text = hub.repos["me/elmo"]["README.md"].decode().split("---\n", 2)
    return yaml.safe_load(head), text


def test_only_the_model_its_vocabulary_and_a_page_go_out(hub, run):
    output = ran("upload", run, "me/elmo", "--licence", "cc-by-4.0").stdout
    assert output == "https://hub.test/me/elmo: config.json, model.safetensors, manifest.json, vocab.txt, README.md\n"
    actual = hub.repos["me/elmo"]
    assert sorted(actual) == PARTS
    assert all(actual[name] == (run / name).read_bytes() for name in PARTS[1:])
    assert not any(b"secret" in content for content in actual.values())
    assert str(run.parent).encode() not in b"".join(actual.values())  # no path of this machine


def test_what_was_uploaded_is_downloaded_and_used(hub, run, tmp_path):
    ran("upload", run, "me/elmo", "-q")
    assert ran("download", "me/elmo@v2", "--out_dir", tmp_path / "here").stdout == f"{tmp_path / 'here'}\n"
    assert hub.calls[-1][2]["revision"] == "v2"
    assert all((tmp_path / "here" / name).read_bytes() == (run / name).read_bytes() for name in PARTS[1:])
    assert ran("download", "me/elmo").stdout == f"{tmp_path}/cache/me/elmo/main\n"


def test_the_page_tells_architecture_training_licence_and_use(hub, run):
    """And its snippet runs: it loads the model from the hub, and the promised shape is that of the vectors."""
    ran("upload", run, "me/elmo", "--licence", "cc-by-4.0", "-q")
    head, text = page(hub)
    assert (head["license"], head["library_name"]) == ("cc-by-4.0", "elmo_fast")
    assert text.startswith("\n# elmo\n")
    for line in (
        "| convolutions | 4 of width 1, 6 of width 2, 6 of width 3; maximum, relu |",
        "| LSTM layers | 2 per direction, 12 cells projected to 8 |",
        "| clips | cell 3.0, projection 3.0 |",
        "| batch | 3 rows of 5 words |",
        "| steps | 6 |",
        "| tokenizer | whitespace |",
        f"| words seen | {read_metrics(run).steps[-1]['words']}, each in both directions |",
    ):
        assert line in text
    assert re.search(r"\| training perplexity \| \d+\.\d \(sampled softmax\) \|", text)
    assert re.search(r"\| softmax \| \d+ words, [\d,]+ weights more \|", text)
    (code,) = [code for _, language, code, _ in BLOCK.findall(text) if language == "python"]
    scope = {}
    exec(code, scope)
    assert str(list(scope["layers"].shape)) == re.search(r"# (\[.*\]) float32", code)[1]
    assert isinstance(scope["embedder"], ElmoEmbedder)


def test_figures_of_an_unfinished_run_end_with_its_newest_checkpoint(hub, copied):
    """The model that goes out is that of step 4: the reports of step 6 are not about it."""
    (copied / "config.json").unlink()
    shutil.rmtree(copied / "checkpoints" / "step-0000006")
    ran("upload", copied, "me/elmo", "-q")
    newest = copied / "checkpoints" / "step-0000004"
    assert hub.repos["me/elmo"]["model.safetensors"] == (newest / "model.safetensors").read_bytes()
    assert sorted(hub.repos["me/elmo"]) == PARTS
    assert "| steps | 4 |" in page(hub)[1]


def test_a_page_of_your_own_stays(hub, copied):
    (copied / "README.md").write_text("# Mine\n")
    assert "licence" not in ran("upload", copied, "me/elmo").stderr
    assert hub.repos["me/elmo"]["README.md"] == b"# Mine\n"
    refused(elmo_fast("upload", copied, "me/elmo", "--licence", "mit"), "README.md exists and will be the page")


def test_a_model_of_bilm_tf_goes_out_with_its_softmax(hub, run, tmp_path):
    folder = tmp_path / "bilm-tf"
    ran("convert", "--model", run, "--to", "hdf5", "--out_dir", folder)
    (folder / "other.hdf5").write_bytes(b"secret")
    (folder / "weights.hdf5").rename(folder / "model.hdf5")
    ran("upload", folder, "me/elmo", "--private", "-q")
    assert sorted(hub.repos["me/elmo"]) == ["README.md", "model.hdf5", "options.json", "softmax.hdf5", "vocab.txt"]
    assert hub.private == {"me/elmo"}
    assert "Training" in page(hub)[1]  # options.json tells some of it
    assert "| steps |" not in page(hub)[1]


def test_without_a_licence_that_is_said(hub, toy, tmp_path):
    ran("convert", *pair(toy), "--to", "safetensors", "--out_dir", tmp_path / "m")
    assert "no --licence: the page will not state the license" in ran("upload", tmp_path / "m", "me/elmo").stderr
    head, text = page(hub)
    assert "license" not in head
    assert "Training" not in text
    assert "elmo-fast eval" not in text  # it has no softmax


def test_a_damaged_model_does_not_go_out(hub, copied):
    weights = bytearray((copied / "model.safetensors").read_bytes())
    weights[-1] ^= 1
    (copied / "model.safetensors").write_bytes(weights)
    refused(elmo_fast("upload", copied, "me/elmo"), "model.safetensors: damaged")
    assert hub.repos == {}


def test_held_out_figures_are_told(hub, copied):
    row = {"event": "heldout", "step": 6, "words": 90, "perplexity": 31.25}
    with open(copied / "metrics.jsonl", "a") as file:
        file.write(json.dumps(row | {"perplexity_forward": 1234.5, "perplexity_backward": 29.0}) + "\n")
    ran("upload", copied, "me/elmo", "-q")
    line = "| held-out perplexity | 31.2 (forward 1,234.5, backward 29.0) after 90 words |"
    assert line in page(hub)[1]
