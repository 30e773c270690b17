"""--config: what is wrong in a file is told with the file, the line and the option that was meant."""

import json

import pytest
import yaml

from elmo_fast.cli.main import main, normalised
from tests.cli.test_help import commands, parser_of


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
        ("date.yaml", "dim: 2020-13-45\n", ", line 1: --dim: wanted a whole number; got 2020-13-45"),
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


# Words with which each command prints its configuration, different from the defaults.
TYPED = {
    "vocab": "--train_prefix a --vocab_file v --min_count 2",
    "prepare": "--train_prefix a --out_dir o --max_vocab_size 9",
    "pretrain": "--config tiny --train_prefix a --save_dir o --dim 16 --filters [[1,2],[2,2]]",
    "eval": "--test_prefix a --options_file o --weight_file w --unroll_steps 3",
    "plot curves": "run --also other another",
    "plot layers": "one two --output a.pdf",
    "plot words": "--vectors v --words king queen",
    "plot senses": "--model m --word king --text t --output a.html a.png --clusters 3",
    "plot projector": "--model m --text t --out_dir o",
    "report": "--train_path a --dev_path b --test_path c --column 1 2 --seeds 2",
    "embed": "in out --top --no_stateful --model m",
    "merge": "parts out --format npz",
    "neighbours": "--model m --corpus c --query a --index 0 --layer 1",
    "task train": "--train_path a --dev_path b --save_dir s --learning_rate 1e-4",
    "task eval": "folder path --format tsv",
    "task predict": "folder path out",
    "convert": "--model m --to hdf5 --out_dir o",
    "upload": "folder me/elmo --private",
    "download": "me/elmo --out_dir o",
    "static train": "--train_prefix a --output a.vec --algo glove",
    "static eval": "vectors --pairs a b --case_insensitive false",
    "static neighbours": "vectors --words king queen",
    "static convert": "vectors --output a.bin",
    "static export": "--model m --corpus c --output a.txt --layer average",
    "cache-vocab": "--model m --vocab_file v --output o",
    "info": "--model m --threads 1",
}


def parsed(command, *words):
    """The options of a command, without --config."""
    options = dict(vars(parser_of(command).parse_args(normalised(words))))
    return {name: value for name, value in options.items() if name != "config"}


@pytest.mark.parametrize("command", commands())
def test_what_print_config_shows_is_the_same_run(tmp_path, monkeypatch, capsys, command):
    """Also in TOML, where there is no null, and with what is typed again."""
    monkeypatch.chdir(tmp_path)
    words = TYPED.get(command, "").split()
    with pytest.raises(SystemExit) as stop:
        main([*command.split(), *words, "--print_config"])
    assert not stop.value.code
    (tmp_path / "shown.yaml").write_text(shown := capsys.readouterr().out)
    assert parsed(command, "--config", "shown.yaml") == parsed(command, *words)
    assert parsed(command, *words, "--config", "shown.yaml") == parsed(command, *words)
    (tmp_path / "shown.json").write_text(json.dumps(yaml.safe_load(shown)))
    assert parsed(command, "--config", "shown.json") == parsed(command, *words)


LAYERS = ("all", "top", "average")


@pytest.mark.parametrize("typed", [f"--{name}" for name in LAYERS] + ["--layers=top"])
@pytest.mark.parametrize("given", [*LAYERS, "layers"])
def test_what_is_typed_wins_before_and_after_the_file(tmp_path, monkeypatch, typed, given):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.yaml").write_text("layers: all\n" if given == "layers" else f"{given}: true\n")
    for words in ([typed, "--config", "a.yaml"], ["--config", "a.yaml", typed]):
        assert parsed("embed", "in", "out", *words)["layers"] == typed.removeprefix("--").removeprefix("layers=")


@pytest.mark.parametrize(
    ("command", "text", "typed", "wanted"),
    [
        ("embed in out --top", "model: m", "--options_file o --weight_file w", {"model": None, "options_file": "o"}),
        ("embed in out --top", "options_file: o\nweight_file: w", "--model m", {"model": "m", "weight_file": None}),
        ("embed in out --top", "batch_size: 3\ninput_file: x", "--batch_size 5", {"batch_size": 5, "input_file": "in"}),
        ("eval", "save_dir: s\nsoftmax_file: f", "--model m", {"model": "m", "save_dir": None, "softmax_file": None}),
        ("static export --output a.txt", "vocab_file: v", "--corpus c", {"vocab_file": None, "corpus": "c"}),
        ("plot words", "vectors: v\ncount: 9", "--model m", {"vectors": None, "model": "m", "count": 9}),
        ("plot words", "words: [a, b]", "--model m --text t", {"words": [], "text": "t"}),
        ("prepare --train_prefix a --out_dir o", "min_count: 9", "--vocab_file v", {"min_count": 3, "vocab_file": "v"}),
    ],
)
def test_what_is_typed_replaces_what_excludes_it(tmp_path, monkeypatch, command, text, typed, wanted):
    """In either order; a later file replaces an earlier one in the same way."""
    monkeypatch.chdir(tmp_path)
    name = next(each for each in TYPED if command.startswith(each))
    words = command.removeprefix(name).split()
    (tmp_path / "a.yaml").write_text(f"{text}\n")
    options = dict(zip(typed.replace("--", "").split()[::2], typed.split()[1::2], strict=True))
    (tmp_path / "b.yaml").write_text(yaml.safe_dump(options))
    file = ["--config", "a.yaml"]
    for each in ([*file, *typed.split()], [*typed.split(), *file], [*file, "--config", "b.yaml"]):
        found = parsed(name, *words, *each)
        assert {option: found[option] for option in wanted} == wanted


def test_two_of_a_group_from_one_source_are_refused(tmp_path, capsys):
    (tmp_path / "a.yaml").write_text("all: false\ntop: true\naverage: true\n")
    assert ", line 3: average is excluded by top on line 2" in told(
        capsys, "embed", "a", "b", "--config", str(tmp_path / "a.yaml")
    )
    (tmp_path / "a.yaml").write_text("layers: all\ntop: true\n")
    assert "top is excluded by layers on line 1" in told(
        capsys, "embed", "a", "b", "--config", str(tmp_path / "a.yaml")
    )
    assert "--all and --top exclude each other" in told(capsys, "embed", "a", "b", "--all", "--top")
    assert "--layers=all and --top exclude" in told(capsys, "embed", "a", "b", "--layers=all", "--top")
    assert "required: --layers" in told(capsys, "embed", "a", "b")
