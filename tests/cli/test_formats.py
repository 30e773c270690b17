"""Every command that takes a model, on a model of every format: it does its work, or refuses in one sentence."""

import gzip
import shutil

import pytest
import torch

from elmo_fast.checkpoints import download, load_checkpoint, read_bilm_hdf5, read_options, save_folder
from elmo_fast.tasks import load_task
from tests.checkpoints.test_allennlp import PREFIX, embedder, in_task, packed
from tests.support.command_line import elmo_fast
from tests.support.fake_hub import FakeHub
from tests.support.manylangs import write_model
from tests.support.tensor_bundle import arrays_of, write_checkpoint
from tests.support.weights import make_weights

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
TAGS = "--train_path tags --dev_path tags --format columns --epochs 1 --hidden 2 --save_dir out"
# FOLDER: where the command takes a folder or an archive only; the others have the options above.
COMMANDS = {
    "info": "info --device cpu",
    "embed": "embed in.txt out.hdf5 --average",
    "eval": "eval --test_prefix in.txt --vocab_file vocab.txt",
    "eval --save_dir": "eval --test_prefix in.txt --vocab_file vocab.txt --save_dir FOLDER",
    "neighbours": "neighbours --corpus in.txt --query b --index 0",
    "cache-vocab": "cache-vocab --vocab_file vocab.txt --output out.hdf5",
    "static export": "static export --vocab_file vocab.txt --output out.txt",
    "plot layers": "plot layers FOLDER",
    "plot projector": "plot projector --text in.txt --out_dir out",
    "task": f"task train {TAGS} --elmo both --model FOLDER",
    "report": f"report {TAGS} --test_path tags --experiments help neighbours --words a --seeds 1 --model FOLDER",
    "pretrain": "pretrain --train_prefix in.txt --vocab_file vocab.txt --save_dir out --max_steps 1 --batch_size 2 "
    "--unroll_steps 2 --n_negative_samples_batch 2 --init_from FOLDER",
    "upload": "upload FOLDER me/elmo",
    "to safetensors": "convert --to safetensors --out_dir out",
    "to hdf5": "convert --to hdf5 --out_dir out",
}
NAMED_BY = {"pretrain": "--init_from", "eval --save_dir": "--save_dir", "plot layers": "source", "upload": "folder"}


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """A folder with a model of each format, a text and a vocabulary; commands run in it."""
    folder = tmp_path_factory.mktemp("models")
    (folder / "in.txt").write_text("a b a\nb a\n")
    (folder / "vocab.txt").write_text("".join(f"{word}\n" for word in WORDS))
    (folder / "tags").write_text("a\tX\nb\tY\n\nb\tY\na\tX\n\n")
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
    packed(folder, {"elmo": embedder("a.json"), "wiki": embedder("b.json")}, tensors, options, ("elmo", "wiki"))
    hub = FakeHub(folder / "cache")
    made = folder / "serialized"
    hub.repos["me/task"] = {str(p.relative_to(made)): p.read_bytes() for p in made.rglob("*") if p.is_file()}
    with pytest.MonkeyPatch.context() as patch:
        hub.install(patch)
        download("me/task", folder / "hub")


@pytest.fixture
def here(models, tmp_path, monkeypatch):
    """The models under a working folder of the test's own."""
    for entry in models.iterdir():
        (tmp_path / entry.name).symlink_to(entry)
    monkeypatch.chdir(tmp_path)
    FakeHub(tmp_path / "cache").install(monkeypatch)
    return tmp_path


def run(command, named):
    """Runs the command on the model that the words name: --model PATH, or a pair, and maybe --prefix."""
    line = COMMANDS[command]
    if "FOLDER" in line:
        line, named = line.replace("FOLDER", named[1]), named[2:]
    return elmo_fast(*line.split(), *named, *(["-q"] if command != "info" else []))


def refusal(command, kind):
    """Return the command's error message for such a model; None if it takes it."""
    if command.startswith("eval") and kind not in SOFTMAX:
        return "has no softmax weights"
    if command == "plot layers" and kind not in ("task", "hub"):
        return "contains no layer weights"
    of_lexicons = {"cache-vocab": "use elmo-fast static export", "to hdf5": "--to hdf5: bilm-tf's format cannot store"}
    of_lexicons["pretrain"] = "this model cannot be pretrained further"
    return of_lexicons.get(command) if kind.startswith("manylangs") else None


@pytest.mark.filterwarnings("ignore:no --licence", "ignore:bilm-tf's format cannot store")
@pytest.mark.parametrize(
    ("kind", "command"),
    [(k, c) for k in FORMATS for c in COMMANDS if c in ("info", "embed", "to hdf5") or k == "hub"]
    + [("manylangs.zip", c) for c in ("cache-vocab", "static export", "task", "pretrain")],
)
def test_commands_take_models_of_every_format(here, command, kind):
    """All formats by three commands, and one of them by all, as all find a model by the same functions."""
    before = set(here.iterdir())
    named, called = FORMATS[kind]
    done = run(command, named)
    message = refusal(command, kind)
    assert done.returncode == (0 if message is None else 2), done.stderr
    if message is not None:
        assert len(done.stderr.splitlines()) == 1
        assert message in done.stderr
        assert set(here.iterdir()) == before
    if command == "upload":
        done = elmo_fast("info", "--device", "cpu", "--model", download("me/elmo"), *named[2:])
    if command in ("info", "upload"):
        assert done.stdout.startswith(f"format: {called}")
        width = 2 * (6 if kind.startswith("manylangs") else 3)
        assert f"vectors: 3 layers of {width} numbers per word" in done.stdout


def test_the_elmo_that_prefix_chooses_is_trained_on(here):
    """The two of the archive differ in one bias; a report's runs that use ELMo are not those of the other ELMo."""
    runs = {}
    for entry in ("elmo", "wiki"):
        prefix = f"{PREFIX.replace('elmo.', f'{entry}.', 1)}_elmo_lstm."
        bias = load_checkpoint("model.tar.gz", prefix=prefix)[0]["_token_embedder._projection.bias"]
        for command, more in (("pretrain", ["--learning_rate", "1e-30"]), ("task", []), ("report", [])):
            folder = "report" if command == "report" else f"{command}-{entry}"
            done = run(command, ["--model", "model.tar.gz", "--prefix", prefix, "--save_dir", folder, *more])
            assert done.returncode == 0, done.stderr
        assert torch.equal(load_checkpoint(f"pretrain-{entry}")[0]["_token_embedder._projection.bias"], bias)
        assert torch.equal(load_task(f"task-{entry}").model.elmo.bilm.encoder._projection.bias, bias)
        runs[entry] = len(list((here / "report" / "runs").iterdir()))
    assert runs == {"elmo": 2, "wiki": 3}


@pytest.mark.parametrize(
    ("command", "model"),
    [(command, "absent/one") for command in ("info", "task", *NAMED_BY)]
    + [("info", model) for model in ("vocab.txt", "broken.zip", "broken.tar.gz", "empty")],
)
def test_what_is_no_model_is_one_sentence_that_names_it(here, command, model):
    for name in ("broken.zip", "broken.tar.gz"):
        (here / name).write_bytes(b"PK not an archive")
    (here / "empty").mkdir()
    before = set(here.iterdir())
    done = run(command, ["--model", model])
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    option = NAMED_BY.get(command, "--model")
    assert f"error: {option} {model}: " in done.stderr
    assert set(here.iterdir()) == before


def test_the_vocabulary_of_an_nlpl_archive_is_read_and_unpacked(here):
    assert elmo_fast("convert", "--model", "12.zip", "--to", "safetensors", "--out_dir", "out").returncode == 0
    assert (here / "out" / "vocab.txt").read_text().split() == WORDS
