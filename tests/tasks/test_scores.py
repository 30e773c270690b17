"""Scores: by hand, spans by conlleval's rules against its state machine, and against seqeval where that is there."""

import itertools

import pytest

from elmo_fast.errors import ElmoFastError
from elmo_fast.tasks import spans_of, tag_scores


def test_labels_by_hand():
    """N: 2 true, 3 predicted, 2 right; V: 2 true, 1 predicted, 1 right; X is predicted only, never right."""
    scores = tag_scores([["N", "V", "N"], ["V"]], [["N", "N", "N"], ["V"]])
    assert not scores.spans
    assert scores.count == 4
    assert scores.accuracy == scores.f1 == scores.precision == scores.recall == 0.75
    assert scores.per_class["N"] == pytest.approx({"precision": 2 / 3, "recall": 1.0, "f1": 0.8, "support": 2})
    assert scores.per_class["V"] == pytest.approx({"precision": 1.0, "recall": 0.5, "f1": 2 / 3, "support": 2})
    assert scores.macro_f1 == pytest.approx((0.8 + 2 / 3) / 2)
    assert tag_scores([["N"]], [["X"]]).per_class["X"] == {"precision": 0, "recall": 0, "f1": 0, "support": 0}


def test_spans_by_hand():
    """One PER right, one ORG cut short, one LOC too many: 1 right of 3 predicted and 2 true."""
    gold = [["B-PER", "I-PER", "O", "B-ORG", "I-ORG", "O"]]
    guess = [["B-PER", "I-PER", "O", "B-ORG", "O", "B-LOC"]]
    scores = tag_scores(gold, guess)
    assert scores.spans
    assert (scores.precision, scores.recall, scores.f1) == pytest.approx((1 / 3, 1 / 2, 0.4))
    assert scores.accuracy == pytest.approx(4 / 6)
    assert scores.per_class["ORG"] == {"precision": 0, "recall": 0, "f1": 0, "support": 1}
    assert scores.macro_f1 == pytest.approx(1 / 3)
    assert scores.as_dict()["per_class"]["PER"]["f1"] == 1
    assert not tag_scores(gold, guess, spans=False).spans


@pytest.mark.parametrize(
    ("tags", "spans"),
    [
        ("O", []),
        ("B-A I-A B-A", [("A", 0, 1), ("A", 2, 2)]),
        ("I-A I-A O I-A", [("A", 0, 1), ("A", 3, 3)]),  # IOB1: no B is needed
        ("I-A B-A I-A", [("A", 0, 0), ("A", 1, 2)]),  # IOB1: B parts neighbours
        ("B-A I-B", [("A", 0, 0), ("B", 1, 1)]),
        ("S-A S-A B-A E-A E-A", [("A", 0, 0), ("A", 1, 1), ("A", 2, 3), ("A", 4, 4)]),
        ("B-A E-A I-A", [("A", 0, 1), ("A", 2, 2)]),
        ("B-A L-A U-B", [("A", 0, 1), ("B", 2, 2)]),
        ("B-A M-A M-A E-A S-B", [("A", 0, 3), ("B", 4, 4)]),  # BMES
        ("B-A-x I-A-x", [("A-x", 0, 1)]),
        ("", []),
    ],
)
def test_where_spans_begin_and_end(tags, spans):
    assert spans_of(tags.split()) == spans


def conlleval_spans(tags):
    """conlleval's two tables of (tag before, tag), written as it has them, for B, I and O."""
    begins = {("B", "B"), ("I", "B"), ("O", "B"), ("O", "I")}
    ends = {("B", "B"), ("B", "O"), ("I", "B"), ("I", "O")}
    actual, begun = [], None
    before, before_type = "O", ""
    for position, tag in enumerate([*tags, "O"]):
        kind, _, type_ = tag.partition("-")
        if (before, kind) in ends or (before != "O" and before_type != type_):
            actual.append((before_type, begun, position - 1))
        if (before, kind) in begins or (kind != "O" and before_type != type_):
            begun = position
        before, before_type = kind, type_
    return actual


def test_all_short_tag_sequences_as_conlleval():
    """Every sequence of up to five BIO tags of two types, wrong ones too."""
    for length in range(6):
        for tags in itertools.product(["O", "B-X", "I-X", "B-Y", "I-Y"], repeat=length):
            assert spans_of(tags) == conlleval_spans(tags), tags


def test_which_labels_are_spans():
    """Tags alone, and not O alone; labels that only look alike (a hyphen within) are labels."""
    assert tag_scores([["O", "S-X"]], [["O", "O"]]).spans
    assert not tag_scores([["O", "O"]], [["O", "O"]]).spans
    assert tag_scores([["O"]], [["O"]], spans=True).f1 == 0
    with pytest.raises(ElmoFastError, match=r"tags of spans must be O, B-X.*got 'V'"):
        tag_scores([["V"]], [["V"]], spans=True)


def test_what_does_not_fit():
    for gold, guess, words in (
        ([["a"]], [], "predicted must have 1 sentences, as gold has; got 0"),
        ([["a"], ["b"]], [["a"], []], r"predicted\[1\] must have 1 labels, as gold has; got 0"),
        ([], [], "gold must have at least one label; got none"),
        ([[]], [[]], "gold must have at least one label; got none"),
    ):
        with pytest.raises(ElmoFastError, match=words):
            tag_scores(gold, guess)


def test_one_odd_tag_does_not_replace_the_f1_of_spans_by_accuracy():
    """It counts as O; where such tags prevail labels are scored. Either is said, unless `spans` is set."""
    gold, nothing = [["B-PER", "I-PER", *["O"] * 7, "_"]], [["O"] * 10]
    with pytest.warns(UserWarning, match="tags '_' are not span tags; they count as O in the F1 of spans: set spans"):
        scores = tag_scores(gold, nothing)
    assert (scores.spans, scores.f1, scores.accuracy) == (True, 0, 0.7)
    assert tag_scores(gold, nothing, spans=True) == scores
    assert tag_scores(gold, gold, spans=True).f1 == 1
    with pytest.warns(UserWarning, match="tags 'o' are not .*; so labels are scored by accuracy, not spans by F1"):
        assert not tag_scores([["B-X", "o", "o"]], [["B-X", "o", "o"]]).spans
    with pytest.warns(UserWarning, match="tags 'b-x', 'i-x' are not span tags; so labels"):
        assert not tag_scores([["b-x", "i-x", "O"]], [["b-x", "i-x", "O"]]).spans
    assert not tag_scores([["B-X", "V"]], [["B-X", "V"]], spans=False).spans
