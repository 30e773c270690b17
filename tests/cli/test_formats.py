"""Every command that takes a model, on a model of every format: it does its work, or refuses in one sentence."""

import gzip
import json
import shutil

import pytest
import torch

from elmo_fast.checkpoints import fetch, load_checkpoint, read_bilm_hdf5, read_options, save_folder
from tests.checkpoints.test_allennlp_archive import PREFIX, embedder, in_task, packed
from tests.command_line import elmo_fast
from tests.fake_hub import FakeHub
from tests.manylangs import write_model
from tests.tensor_bundle import arrays_of, write_checkpoint
from tests.weights import make_weights

WORDS = ["<S>", "</S>", "<UNK>", "a", "b"]
TINY = {"cell": 4, "proj": 3, "filters": ((1, 2), (2, 2)), "n_highway": 1, "char_dim": 2}
# Format -> how its model is named, and what `info` calls the format. The first three have a softmax.
FORMATS = {
    "pair": (["--options_file", "pair/options.json", "--weight_file", "pair/weights.hdf5"], "bilm-tf, AllenNLP: "),
    "own": (["--model", "own"], "elmo_fast: "),
    "checkpoint": (["--model", "run"], "bilm-tf: a checkpoint"),
    "nlpl": (["--model", "12.zip"], "bilm-tf, AllenNLP: "),
    "seqvec": (["--model", "seqvec"], "bilm-tf, AllenNLP: "),
    "task": (["--model", "model.tar.gz", "--prefix", f"{PREFIX}_elmo_lstm."], "AllenNLP: a model of a task"),
    "hub": (["--model", "hub", "--prefix", f"{PREFIX}_elmo_lstm."], "AllenNLP: a model of a task"),
    "manylangs": (["--model", "many"], "ELMoForManyLangs"),
    "manylangs.zip": (["--model", "many.zip"], "ELMoForManyLangs"),
}
SOFTMAX = ("pair", "own", "checkpoint")
COMMANDS = {
    "info": "info",
    "embed": "embed in.txt out.hdf5 --average",
    "eval": "eval --test_prefix in.txt --vocab_file vocab.txt",
    "neighbours": "neighbours --corpus in.txt --query b --index 0",
    "cache-vocab": "cache-vocab --vocab_file vocab.txt --output out.hdf5",
    "static export": "static export --vocab_file vocab.txt --output out.txt",
    "plot projector": "plot projector --text in.txt --out_dir out",
    "to safetensors": "convert --to safetensors --out_dir out",
    "to hdf5": "convert --to hdf5 --out_dir out",
}


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """A folder with a model of each format, a text and a vocabulary; commands run in it."""
    folder = tmp_path_factory.mktemp("models")
    (folder / "in.txt").write_text("a b a\nb a\n")
    (folder / "vocab.txt").write_text("".join(f"{word}\n" for word in WORDS))
    options, weights = make_weights(folder / "pair", softmax=len(WORDS), **TINY)
    save_folder(folder / "own", *load_checkpoint(folder / "pair"))
    (folder / "run").mkdir()
    shutil.copy(options, folder / "run")
    write_checkpoint(folder / "run", arrays_of(weights))
    published = make_weights(folder / "seqvec", **TINY)
    shutil.copytree(folder / "seqvec", folder / "nlpl")
    (folder / "nlpl" / "weights.hdf5").rename(folder / "nlpl" / "model.hdf5")
    (folder / "nlpl" / "vocab.txt.gz").write_bytes(gzip.compress((folder / "vocab.txt").read_bytes()))
    shutil.make_archive(folder / "12", "zip", folder / "nlpl")
    _write_task(folder, *published)
    write_model(folder / "many")
    shutil.make_archive(folder / "many", "zip", folder, "many")
    return folder


def _write_task(folder, options, weights):
    """model.tar.gz of a task with two different ELMos, and what is fetched of a repository of its files."""
    state = read_bilm_hdf5(weights, read_options(options))
    other = {name: tensor + 1 if name.endswith("projection.bias") else tensor for name, tensor in state.items()}
    tensors = in_task(state, PREFIX) | in_task(other, PREFIX.replace("elmo.", "wiki.", 1))
    packed(folder, {"elmo": embedder("a.json"), "wiki": embedder("b.json")}, tensors, options)
    hub = FakeHub(folder / "cache")
    made = folder / "serialized"
    hub.repos["me/task"] = {str(p.relative_to(made)): p.read_bytes() for p in made.rglob("*") if p.is_file()}
    with pytest.MonkeyPatch.context() as patch:
        hub.install(patch)
        fetch("me/task", folder / "hub")


@pytest.fixture
def here(models, tmp_path, monkeypatch):
    """The models under a working folder of the test's own."""
    for entry in models.iterdir():
        (tmp_path / entry.name).symlink_to(entry)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def refusal(command, kind):
    """What the command says of such a model; None: it takes it."""
    if command == "eval" and kind not in SOFTMAX:
        return "has no softmax weights"
    of_lexicons = {"cache-vocab": "use elmo-fast static export", "to hdf5": "--to hdf5: bilm-tf's format cannot store"}
    return of_lexicons.get(command) if kind.startswith("manylangs") else None


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("kind", FORMATS)
def test_every_command_takes_every_format(here, command, kind):
    before = set(here.iterdir())
    named, called = FORMATS[kind]
    done = elmo_fast(*COMMANDS[command].split(), *named, *(["-q"] if command != "info" else []))
    told = refusal(command, kind)
    assert done.returncode == (0 if told is None else 2), done.stderr
    if told is not None:
        assert len(done.stderr.splitlines()) == 1
        assert told in done.stderr
        assert set(here.iterdir()) == before
    if command == "info":
        assert done.stdout.startswith(f"format: {called}")
        width = 2 * (6 if kind.startswith("manylangs") else 3)
        assert f"vectors: 3 layers of {width} numbers per word" in done.stdout


@pytest.mark.parametrize("command", [*COMMANDS, "plot layers"])
def test_an_archive_of_several_elmos_asks_for_a_prefix_and_a_wrong_one_lists_them(here, command):
    before = set(here.iterdir())
    words = COMMANDS.get(command, "plot layers model.tar.gz").split()
    named = [] if command == "plot layers" else FORMATS["task"][0][:2]
    for more, told in (([], "choose one with prefix= or --prefix"), (["--prefix", "x"], "found biLMs at ['text_field")):
        done = elmo_fast(*words, *named, *more, "-q")
        assert done.returncode == 2
        assert told in done.stderr
        assert len(done.stderr.splitlines()) == 1
    assert set(here.iterdir()) == before


@pytest.mark.parametrize(
    ("command", "model"),
    [*((command, "broken.zip") for command in COMMANDS)]
    + [("info", model) for model in ("vocab.txt", "broken.tar.gz", "absent", "empty")],
)
def test_what_is_no_model_is_one_sentence_that_names_it(here, command, model):
    for name in ("broken.zip", "broken.tar.gz"):
        (here / name).write_bytes(b"PK not an archive")
    (here / "empty").mkdir()
    before = set(here.iterdir())
    done = elmo_fast(*COMMANDS[command].split(), "--model", model, "-q")
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert f"--model {model}: " in done.stderr or "--model must be the folder or the archive of a model" in done.stderr
    assert set(here.iterdir()) == before


def test_the_vocabulary_of_an_nlpl_archive_is_read_and_unpacked(here):
    assert elmo_fast("convert", "--model", "12.zip", "--to", "safetensors", "--out_dir", "out").returncode == 0
    assert (here / "out" / "vocab.txt").read_text().split() == WORDS


def test_a_model_of_the_hub_has_its_options_from_the_folder_fta(here):
    wanted, options = load_checkpoint("model.tar.gz", prefix=f"{PREFIX}_elmo_lstm.")
    found, fetched = load_checkpoint("hub", prefix=f"{PREFIX}_elmo_lstm.")
    assert fetched == options == read_options("seqvec/options.json")
    assert all(torch.equal(found[name], wanted[name]) for name in wanted)
    assert not json.loads((here / "hub" / "config.json").read_text()).keys() - {"model", "trainer"}
    assert not (here / "hub" / "vocabulary").exists()
