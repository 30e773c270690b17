"""`elmo-fast task`: options, YAML, what is printed, written and refused; each in this process."""

import json

import pytest
import yaml

from elmo_fast.cli.main import main, parser_of
from tests.tasks.toy import toy_config


@pytest.fixture
def options(tmp_path):
    """A YAML file of a short run without ELMo."""
    flat = toy_config(tmp_path, epochs=2).flat()
    path = tmp_path / "toy.yaml"
    path.write_text(yaml.safe_dump({name: value for name, value in flat.items() if value is not None}))
    return str(path)


def test_train_eval_and_predict(tmp_path, options, capsys):
    """A YAML file with one option over it; `eval` prints test's table again, `predict` writes columns of a text."""
    run, scores, out = (str(tmp_path / name) for name in ("a run", "scores.json", "out.conll"))
    words = ["--config", options, "--learning-rate", "0.02", "--seed", "3", "--save_dir", run]
    assert main(["task", "train", *words]) == 0
    printed, said = capsys.readouterr()
    assert f"next   elmo-fast task eval '{run}' FILE\n       elmo-fast task predict '{run}' IN OUT\n" in said
    content = json.loads((tmp_path / "a run" / "results.json").read_text())
    assert (content["config"]["learning_rate"], content["config"]["seed"], content["config"]["hidden"]) == (0.02, 3, 16)
    assert main(["task", "eval", run, str(tmp_path / "test.conll"), "--output", scores]) == 0
    assert printed.endswith("test\n" + capsys.readouterr().out)
    assert json.loads((tmp_path / "scores.json").read_text()) == content["test"]
    (tmp_path / "plain.txt").write_text("the cat sees Ann\nBob\n")
    assert main(["task", "predict", run, str(tmp_path / "plain.txt"), out, "--format", "text"]) == 0
    lines = (tmp_path / "out.conll").read_text().splitlines()
    assert [line.partition("\t")[0] for line in lines] == ["the", "cat", "sees", "Ann", "", "Bob", ""]
    assert all(line.partition("\t")[2] in ("DET", "NOUN", "VERB", "NAME", "CONJ") for line in lines if line)
    assert main(["task", "predict", run, str(tmp_path / "plain.txt"), "-", "--format", "text"]) == 0
    assert capsys.readouterr().out == (tmp_path / "out.conll").read_text()


def test_layers_and_columns_are_numbers_or_names():
    def parsed(*words):
        return parser_of("task train").parse_args(words)

    assert (parsed("--layer", "1").layer, parsed("--layer", "top").layer, parsed("--column", "3").column) == (
        1,
        "top",
        3,
    )
    assert parsed("--column", "xpos").column == "xpos"
    assert parsed("--epochs", "2").epochs == 2


def test_a_bilm_in_place_of_a_trained_task_is_named(tmp_path, capsys):
    """Both kinds of folder have a config.json; the wrong one gets no list of keys."""
    (tmp_path / "config.json").write_text('{"format_version": 1, "options": {}}')
    assert main(["task", "eval", str(tmp_path), "x.conll"]) == 2
    message = "holds no trained task: it has no task.json; give the --save_dir of `elmo-fast task train`"
    assert message in capsys.readouterr().err
