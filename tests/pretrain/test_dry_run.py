"""A dry run says what a run takes, as measured in a few of its steps, and leaves nothing."""

import functools
import random
import re
import shutil
import tempfile
from types import SimpleNamespace

import pytest

from elmo_fast._runtime.memory import resident
from elmo_fast.checkpoints import saved_steps
from elmo_fast.cli.main import main
from elmo_fast.corpus import prepare
from elmo_fast.errors import ElmoFastError
from elmo_fast.pretrain.dry_run import dry_run
from elmo_fast.pretrain.run import pretrain
from tests.pretrain.processes import words_of
from tests.pretrain.toy import quiet, toy_config
from tests.support.backends import trains_in_a_fork
from tests.torture.children import all_finish, fork_group


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    """The folder of temporary files; the text and the run are next to it."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.mark.parametrize("text", ["plain", "prepared", "prepared by a run"])
def test_a_dry_run_measures_a_few_steps_and_leaves_nothing(tmp_path, temporary, text):
    heldout = str(tmp_path / "train-1*")
    config = toy_config(tmp_path, max_steps=3000, n_epochs=10**4, checkpoint_interval=100, heldout_prefix=heldout)
    if text != "plain":
        folder = tmp_path / ("corpus" if text == "prepared" else "out/corpus")
        folder.parent.mkdir(exist_ok=True)
        prepare(config.data.train_prefix, folder, min_count=1)
        if text == "prepared":
            config.data.train_prefix = str(folder)
    before, lines = sorted(tmp_path.rglob("*")), []
    dry_run(config, report=lines.append)
    assert sorted(tmp_path.rglob("*")) == before
    assert any(line.startswith("vocab ") for line in lines) == (text == "plain"), "prepared text is not prepared again"
    train, plan, memory, disk, speed = lines[-5:]
    assert re.match(r"train  0.01M weights in the biLM, 0.00M in the softmax over 19 words, float32 on cpu \| ", train)
    saves, evaluates = "a checkpoint every 100 steps or 10m00s", "held-out text every 300 steps and at the end"
    assert plan == f"plan   3,000 steps, 3 per epoch | {saves} | {evaluates}"
    assert re.match(r"memory [\d.]+ [MG]iB per process at the peak of these steps; [\d.]+ [MG]iB more are free", memory)
    assert re.match(r"disk   about [\d.]+ KiB in save_dir: checkpoints of [\d.]+ KiB each", disk)
    assert ("the prepared text" in disk) == (text == "plain")
    assert re.match(
        r"speed  [\d,]+ tokens/s, measured here in 20 steps after 3: 3,000 steps take about [\dms.]+, ", speed
    )
    config.run.max_seconds = 1e-3
    dry_run(config, report=lines.append)
    assert "; max_seconds ends the run after 0.1s" in lines[-1]
    assert lines[-4].endswith("every 300 steps or 0.1s and at the end")


def test_a_dry_run_of_long_text_asks_to_prepare_it(tmp_path, monkeypatch):
    monkeypatch.setattr("elmo_fast.pretrain.dry_run.MOST_TEXT", 10)
    with pytest.raises(ElmoFastError, match="more than a dry run reads: run elmo-fast prepare"):
        dry_run(toy_config(tmp_path), report=quiet)


@trains_in_a_fork
def test_several_processes_measure_together(tmp_path, temporary):
    words, log = words_of(tmp_path, "out"), tmp_path / "log"

    def work():
        assert main([*words, "--dry_run"]) == 0

    assert all_finish(fork_group(work, 2, log), log)
    assert log.read_text().count(" rows in each of 2 processes |") == 1
    assert not list(temporary.iterdir())
    assert not (tmp_path / "out").exists()


def test_the_disk_announced_is_the_disk_used(tmp_path, monkeypatch):
    """To a tenth, the last checkpoint that is removed after the next is written included."""
    more = {"max_steps": 6, "checkpoint_interval": 1, "n_epochs": 99}
    config, lines, asked = toy_config(tmp_path, dim=128, projection_dim=64, **more), [], []
    free = SimpleNamespace(free=2**30)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: asked.append(folder) or free)
    dry_run(config, report=lines.append)
    run = pretrain(config, report=quiet)
    checkpoint = sum(path.stat().st_size for path in saved_steps(run.folder)[0][1].iterdir())
    model = (run.folder / "model.safetensors").stat().st_size
    announced = float(lines[-2].split("about ")[1].split()[0]) * 2**20
    assert announced == pytest.approx(3 * checkpoint + model, rel=0.1)
    assert lines[-2].endswith("; 1.0 GiB are free")
    free.free = 1000
    dry_run(config, report=lines.append)
    assert lines[-2].endswith(
        "1000 bytes are free: too few; lower keep_checkpoints, or give a save_dir on another disk"
    )
    assert asked == [tmp_path, run.folder]


@trains_in_a_fork
def test_the_memory_announced_is_the_peak_of_a_run(tmp_path):
    """To a tenth, each in a process of its own, with an evaluation."""
    rng = random.Random(0)
    lines = (" ".join(f"word{rng.randrange(2000)}" for _ in range(20)) for _ in range(30))
    (tmp_path / "text.txt").write_text("\n".join(lines) + "\n")
    words = ["pretrain", "--config", "tiny", "--max_steps", "2", "--min_count", "1", "--unroll_steps", "4"]
    words += ["--train_prefix", str(tmp_path / "text.txt"), "--heldout_prefix", str(tmp_path / "text.txt")]
    words += ["--save_dir", str(tmp_path / "out"), "--threads", "1", "--device", "cpu"]

    def work(*more):
        assert main([*words, *more]) == 0
        print(f"peak {resident(peak=True)}")

    for log, more in ((tmp_path / "dry", ["--dry_run"]), (tmp_path / "run", [])):
        assert all_finish(fork_group(functools.partial(work, *more), 1, log), log)
    number, unit = re.search(r"memory ([\d.]+) (MiB|GiB) per process", (tmp_path / "dry").read_text()).groups()
    announced = float(number) * (1024 if unit == "GiB" else 1)  # a fork has its parent's memory too
    peak = int((tmp_path / "run").read_text().rsplit("peak ")[-1])
    assert announced == pytest.approx(peak / 2**20, rel=0.1)
