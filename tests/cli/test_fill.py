"""fill: words and tokens as the library has them, gaps whatever the tokenizer, sentences by seed, refusals."""

import pytest

from elmo_fast.pretrain.language_model import LanguageModel
from elmo_fast.text import Vocabulary
from tests.cli.conftest import ran, refused
from tests.support.command_line import elmo_fast
from tests.support.weights import make_weights

WORDS = ["<S>", "</S>", "<UNK>", "the", "cat", "sat", "on", ".", "bird"]


@pytest.fixture
def model(tmp_path):
    """A folder with a model, its softmax and vocab.txt."""
    make_weights(tmp_path / "model", softmax=len(WORDS), scale=0.5)
    Vocabulary(WORDS).write(tmp_path / "model" / "vocab.txt")
    return str(tmp_path / "model")


def test_each_gap_has_its_words(model):
    gaps = LanguageModel.from_pretrained(model).fill(["the", "___", "sat", "___"], topn=2)
    lines = ran("fill", "the ___ sat ___", "--model", model, "--topn", 2).stdout.splitlines()
    expected = [[f"{i}", each.word, f"{each.probability:.4f}"] for i, words in enumerate(gaps, 1) for each in words]
    assert [line.split() for line in lines] == [["gap", "word", "probability"], *expected]
    raw = ran("fill", "the _______ sat____", "--model", model, "--topn", 2, "--tokenizer", "basic").stdout.splitlines()
    assert raw == lines


def test_scores_have_a_row_for_each_token_and_the_end(model):
    scores = LanguageModel.from_pretrained(model).score(["the", "cat"])
    rows = [line.split() for line in ran("fill", "the cat", "--model", model, "--scores").stdout.splitlines()[1:]]
    assert rows[0] == ["token", "forward", "backward"]
    assert rows[1:] == [[each.token, f"{each.forward:.4f}", f"{each.backward:.4f}"] for each in scores]
    lines = ran("fill", "zebra the emu zebra", "--model", model, "--scores").stdout.splitlines()
    assert lines[1] == "outside the vocabulary, as likely as <UNK>: zebra emu"


def test_sentences_follow_the_seed(model):
    drawn = [ran("fill", "the", "--model", model, "--sample", 3, "--seed", seed).stdout for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]
    assert [line.split()[0] for line in drawn[0].splitlines()] == ["the"] * 3


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["the cat"], 'tokens must have a gap, "___"'),
        ([" "], "SENTENCE must hold a sentence, as in 'the ___ of the river .'; got nothing"),
        (["the", "--scores", "--sample", "1"], "--scores and --sample ask for different things; give one of them"),
        (["the ___", "--sample", "1"], "--scores and --sample fill no gap and would read ___ as a word"),
        (["the ___", "--scores"], "--scores and --sample fill no gap and would read ___ as a word"),
        (["the", "--sample", "0"], "--sample must be 1 or more; got 0"),
        (["the", "--sample", "1", "--topn", "3"], "--topn is for gaps, and --scores and --sample fill none"),
    ],
)
def test_refusals(model, words, message):
    refused(elmo_fast("fill", *words, "--model", model), message)


def test_a_model_without_a_softmax_says_how_to_train_one(tmp_path):
    make_weights(tmp_path)
    refused(elmo_fast("fill", "the ___", "--model", tmp_path), "no softmax weights", "--train_bilm false")


def test_mini_fills_gaps():
    """The model that comes with the package predicts words too."""
    output = ran("fill", "She took his ___ .", "--model", "mini", "--topn", 3).stdout
    assert "hand" in output.split(), output
