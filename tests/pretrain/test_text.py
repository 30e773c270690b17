"""The text of a run: a table, lines held out of it, Unicode's form NFC; and the card that names it."""

import csv
import shutil
import unicodedata
import warnings

import numpy as np
import pytest

from elmo_fast import ElmoEmbedder
from elmo_fast.errors import ElmoFastError
from elmo_fast.pretrain.config import complaints
from elmo_fast.pretrain.model_card import is_unchanged, model_card, rows_of
from elmo_fast.pretrain.run import pretrain
from elmo_fast.text import characters
from tests.pretrain.toy import SENTENCES, quiet, same, toy_config

LINES = [f"{word} {sentence}" for word in ("here", "cafe\u0301", "there", "then") for sentence in SENTENCES]


def config_of(folder, steps, name="out", **changes):
    """A run on a column of a table, with a fifth of its lines held out."""
    with open(folder / "text.csv", "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("id", "said"), *enumerate(LINES)])
    settings = {"train_prefix": str(folder / "text.csv"), "save_dir": str(folder / name), "column": "said"}
    settings |= {"heldout_share": 0.2, "tokenizer": "whitespace+nfc", "max_steps": steps, "n_epochs": 99}
    return toy_config(**settings | {"heldout_interval": 2} | changes)


def test_a_run_on_a_table_with_held_out_lines_resumes_exactly(tmp_path):
    """From its prepared text, with the same held-out lines, whose number is said; other choices are refused."""
    lines = []
    (tmp_path / "a.txt").write_text("a b\n")
    pretrain(config_of(tmp_path, 3), report=lines.append)
    resumed, whole = (pretrain(config_of(tmp_path, 6, name), report=quiet) for name in ("out", "whole"))
    assert same(resumed.model.checkpoint_state(), whole.model.checkpoint_state())
    assert resumed.heldout == whole.heldout
    (said,) = [line for line in lines if "held out" in line]
    assert said.startswith("text   ")
    assert f" of {len(LINES)} lines " in said
    assert resumed.heldout.sentence_ends == int(said.split()[1])
    for share, now in ((0.3, "0.3"), (0.0, "None")):
        with pytest.raises(ElmoFastError, match=f"heldout_share was 0.2, now {now}"):
            pretrain(config_of(tmp_path, 8, heldout_share=share), report=quiet)
    with pytest.raises(ElmoFastError, match="column was 'said', now 'id'"):
        pretrain(config_of(tmp_path, 8, column="id"), report=quiet)
    with pytest.raises(ElmoFastError, match=r"^column=x: .*a\.txt is read as text, which has no columns"):
        pretrain(toy_config(train_prefix=str(tmp_path / "a.txt"), save_dir=str(tmp_path / "b"), column="x"))
    assert not (tmp_path / "b").exists()
    shutil.rmtree(tmp_path / "out" / "corpus-heldout")
    with pytest.raises(ElmoFastError, match=r"corpus-heldout, the lines .* held out of .*, is missing; copy it from"):
        pretrain(config_of(tmp_path, 8), report=quiet)
    assert complaints(config_of(tmp_path, 8, heldout_prefix=str(tmp_path / "text.csv"))) == [
        "heldout_prefix and heldout_share both name the text to evaluate on; give one of them"
    ]


def test_nfc_is_stored_with_the_model_and_applied_to_what_it_reads(tmp_path, monkeypatch):
    """Of a text in both forms; without it the decomposed one gives a warning, once."""
    run = pretrain(config_of(tmp_path, 2), report=quiet)
    assert "café" in run.vocabulary
    assert "cafe\u0301" not in run.vocabulary
    embedder = ElmoEmbedder.from_pretrained(run.folder)
    apart, composed = (embedder.encode([unicodedata.normalize(form, "the café")]) for form in ("NFD", "NFC"))
    assert np.array_equal(apart, composed)
    monkeypatch.setattr(characters, "_units_warned_of", set())
    with warnings.catch_warnings(record=True, action="always") as warned:
        for _ in range(2):
            embedder.encode([unicodedata.normalize("NFD", "the café")], tokenizer="whitespace")
    (one,) = warned
    assert "form NFC would compose: 1, such as 'cafe\u0301'" in str(one.message)


def test_the_card_is_written_and_an_edited_one_stays(tmp_path):
    """Written again when the run goes on; then with a user's line at its end, which the next run leaves."""
    card = tmp_path / "out" / "README.md"
    pretrain(config_of(tmp_path, 2), report=quiet)
    first = card.read_text(encoding="utf-8")
    for part in ("| text | text.csv: ", "| tokenizer | whitespace+nfc |", "| steps | 2 |", "| held-out perplexity | ",
                 "| optimizer | adagrad, learning rate 0.2 |", 'from_pretrained("out")', "elmo_fast 1."):  # fmt: skip
        assert part in first
    pretrain(config_of(tmp_path, 4), report=quiet)
    second = card.read_text(encoding="utf-8")
    assert "| steps | 4 |" in second
    assert is_unchanged(second)
    card.write_text(second.replace("# out", "# My model"), encoding="utf-8")
    lines = []
    pretrain(config_of(tmp_path, 6), report=lines.append)
    assert "# My model" in card.read_text(encoding="utf-8")
    assert "| steps | 4 |" in card.read_text(encoding="utf-8")
    assert [line for line in lines if line.startswith("card ")]


def test_the_card_says_what_the_run_started_from_and_escapes_bars_of_names(tmp_path):
    """A bar would end its cell of the table; `rows_of` gives the row so that it can be written again."""
    pretrain(config_of(tmp_path, 1), report=quiet)
    (tmp_path / "text.csv").rename(tmp_path / "a|b.csv")
    changes = {"train_prefix": str(tmp_path / "a|b.csv"), "init_from": str(tmp_path / "out"), "train_bilm": False}
    trained = pretrain(config_of(tmp_path, 1, "second", **changes), report=quiet)
    page = (tmp_path / "second" / "README.md").read_text(encoding="utf-8")
    assert "| started from | out, whose biLM stays as it is: only the softmax is trained |" in page
    rows = rows_of(page, "Text")
    assert rows["text"].startswith("a\\|b.csv: ")
    again = model_card("once again", trained.model.checkpoint_state(), trained.model.options, text=rows)
    assert rows_of(again, "Text") == rows
    assert "`--model 'once again'` names the folder" in again
