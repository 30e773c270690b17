"""eval: per sentence, of prepared corpora and pipes, with progress; figures on paper are those of the library."""

import io
import json
import math
import sys

import numpy as np
import pytest

from elmo_fast.cli import _common
from elmo_fast.cli import eval as eval_command
from elmo_fast.corpus import open_corpus, prepare, read_corpus
from elmo_fast.errors import ElmoFastError
from elmo_fast.pretrain.evaluate import evaluate
from elmo_fast.pretrain.language_model import LanguageModel
from elmo_fast.text import Vocabulary
from tests.cli.conftest import ran, refused
from tests.support.command_line import elmo_fast
from tests.support.weights import make_weights

WORDS = ["<S>", "</S>", "<UNK>", "the", "cat", "sat", "on", ".", "bird"]
FILES = {"a.txt": "\nthe cat sat .\n   \nbirds\n", "b.txt": "the mat on the\tcat .\n\n"}
LINES = [2, 4, 5]


@pytest.fixture
def model(tmp_path):
    """A folder with a model, its softmax and vocab.txt."""
    make_weights(tmp_path / "model", softmax=len(WORDS))
    Vocabulary(WORDS).write(tmp_path / "model" / "vocab.txt")
    return str(tmp_path / "model")


@pytest.fixture
def text(tmp_path):
    """A glob of two files with blank lines."""
    for name, content in FILES.items():
        (tmp_path / name).write_text(content)
    return str(tmp_path / "?.txt")


def table(path):
    """The rows below the header, as numbers."""
    header, *rows = path.read_text().splitlines()
    assert header.split("\t") == list(eval_command.COLUMNS)
    return [[float(cell) for cell in row.split("\t")] for row in rows]


def test_one_row_per_sentence_with_line_words_losses_and_perplexities(model, text, tmp_path):
    words = ["eval", "--model", model, "--test_prefix", text, "--batch_size", 2, "--unroll_steps", 3]
    output = ran(*words, "--per_sentence", tmp_path / "out.tsv", "--output", tmp_path / "out").stdout
    corpus = read_corpus(text, Vocabulary(WORDS))
    expected = evaluate(LanguageModel.from_pretrained(model), corpus, batch_size=2, unroll_steps=3, per_sentence=True)
    rows = table(tmp_path / "out.tsv")
    assert [row[:2] for row in rows] == [[line, count] for line, count in zip(LINES, (4, 1, 6), strict=True)]
    for row, (forward, backward) in zip(rows, expected.sentences.T, strict=True):
        means = [loss / (row[1] + 1) for loss in (forward, backward, (forward + backward) / 2)]
        np.testing.assert_allclose(row[2:], [forward, backward, *map(math.exp, means)], rtol=1e-7)
    figures = json.loads((tmp_path / "out").read_text())
    assert (figures["words"], figures["sentence_ends"]) == (14, 3)
    assert figures["loss_forward"] == pytest.approx(sum(row[2] for row in rows) / 14, rel=1e-6)
    assert figures["loss_backward"] == pytest.approx(sum(row[3] for row in rows) / 14, rel=1e-6)
    assert figures["out_of_vocabulary"] == pytest.approx(2 / 11)
    assert f"perplexity {expected}; 18.2% of the words are outside the vocabulary" in output
    assert "over 11 words and 3 sentence ends" in output


def test_a_prepared_corpus_and_the_standard_input_give_the_same_figures(model, text, tmp_path, monkeypatch):
    """The sentences of a prepared corpus are numbered, as it keeps no lines."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("".join(FILES.values()).encode())))
    prepare(text, tmp_path / "prepared", vocabulary=Vocabulary(WORDS))
    prepare(text, tmp_path / "other", vocabulary=Vocabulary([*WORDS[:-1], "dog"]))
    words, printed, tables = ["eval", "--model", model, "-q", "--test_prefix"], [], []
    for source in (text, "-", tmp_path / "prepared"):
        printed.append(ran(*words, source, "--per_sentence", tmp_path / "out.tsv").stdout)
        tables.append(table(tmp_path / "out.tsv"))
    assert printed[0] == printed[1] == printed[2]
    assert tables[0] == tables[1]
    assert [row[1:] for row in tables[0]] == [row[1:] for row in tables[2]]
    assert [row[0] for row in tables[2]] == [1, 2, 3]
    refused(elmo_fast(*words, tmp_path / "other"), "was prepared with a different vocabulary than the model")


def test_the_lines_of_the_highest_perplexity(model, text, tmp_path):
    """In the order of the table's last column, with the same numbers; of a prepared corpus in shards too."""
    prepare(text, tmp_path / "prepared", vocabulary=Vocabulary(WORDS), shard_tokens=5)
    assert len(open_corpus(tmp_path / "prepared").shards) > 1
    words = ["eval", "--model", model, "-q", "--test_prefix"]
    texts = dict(zip(LINES, ("the cat sat .", "birds", "the mat on the cat ."), strict=True))
    for source, lines in ((text, LINES), (tmp_path / "prepared", [1, 2, 3])):
        output = ran(*words, source, "--worst", 2, "--per_sentence", tmp_path / "out.tsv").stdout
        rows = sorted(table(tmp_path / "out.tsv"), key=lambda row: -row[-1])
        shown = [line.split(maxsplit=2) for line in output.splitlines()[-2:]]
        assert [int(line) for line, _, _ in shown] == [row[0] for row in rows[:2]]
        assert [float(perplexity) for _, perplexity, _ in shown] == [row[-1] for row in rows[:2]]
        assert [sentence for _, _, sentence in shown] == [texts[LINES[lines.index(int(line))]] for line, _, _ in shown]
    assert len(ran(*words, text, "--worst", 20).stdout.splitlines()) == 2 + 3, "no more lines than there are"


def test_progress_comes_as_lines_for_a_log(model, text, monkeypatch):
    monkeypatch.setattr(_common.Progress, "between_lines", 0.0)
    words = ["eval", "--model", model, "--test_prefix", text, "--batch_size", 1, "--unroll_steps", 7]
    output = ran(*words, "--file-friendly-logging").stderr
    assert "7.00 of 14.0 tokens (50%)" in output
    assert "14.0 of 14.0 tokens (100%)" in output
    assert ran(*words, "--file-friendly-logging", "-q").stderr == ""
    assert "7.00 of 14.0 tokens (50%)" in ran(*words).stderr, "stderr is no terminal"
    monkeypatch.setattr(_common.Progress, "between_lines", math.inf)
    assert "tokens (" not in ran(*words).stderr, "no line before its time"


def test_a_text_that_changes_meanwhile_is_noticed(text, tmp_path):
    for changed in ("the cat sat .\n", "the cat sat .\nbirds\nmore\n", "the cat .\nbirds\n"):
        (tmp_path / "a.txt").write_text(changed)
        with pytest.raises(ElmoFastError, match="changed while being read"):
            eval_command._lines_of(text, np.array([4, 1, 6]), {})


def test_a_perplexity_beyond_all_numbers_is_the_largest(tmp_path):
    eval_command._write_table(tmp_path / "out.tsv", np.array([2]), np.array([4]), np.full((2, 1), 1e5))
    assert table(tmp_path / "out.tsv")[0] == pytest.approx([2, 4, 1e5, 1e5, *[math.exp(700)] * 3])


def test_a_table_is_evaluated_by_its_column_and_counted_by_rows(model, text, tmp_path):
    """With the figures of the text; --tokenizer, --column and --format_in as in `embed`."""
    rows = "".join(f"{number};x\t{line}\n" for number, line in enumerate("".join(FILES.values()).split("\n")))
    (tmp_path / "a.data").write_text("id\tsaid\n" + rows.replace("on the\tcat", "on the cat"))
    words = ["eval", "--model", model, "-q", "--per_sentence", tmp_path / "out.tsv"]
    expected = ran(*words, "--test_prefix", text).stdout
    before = table(tmp_path / "out.tsv")
    words += ["--test_prefix", tmp_path / "a.data", "--format_in", "tsv", "--column", "said"]
    assert ran(*words).stdout == expected
    assert table(tmp_path / "out.tsv") == before


def test_another_vocabulary_of_equal_size_is_refused(model, text, tmp_path):
    """By the words beside the model: one of another program stores no digest of them."""
    Vocabulary([*WORDS[:-2], "bird", "."]).write(tmp_path / "other.txt")
    words = ["eval", "--model", model, "--test_prefix", text, "--vocab_file", tmp_path / "other.txt"]
    refused(elmo_fast(*words), "other.txt is not the vocabulary of the model", "leave --vocab_file out")
