"""-q hides progress, and no warning: each line that is left on stderr is one."""

import pytest
import yaml

from elmo_fast.checkpoints import load_checkpoint, save_folder
from tests.cli.conftest import ran
from tests.pretrain.toy import toy_config as pretraining
from tests.tasks.toy import toy_config as tagging

UNKNOWN = "100.0% of the words of the text are outside the vocabulary"
# Command -> its words, and a warning that it has here.
CASES = {
    "embed": ("in.txt out.npz --model m", "in.txt: 1 blank line"),
    "pretrain": ("--config pretrain.yaml --vocab_file other.txt", UNKNOWN),
    "task train": (
        "--config task.yaml --save_dir new --dev_path odd.conll",
        "dev: 1 of 1 labels do not occur in the training data",
    ),
    "static eval": ("v.txt --pairs pairs.txt", "pairs.txt: 1 lines are not"),
    "plot words": (
        "--vectors v.txt --words a b zebra --method pca --output words.png",
        "v.txt has no vector for 'zebra'",
    ),
}


@pytest.fixture(scope="module")
def place(tmp_path_factory, toy):
    """A folder with what the commands read."""
    folder = tmp_path_factory.mktemp("quiet")
    save_folder(folder / "m", *load_checkpoint(None, *toy))
    (folder / "in.txt").write_text("a cat sat\n\na dog\n")
    (folder / "other.txt").write_text("<S>\n</S>\n<UNK>\nyak\nzebu\n")
    (folder / "v.txt").write_text("a 1 2\nb 2 1\nc 0 1\nd 1 0\n")
    (folder / "pairs.txt").write_text("a\tb\t1\na\tc\t2\nb\tc\t3\nodd\n")
    (folder / "odd.conll").write_text("Ann\tSTRANGE\n\n")
    for name, config in (("pretrain.yaml", pretraining(folder, max_steps=1)), ("task.yaml", tagging(folder, epochs=1))):
        (folder / name).write_text(yaml.safe_dump({k: v for k, v in config.flat().items() if v is not None}))
    return folder


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("command", CASES)
def test_quiet_leaves_the_warnings_and_nothing_else(place, monkeypatch, command):
    monkeypatch.chdir(place)
    words, warning = CASES[command]
    lines = ran(*command.split(), *words.split(), "-q").stderr.splitlines()
    assert [line for line in lines if not line.startswith("elmo-fast: warning: ")] == []
    assert [line for line in lines if warning in line], lines
