"""--config: YAML, JSON and TOML; what is typed stands above it; an error is one line that names the file or option."""

import json
import os
import threading

import pytest
import yaml

from elmo_fast.cli import main as entry
from tests.support.command_line import elmo_fast


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("typo.yaml", "dim: 16\nporjection_dim: 8\n", "unknown option porjection_dim; did you mean projection_dim"),
        ("typo.toml", "dim = 16\nseeed = 8\n", "unknown option seeed; did you mean seed?"),
        (
            "value.yaml",
            "seed: 1\ndim: sixteen\n",
            """Parser key "dim": Expected a <class 'int'>. Got value: sixteen""",
        ),
        ("broken.yaml", "dim: 1\nfilters: [1,\n", "--config broken.yaml: while parsing a flow node"),
        ("broken.toml", "dim = \n", "--config broken.toml: Invalid value (at line 1, column 7)"),
        ("list.yaml", "- a\n", "--config list.yaml: it must hold options, each as in `seed: 1`"),
        ("bytes.yaml", b"dim: \xff\n", "--config bytes.yaml: 'utf-8' codec can't decode"),
        (".", None, "--config: Is a directory: '.'"),
        ("smal", None, "--config smal: neither a file nor a preset"),
        ("/dev/zero", None, "--config /dev/zero: more than 67,108,864 characters, which are no options"),
    ],
)
def test_a_mistake_is_one_line(tmp_path, monkeypatch, name, text, expected):
    monkeypatch.chdir(tmp_path)
    if text is not None:
        (tmp_path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    done = elmo_fast("pretrain", "--config", name)
    assert done.returncode == 2
    assert expected in done.stderr.splitlines()[0], done.stderr


# Commands with options of every kind, and words that differ from the defaults.
TYPED = {
    "pretrain": "--config tiny --train_prefix a --save_dir o --dim 16 --filters [[1,2],[2,2]]",
    "plot senses": "--model m --word king --text t --output a.html a.png --clusters 3",
    "report": "--train_path a --dev_path b --test_path c --column 1 2 --seeds 2",
    "embed": "in out --top --model m",
    "task train": "--train_path a --dev_path b --save_dir s --learning_rate 1e-4",
    "static eval": "vectors --pairs a b --case_insensitive false",
    "models": "",
}


def parsed(command, *words):
    """The options of a command, without --config."""
    options = entry.parser_of(command).values(entry.normalised(words))
    return {name: value for name, value in options.items() if name != "config"}


@pytest.mark.parametrize("command", TYPED)
def test_what_print_config_shows_is_the_same_run(tmp_path, monkeypatch, command):
    """Also as JSON and TOML, where there is no null, and with what is typed again."""
    monkeypatch.chdir(tmp_path)
    words = TYPED[command].split()
    done = elmo_fast(*command.split(), *words, "--print_config")
    assert not done.returncode
    (tmp_path / "shown.yaml").write_text(shown := done.stdout)
    values = {name: value for name, value in yaml.safe_load(shown).items() if value is not None}
    (tmp_path / "shown.json").write_text(json.dumps(values))
    (tmp_path / "shown.toml").write_text("".join(f"{name} = {json.dumps(value)}\n" for name, value in values.items()))
    expected = parsed(command, *words)
    for file in ("shown.yaml", "shown.json", "shown.toml"):
        assert parsed(command, "--config", file) == expected
    assert parsed(command, *words, "--config", "shown.yaml") == expected


def test_flags_override_files_and_later_files_override_earlier_ones(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.yaml").write_text("layers: all\nbatch_size: 3\ninput_file: x\n")
    (tmp_path / "b.yaml").write_text("batch_size: 4\n")
    for words in (["--top", "--config=a.yaml"], ["--config", "a.yaml", "--layers=top"]):
        actual = parsed("embed", "in", "out", *words, "--config", "b.yaml")
        assert (actual["layers"], actual["batch_size"], actual["input_file"]) == ("top", 4, "in")
    assert parsed("embed", "in", "out", "--config", "a.yaml", "--average")["layers"] == "average"


def test_a_byte_order_mark_and_a_pipe_change_nothing(tmp_path):
    """A pipe can be read only once."""
    for name, text in (("a.yaml", "seed: 7"), ("a.json", '{"seed": 7}'), ("a.toml", "seed = 7")):
        (tmp_path / name).write_text(text, "utf-8-sig")
        assert parsed("embed", "in", "out", "--config", str(tmp_path / name))["seed"] == 7
    os.mkfifo(pipe := tmp_path / "pipe")
    writer = threading.Thread(target=pipe.write_text, args=("seed: 8",))
    writer.start()
    assert parsed("embed", "in", "out", "--config", str(pipe))["seed"] == 8
    writer.join()


def test_null_disables_what_has_another_default():
    assert parsed("pretrain", "--cell_clip", "null")["cell_clip"] is None
