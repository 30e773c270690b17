"""--config: what is wrong in a file is told with the file, the line and the option that was meant."""

import json

import pytest
import yaml

from elmo_fast.cli.main import main


def told(capsys, *words):
    """The first line on stderr of a command that ends with status 2."""
    try:
        status = main(list(words))
    except SystemExit as stop:
        status = stop.code
    assert status == 2
    return capsys.readouterr().err.splitlines()[0]


@pytest.mark.parametrize(
    ("name", "text", "wanted"),
    [
        (
            "typo.yaml",
            "dim: 16\n\nporjection_dim: 8\n",
            ", line 3: there is no option 'porjection_dim'; did you mean pro",
        ),
        ("hyphen.yaml", "batch-size: 8\n", ", line 1: there is no option 'batch-size'; did you mean batch_size?"),
        ("typo.json", '{"dim": 16,\n"seeed": 8}\n', ", line 2: there is no option 'seeed'; did you mean seed?"),
        ("typo.toml", "dim = 16\n\nseeed = 8\n", ", line 3: there is no option 'seeed'; did you mean seed?"),
        ("value.yaml", "seed: 1\ndim: sixteen\n", ", line 2: --dim: wanted a whole number; got sixteen"),
        ("twice.yaml", "dim: 1\nseed: 1\ndim: 2\n", ", line 3: dim is given again, after line 1; remove one"),
        ("broken.yaml", "dim: 1\nfilters: [1,\n", ", line 3, column 1: not YAML: expected"),
        ("tab.yaml", "\tdim: 1\n", ", line 1, column 1: not YAML: found character '\\t'"),
        ("alias.yaml", "dim: *a\n", ", line 1, column 6: not YAML: found undefined alias"),
        ("date.yaml", "dim: 2020-13-45\n", ": not YAML: month must be in 1..12"),
        ("broken.toml", "dim = \n", ": not TOML: Invalid value (at line 1, column 7)"),
        ("list.yaml", "\n- a\n", ": wanted options, each as in `seed: 1`; found a sequence, line 2"),
        ("empty.yaml", "", ": wanted options, each as in `seed: 1`; found nothing"),
    ],
)
def test_a_mistake_is_told_with_its_line(tmp_path, capsys, name, text, wanted):
    (tmp_path / name).write_text(text)
    line = told(capsys, "pretrain", "--config", str(tmp_path / name))
    assert line.startswith(f"elmo-fast pretrain: error: --config {tmp_path / name}{wanted}"), line


def test_a_flags_mistake_is_not_laid_to_the_file(tmp_path, capsys):
    (tmp_path / "a.yaml").write_text("dim: 16\n")
    line = told(capsys, "pretrain", "--config", str(tmp_path / "a.yaml"), "--dim", "x")
    assert line == "elmo-fast pretrain: error: --dim: wanted a whole number; got x"


def test_a_folder_an_absent_file_and_bytes_are_one_sentence(tmp_path, capsys):
    (tmp_path / "bytes").write_bytes(b"dim: \xff\n")
    for name, wanted in ((".", "Is a directory"), ("absent", "No such file"), ("bytes", "not UTF-8 text")):
        assert wanted in told(capsys, "embed", "a", "b", "--top", "--config", str(tmp_path / name))
    assert "did you mean small?" in told(capsys, "pretrain", "--config", "smal")


def test_every_command_reads_toml(tmp_path, capsys):
    """And numbers as YAML files always gave them."""
    (tmp_path / "a.toml").write_text('train_path = "a"\ndropout = 0.25\n')
    (tmp_path / "b.yaml").write_text("learning_rate: 1e-3\n")
    files = [word for name in ("a.toml", "b.yaml") for word in ("--config", str(tmp_path / name))]
    with pytest.raises(SystemExit):
        main(["task", "train", *files, "--print_config"])
    shown = yaml.safe_load(capsys.readouterr().out)
    assert (shown["train_path"], shown["dropout"], shown["learning_rate"]) == ("a", 0.25, 0.001)


OLD = {"train": "train_path", "dev": "dev_path", "test": "test_path"}


def test_old_names_of_the_reports_options_are_taken_and_not_shown(tmp_path, capsys):
    """As flags, with and without an equals sign, and in files; both names at once are one too many."""
    (tmp_path / "old.yaml").write_text("train: a\n'columns': [upos, xpos]\n")
    (tmp_path / "new.json").write_text(json.dumps({"train_path": "a", "column": ["upos", "xpos"]}))
    shown = []
    for words in (["old.yaml", "--dev", "b", "--test=c"], ["new.json", "--dev_path", "b", "--test_path=c"]):
        with pytest.raises(SystemExit):
            main(["report", "--config", str(tmp_path / words[0]), *words[1:], "--print_config"])
        shown.append(yaml.safe_load(capsys.readouterr().out))
    assert shown[0] == shown[1]
    assert [shown[0][name] for name in (*OLD.values(), "column")] == ["a", "b", "c", ["upos", "xpos"]]
    with pytest.raises(SystemExit):
        main(["report", "--help"])
    text = capsys.readouterr().out
    assert "--train_path" in text
    assert not any(f"--{old} " in text for old in (*OLD, "columns"))
    (tmp_path / "both.yaml").write_text("train: a\ntrain_path: a\n")
    assert "train_path is given again" in told(capsys, "report", "--config", str(tmp_path / "both.yaml"))
