"""Command lines and YAML configurations: options of every command with odd values; one sentence and status 2."""

import contextlib
import functools
import io
import os
import random

from elmo_fast.cli.main import COMMANDS, main, parsers
from tests.fuzz import folders
from tests.fuzz.damage import LARGE, ODD_TEXT, damaged
from tests.fuzz.damage import value as any_value
from tests.fuzz.judge import Wrong, sentence
from tests.support.weights import make_weights

# Commands that do not train, measure or reach out for minutes.
LINES = (
    "vocab --train_prefix in.txt --vocab_file out",
    "prepare --train_prefix in.txt --out_dir out",
    "eval --model bilm --test_prefix in.txt --vocab_file vocab.txt --batch_size 2",
    "embed in.txt out --all --model bilm",
    "neighbours --model bilm --corpus in.txt --query cat --index 0",
    "convert --model bilm --to safetensors --out_dir out",
    "cache-vocab --model bilm --vocab_file vocab.txt --output out",
    "info",
    "static neighbours v.txt --words the",
    "static convert v.txt",
    "task predict v.txt",
    "plot words --vectors v.txt --words the",
)
CONFIG = """model:
dim: 8
projection_dim: 4
filters: [[1, 4]]
n_highway: 0
max_steps: 1
batch_size: 2
learning_rate: 0.1
train_prefix: in.txt
save_dir: run
dry_run: true
"""


@folders.valid
def valid(folder):
    make_weights(folder / "bilm", softmax=7)
    (folder / "in.txt").write_text("the cat sat\na dog\n")
    (folder / "vocab.txt").write_text("<S>\n</S>\n<UNK>\nthe\ncat\na\ndog\n")
    (folder / "v.txt").write_text("the 1 2 3\ncat 4 5 6\ndog 7 8 9\n")
    return folder


@functools.cache
def options(name: str) -> list[str]:
    """The long options of a command."""
    return sorted(flag for flag in parsers()[name]._option_string_actions if flag.startswith("--"))


VALUES = ("in.txt", "bilm", "out", "vocab.txt", "v.txt", "bilm/options.json", "bilm/weights.hdf5", ".", "absent",
          "cpu", "cuda:7", "king", "0", "1", "2", "-1", "0.5", "1e9", "true", "top", "float32", "safetensors", "--",
          "[]")  # fmt: skip
# The command starts as many processes or threads as are asked for.
FEW = ("--processes", "--threads")


def _value(rng):
    odd = (str(rng.choice(LARGE[:12])), rng.choice(ODD_TEXT), str(any_value(rng))[:1000])
    # Nothing is written outside the case's folder, whoever runs it.
    return rng.choice((*VALUES, *odd)).replace("\0", "").lstrip("/").replace("..", "")


def words_of(rng: random.Random) -> list[str]:
    """A command line."""
    words = rng.choice(LINES).split()
    for _ in range(rng.choice((0, 1, 1, 2, 3))):
        how, at = rng.randrange(5), rng.randrange(len(words))
        if how == 0 and at:
            del words[at]
        elif how == 1 and at:
            words[at] = _value(rng)
        else:
            flag = rng.choice(options(words[0]) or ["--help"]) if words and words[0] in COMMANDS else "--help"
            flag = flag if rng.random() < 0.9 else flag[:-1] or "--x"
            value = rng.choice(("0", "1", "2", "-1", "x", "")) if flag in FEW else _value(rng)
            words += [flag] if rng.random() < 0.2 else [flag, value]
    return words


def case(rng: random.Random) -> None:
    folder = folders.copied(valid())
    if rng.random() < 0.25:
        (folder / "run.yaml").write_bytes(damaged(rng, CONFIG.removeprefix("model:\n").encode()))
        words = ["pretrain", "--config", "run.yaml", "--dry_run"]
    else:
        words = words_of(rng)
    printed, errors = io.StringIO(), io.StringIO()
    before = os.getcwd()
    os.chdir(folder)
    try:
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(errors):
            try:
                status = main(words)
            except SystemExit as stop:
                status = stop.code
    finally:
        os.chdir(before)
    message = [line for line in errors.getvalue().splitlines() if line.strip()]
    if status not in (0, 1, 2):
        raise Wrong(f"command_line {words[0]}: status {status}: {words}")
    if status == 2 and not any(": error: " in line for line in message) and len(words) > 1:
        raise Wrong(f"command_line {words[0]}: status 2 and no error: {words}: {message[-3:]}")
    if "Traceback" in errors.getvalue():
        raise Wrong(f"command_line {words[0]}: a traceback: {words}")
    if status == 2 and message:  # a command by itself may print its help and nothing else
        sentence(message[-1], most=10_000)
