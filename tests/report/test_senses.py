"""Word senses by nearest neighbour: the files, the scores, the page."""

import json
import random

import numpy as np
import pytest

from elmo_fast.cli.main import main
from elmo_fast.errors import ElmoFastError
from elmo_fast.report.plan import ReportSettings
from elmo_fast.report.run import write_report
from elmo_fast.report.senses import BASELINE, Use, against, read_uses, sense_scores
from elmo_fast.tasks import load_bilm
from tests.support.weights import make_weights


@pytest.fixture(scope="module")
def bilm(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bilm")
    make_weights(folder, cell=8, proj=4, filters=((1, 4), (2, 4)), char_dim=4, n_highway=1, scale=0.5)
    return load_bilm(folder), folder


def uses(seed, count):
    """Tokens of "play": a verb after "they", a noun after "the"; nouns are fewer."""
    chance = random.Random(seed)
    some = []
    for _ in range(count):
        before, sense = chance.choice([("the", "noun"), ("they", "verb"), ("they", "verb")])
        tokens = [*chance.choices(["and", "so"], k=chance.randint(0, 2)), before, "play", "here"]
        some.append(Use("play", sense, tokens, len(tokens) - 2))
    return some


def test_each_layer_gives_the_sense_of_the_nearest_token_of_the_word(bilm):
    """By a plain search; the characters are equally near everywhere, and give the most frequent sense."""
    train, test = uses(0, 30), uses(1, 20)
    others = [Use("here", "x", ["the", "here"], 1), Use("new", "y", ["new"], 0), Use("here", "z", ["here"], 0)]
    right, ambiguous = sense_scores(bilm[0], [*train, others[0]], [*test, *others])
    assert ambiguous.tolist() == [True] * 20 + [False] * 3
    is_verb = [use.sense == "verb" for use in test]
    assert right[BASELINE].tolist() == right["characters"].tolist() == [*is_verb, True, False, False]
    for layer, name in enumerate(("characters", "LSTM 1", "LSTM 2")):
        vectors = []
        for use in (*train, *test):
            activations = bilm[0](bilm[0].batch_to_ids([use.tokens]))["activations"]
            vectors.append(activations[layer][0, use.place + 1].detach().numpy())
        unit = np.stack(vectors) / np.linalg.norm(vectors, axis=1, keepdims=True)
        best = (unit[30:] @ unit[:30].T).argmax(1)
        plain = [train[row].sense == use.sense for row, use in zip(best, test, strict=True)]
        assert layer == 0 or right[name].tolist()[:20] == plain
    assert right["LSTM 1"][:20].mean() > right[BASELINE][:20].mean()


def test_a_table_says_which_token(tmp_path):
    (tmp_path / "a.csv").write_text("word,sense,position,sentence\nSet,noun,,A set .\nset,verb,0,Sets set it\n")
    first, second = read_uses(tmp_path / "a.csv")
    assert first == Use("set", "noun", ["A", "set", "."], 1)
    assert (second.place, second.tokens[second.place]) == (0, "Sets")
    (tmp_path / "a.conllu").write_text(
        "".join(f"{n}\t{w}\t_\t{t}" + "\t_" * 6 + "\n" for n, w, t in ((1, "They", "_"), (2, "Play", "VERB"))) + "\n"
    )
    assert read_uses(tmp_path / "a.conllu") == [Use("play", "VERB", ["They", "Play"], 1)]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("set,,,a set", r"row 1: the columns word and sense must be filled; got 'set' and ''"),
        ("set,x,,a set to set", r"row 1: 'set' is 2 of the tokens 'a set to set'; name which by its number from 0"),
        ("set,x,,none", r"'set' is 0 of the tokens 'none'"),
        ("set,x,2,a set", r"row 1: position must be 0 to 1, the number of a token of 'a set'; got '2'"),
        ("set,x,one,a set", r"got 'one'"),
    ],
)
def test_rows_that_name_no_token_are_refused(tmp_path, rows, message):
    (tmp_path / "a.csv").write_text(f"word,sense,position,sentence\n{rows}\n")
    with pytest.raises(ElmoFastError, match=message):
        read_uses(tmp_path / "a.csv")


def test_positions_from_1_are_noticed(tmp_path):
    (tmp_path / "a.csv").write_text("word,sense,position,sentence\nset,x,2,a set of it\nset,y,1,set it\n")
    with pytest.warns(UserWarning, match="in 2 of 2 rows position is another token than the word.*count from 0"):
        read_uses(tmp_path / "a.csv")


def test_a_missing_column_is_named(tmp_path):
    (tmp_path / "a.csv").write_text("word,meaning,sentence\nset,x,a set\n")
    with pytest.raises(ElmoFastError, match="row 1 has no column 'sense'; it has: word, meaning, sentence; rename"):
        read_uses(tmp_path / "a.csv")


def test_a_difference_of_a_few_tokens_may_be_chance():
    one, other = np.array([True] * 5 + [False] * 5), np.array([False] * 5 + [True] + [False] * 4)
    assert against(one, other) == "5 gained, 1 lost: may be chance"
    assert against(one, other & False) == "5 gained, 0 lost: better"
    assert against(other & False, one) == "0 gained, 5 lost: worse"


def test_the_report_of_senses_trains_nothing_and_runs_again(bilm, tmp_path, capsys):
    for split, seed in (("train", 0), ("test", 1)):
        rows = [use._asdict() | {"sentence": use.tokens, "position": use.place} for use in uses(seed, 20)]
        rows += [{"word": "play", "sense": "name", "sentence": "play"}] * seed  # in the test alone
        (tmp_path / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    paths = {f"{split}_path": str(tmp_path / f"{split}.jsonl") for split in ("train", "test")}
    changes = {"model": str(bilm[1]), "save_dir": str(tmp_path / "out"), "task": "senses", **paths}
    page = write_report(ReportSettings(**changes), report=lambda line: None)
    numbers = json.loads((tmp_path / "out" / "report.json").read_text())
    assert sorted(path.name for path in page.parent.iterdir()) == ["report.json", "report.md", "report.yaml"]
    assert numbers["play"] == numbers["all tokens"] == numbers["of words with several senses"]
    text = page.read_text()
    assert f"| LSTM 1 | {100 * numbers['play']['LSTM 1']:.1f} | " in text
    assert "training tokens of 1 words, 21 test tokens; the words of 0 do not occur in training" in text
    assert "of 1 the word does, but not in its sense" in text
    page.unlink()
    assert main(["report", "-q", "--config", str(tmp_path / "out" / "report.yaml"), "--device", "cpu"]) == 0
    assert page.read_text() == text
    assert capsys.readouterr().out == f"{page}\n"
    with pytest.raises(ElmoFastError, match="--seeds does nothing with --task senses; leave it out"):
        ReportSettings(**changes, seeds=2)
    with pytest.raises(ElmoFastError, match="--column must be one with --task senses; got upos, xpos"):
        ReportSettings(**changes, column=("upos", "xpos"))
    with pytest.raises(ElmoFastError, match="--words: 'tree' has no sense in"):
        write_report(ReportSettings(**changes, words=("play", "Tree")), report=lambda line: None)
