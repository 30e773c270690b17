"""-q hides progress, and no warning: each line that is left on stderr is one."""

import pytest
import yaml

from tests.cli.conftest import pair, ran
from tests.pretrain.toy import toy_config


@pytest.mark.filterwarnings("default")
def test_quiet_leaves_the_warnings_and_nothing_else(tmp_path, toy):
    (tmp_path / "in.txt").write_text("a cat sat\n\na dog\n")
    (tmp_path / "other.txt").write_text("<S>\n</S>\n<UNK>\nyak\nzebu\n")
    config = toy_config(tmp_path, max_steps=1, vocab_file=str(tmp_path / "other.txt")).flat()
    (tmp_path / "run.yaml").write_text(yaml.safe_dump({k: v for k, v in config.items() if v is not None}))
    for words, warning in (
        (["embed", tmp_path / "in.txt", tmp_path / "out.npz", *pair(toy)], "in.txt: 1 blank line"),
        (["pretrain", "--config", tmp_path / "run.yaml"], "100.0% of the words of the text are outside the vocabulary"),
    ):
        lines = ran(*words, "-q").stderr.splitlines()
        assert [line for line in lines if not line.startswith("elmo-fast: warning: ")] == []
        assert [line for line in lines if warning in line], lines
