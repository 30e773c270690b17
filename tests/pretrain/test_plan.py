"""Report of a run before it starts, or of a dry run: who computes, sizes, steps, memory and disk."""

import math
import os
import random
import re
import resource
import shutil
import subprocess
import sys
import warnings
from types import SimpleNamespace

import pytest
import torch

from elmo_fast import threads
from elmo_fast.checkpoints import LOSSES, saved_steps
from elmo_fast.corpus import open_corpus, prepare
from elmo_fast.errors import ElmoFastError
from elmo_fast.memory import size
from elmo_fast.modules.losses import LOSS_CLASSES
from elmo_fast.ops import _dispatch, _native
from elmo_fast.pretrain import run
from elmo_fast.pretrain.corpora import corpus_bytes
from elmo_fast.pretrain.plan import RunPlan, describe_backends, planned_steps
from elmo_fast.pretrain.processes import Processes
from elmo_fast.pretrain.run import dry_run, pretrain
from tests.pretrain.processes import ROOT
from tests.pretrain.toy import quiet, toy_config

CPU = torch.device("cpu")


def lines(device=CPU, **changes):
    """Return the report of the toy configuration about its ops."""
    return describe_backends(toy_config(**changes), device)


def spoken(line):
    """The backend of each op, from the line that reports it."""
    parts = [part.partition(": ") for part in line.removeprefix("ops    ").split("; ")]
    return {op: name for name, _, each in parts for op in each.split(", ")}


@pytest.mark.parametrize(
    ("backend", "loss", "read"),
    [("auto", "sampled_softmax", "characters"), ("reference", "sampled_softmax", "characters")]
    + [("auto", loss, "words") for loss in LOSSES[1:]],
)
def test_what_is_said_is_what_a_run_calls(tmp_path, monkeypatch, backend, loss, read):
    """Every choice of a backend during a run with an evaluation."""
    called, select = {}, _dispatch.select

    def recording(op, *arguments):
        backend = select(op, *arguments)
        called.setdefault(backend, set()).add(op)
        return backend

    for name, module in list(sys.modules.items()):
        if name.startswith("elmo_fast.ops.") and getattr(module, "select", None) is select:
            monkeypatch.setattr(module, "select", recording)
    config = toy_config(tmp_path, heldout_prefix=str(tmp_path / "train-1*"), backend=backend, loss=loss, input=read)
    pretrain(config, report=quiet)
    backends = spoken(lines(backend=backend, loss=loss, input=read)[0])
    assert {op: name for name, each in called.items() for op in each} == backends


def test_without_the_extension_a_run_says_why_once(tmp_path, monkeypatch):
    """In its lines and its warnings together, whichever ops it calls; another run of the process too.

    A 16-bit precision is then only rounded.
    """
    monkeypatch.setattr(_native, "C", None)
    monkeypatch.setattr(_native, "WHY_NOT", "it was not built")
    _dispatch.warn_once.cache_clear()
    config = toy_config(tmp_path, heldout_prefix=str(tmp_path / "train-1*"), max_steps=2, precision="float16")
    messages = []
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        pretrain(config, report=messages.append)
    _dispatch.warn_once.cache_clear()
    ops = "char_cnn, highway, projected_lstm, log_uniform_sample, sampled_softmax, full_softmax, adagrad"
    assert [line for line in (*messages, *(str(each.message) for each in warned)) if "it was not built" in line] == [
        f"SLOWER {ops}: reference, not native: it was not built"
    ]
    assert any(line.startswith("SLOWER float16: operands rounded, then multiplied in float32") for line in messages)


@pytest.mark.parametrize("precision", ["float32", "tf32", "float16"])
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_float32_on_a_gpu_is_said_to_be_slow(precision, device):
    plan = lines(torch.device(device), precision=precision, backend="reference", optimiser="adamw")
    assert any(line.startswith("SLOWER adamw") for line in plan) == (device == "cuda")
    assert any("--precision bfloat16 takes one" in line for line in plan) == (
        (precision, device) == ("float32", "cuda")
    )


@pytest.mark.parametrize(("precision", "device"), [("float16", "cuda"), ("tf32", "cpu")])
def test_a_precision_that_cannot_train_there_names_bfloat16(precision, device):
    expected, settings = (
        rf"^precision {precision} .*; got device {device}: give .*bfloat16",
        toy_config(precision=precision),
    )
    with pytest.raises(ElmoFastError, match=expected), run._settings(settings, torch.device(device)):
        pass


@pytest.mark.parametrize(("rows", "size", "slow"), [(128, 8, True), (512, 8, False), (63, 1, True), (64, 1, False)])
def test_few_rows_on_a_gpu_are_said_to_be_slow(rows, size, slow):
    """batch_size counts the rows of all processes: the plan says how many each has."""
    processes = Processes()
    processes.distributed, processes.size = size > 1, size
    config = toy_config(batch_size=rows, backend="reference", precision="bfloat16")
    plan = RunPlan(config, 20, processes, torch.device("cuda")).describe_model()
    idle = [line for line in plan if line.startswith(f"SLOWER {rows // size} rows leave most of a GPU idle")]
    assert len(idle) == slow
    if size > 1:
        assert any(f"{rows // size} rows in each of {size} processes" in line for line in plan)
        assert not slow or "counts those of all 8 processes): a new run with --batch_size 512 or more" in idle[0]


@pytest.mark.parametrize("faster", [True, False])
def test_bfloat16_is_slower_only_without_its_kernels(monkeypatch, faster):
    if _native.C is None:
        pytest.skip(_native.WHY_NOT)
    monkeypatch.setattr("elmo_fast.ops.is_faster_on_cpu", lambda precision: faster)
    assert any(line.startswith("SLOWER bfloat16") for line in lines(precision="bfloat16")) != faster


@pytest.mark.parametrize("prepared", [True, False])
def test_a_dry_run_measures_a_few_steps_and_leaves_nothing(tmp_path, monkeypatch, prepared):
    config = toy_config(tmp_path, max_steps=3000, n_epochs=10**4)
    if prepared:
        prepare(config.data.train_prefix, tmp_path / "corpus", min_count=1)
        config.data.train_prefix = str(tmp_path / "corpus")
    before, lines = sorted(tmp_path.rglob("*")), []
    dry_run(config, report=lines.append)
    speed = next(line for line in lines if line.startswith("speed "))
    tokens = float(speed.split()[1].replace(",", ""))
    assert tokens > 0
    assert "measured here in 20 steps after 3: 3,000 steps take about" in speed
    assert sorted(tmp_path.rglob("*")) == before
    for piece in (
        "weights in the biLM",
        "memory about",
        "disk   about",
        "3 rows x 5 = 15 tokens",
        "plan   3,000 steps",
    ):
        assert any(piece in line for line in lines)
    config.run.max_seconds = 1e-3
    dry_run(config, report=lines.append)
    assert "; max_seconds ends the run after 0.1s" in lines[-1]
    monkeypatch.setattr(resource, "getrlimit", lambda limit: (0, -1))
    with pytest.warns(UserWarning, match="memory will run out"):
        dry_run(config, report=lines.append)
    assert lines[-1] == "speed  not measured: memory would run out"


def test_a_dry_run_of_long_text_asks_to_prepare_it(tmp_path, monkeypatch):
    monkeypatch.setattr("elmo_fast.pretrain.run.MOST_DRY_RUN_BYTES", 10)
    with pytest.raises(ElmoFastError, match="more than a dry run reads: run elmo-fast prepare"):
        dry_run(toy_config(tmp_path), report=quiet)
    (tmp_path / "vocab.txt").write_text("<S>\n</S>\n<UNK>\nthe\n")  # it reports the size of the model
    lines = []
    dry_run(toy_config(tmp_path, vocab_file=str(tmp_path / "vocab.txt")), report=lines.append)
    assert "more than a dry run reads" in lines[0]
    assert len(lines) > 1


def disk(config, run, corpus=None):
    """The line about the disk, in the plan of a run."""
    return RunPlan(config, len(run.vocabulary), Processes(), torch.device("cpu"), corpus).describe_disk()


def test_the_disk_announced_is_the_disk_used(tmp_path, monkeypatch):
    """To a tenth, the last checkpoint that is removed after the next is written included."""
    config = toy_config(tmp_path, dim=128, projection_dim=64, max_steps=6, checkpoint_interval=1, n_epochs=99)
    run = pretrain(config, report=quiet)
    checkpoint = sum(path.stat().st_size for path in saved_steps(run.folder)[0][1].iterdir())
    model = (run.folder / "model.safetensors").stat().st_size
    asked = []
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: asked.append(folder) or SimpleNamespace(free=2**30))
    corpus = open_corpus(run.folder / "corpus")
    line = disk(config, run, corpus)
    announced = float(line.split("about ")[1].split()[0]) * 2**20
    assert announced == pytest.approx(3 * checkpoint + model, rel=0.1)
    text = sum(path.stat().st_size for path in (run.folder / "corpus").iterdir())
    assert f"the prepared text {size(corpus_bytes(corpus))};" in line
    assert corpus_bytes(corpus) == pytest.approx(text, abs=2500), "all but meta.json, vocab.txt and the lock"
    assert "the prepared text 114 bytes" in disk(config, run), "an estimate"
    elsewhere = toy_config(tmp_path, train_prefix=str(run.folder / "corpus"))
    assert "prepared" not in disk(elsewhere, run, corpus)
    config.run.save_dir = str(tmp_path / "absent" / "run")
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: asked.append(folder) or SimpleNamespace(free=1000))
    with pytest.warns(UserWarning, match="^the disk will be full: lower keep_checkpoints"):
        disk(config, run)
    assert asked == [*[run.folder] * 3, tmp_path]


@pytest.mark.parametrize("long", [False, True])
def test_the_memory_announced_is_the_peak(tmp_path, long):
    """Memory of a process of its own, to a tenth; half of it belongs to the model, its steps and its evaluation, or a
    quarter to a text of short lines: its files, which are mapped, and an epoch's order."""
    rng = random.Random(0)
    lines = (" ".join(f"word{rng.randrange(4000)}" for _ in range(20)) for _ in range(400))
    (tmp_path / "text.txt").write_text("\n".join(lines) + "\n")
    (tmp_path / "long.txt").write_text("".join(f"word{number}\n" for number in range(50)) * 100_000)
    words = ["--config", "tiny", "--max_steps", "2", "--log_interval", "2", "--min_count", "1"]
    words += ["--train_prefix", "long.txt"] if long else ["--train_prefix", "text.txt", "--batch_size", "128"]
    words += ["--dim", "512", "--heldout_prefix", "text.txt", "--save_dir", "out", "--threads", "1"]
    # Not ru_maxrss, which a process inherits from the one that starts it.
    code = f"from elmo_fast.cli.main import main; main({['pretrain', *words]}); "
    code += "print(*[line.split()[1] for line in open('/proc/self/status') if line.startswith('VmHWM')])"
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, env=environment, check=True
    )
    announced = float(re.search(r"memory about ([\d.]+) MiB per process: Python ", done.stderr)[1])
    assert announced == pytest.approx(int(done.stdout) / 1024, rel=0.1)


def test_threads_that_wait_for_each_other_are_reported(tmp_path, monkeypatch):
    """Other programs keep one of two processors busy; a number that the user gave is not questioned."""
    for name in threads.VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(threads, "processors", lambda: {0, 1})
    monkeypatch.setattr(threads, "busy_processors", lambda: 1.0)
    config, slow = toy_config(tmp_path), "SLOWER 2 threads wait for each other: other programs use 1.0 of 2 CPUs"
    plan = RunPlan(config, 20, Processes(), torch.device("cpu"))
    with threads.torch_threads(2):
        assert f"{slow}; --threads 1 may be faster" in plan.describe_model()
        config.run.threads = 2
        assert not any(line.startswith("SLOWER") for line in plan.describe_model())


def test_planned_steps_count_every_position_unless_told_the_words():
    config = toy_config(max_steps=None, n_epochs=3, batch_size=2, unroll_steps=2)
    assert planned_steps(config, steps_per_epoch=12) == 36
    config.optimizer.n_train_tokens = 22
    assert planned_steps(config, steps_per_epoch=12) == 3 * 5
    config.run.max_steps = 7
    assert planned_steps(config, steps_per_epoch=12) == 7


@pytest.mark.parametrize(
    ("loss", "products", "rows"),
    [
        ("sampled_softmax", 51, 1024),
        ("negative_sampling", 51, 1024),
        ("hierarchical_softmax", 10, 1023),
        ("full_softmax", 1024, 1024),
    ],
)
def test_the_plan_tells_the_loss_its_table_memory_and_work(tmp_path, loss, products, rows):
    """Rows of the tables and FLOP a token: V - 1 inner nodes and log2(V) products, V + 1 with all words sampled."""
    vocabulary = tmp_path / "vocab.txt"
    vocabulary.write_text("\n".join(["<S>", "</S>", "<UNK>", *(f"w{i}" for i in range(1021))]) + "\n")
    (tmp_path / "train.txt").write_text("w1 w2\n")
    messages = []
    config = toy_config(
        train_prefix=str(tmp_path / "train.txt"), save_dir=str(tmp_path), vocab_file=str(vocabulary), loss=loss,
        n_negative_samples_batch=50, input="words", projection_dim=1000, dim=1000, n_layers=1,
    )  # fmt: skip
    dry_run(config, report=messages.append)
    (line,) = (line for line in messages if line.startswith("loss "))
    assert loss in line
    assert float(line.rsplit(", ", 1)[1].split()[0]) == pytest.approx(12 * products * 1000 / 1e6, abs=0.006)
    # Both directions of a layer, without a projection to as many units as it has cells; a vector for each word.
    bilm = 2 * (2 * 4000 * 1000 + 4000) + 1025 * 1000
    sizes = f"{bilm / 1e6:.2f}M weights in the biLM, {rows * 1001 / 1e6:.2f}M in the softmax over 1,024 words"
    assert f"reads words | {sizes}" in messages[0]
    assert LOSS_CLASSES["hierarchical_softmax"].max_rows_used(1024, 50, 3) == math.ceil(2 * 3 * 10)
    assert LOSS_CLASSES["full_softmax"].max_rows_used(1024, 50, 3) == 1024
