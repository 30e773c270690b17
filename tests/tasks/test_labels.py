"""Labels: numbers of those that training saw; all others give no loss and are told."""

import pytest
import torch

from elmo_fast.errors import ElmoFastError
from elmo_fast.tasks import UNSEEN, Example, Labels, tag_scores

TRAIN = [Example(["a", "b"], ["N", "V"]), Example(["c"], ["A"])]


def test_numbers_there_and_back():
    labels = Labels.of(TRAIN)
    assert labels.names == ["A", "N", "V"]
    assert len(labels) == 3
    assert labels.ids(["V", "A", "V"]) == [2, 0, 2]
    assert labels.of_ids([2, 0]) == ["V", "A"]


def test_unseen_labels_give_no_loss_count_wrong_and_are_told():
    """The number is the one torch's losses leave out; whatever is predicted for such a word is wrong."""
    labels = Labels.of(TRAIN)
    dev = [Example(["x", "y", "z"], ["N", "X", "X"])]
    ids = labels.ids(dev[0].labels)
    assert ids == [1, UNSEEN, UNSEEN]
    logits = torch.randn(3, 3)
    loss = torch.nn.functional.cross_entropy(logits, torch.tensor(ids))
    torch.testing.assert_close(loss, torch.nn.functional.cross_entropy(logits[:1], torch.tensor([1])))
    assert tag_scores([dev[0].labels], [labels.of_ids([1, 1, 0])]).accuracy == pytest.approx(1 / 3)
    assert labels.unseen(dev, "dev") == (
        "dev: 2 of 3 labels are of a kind that training has not seen: X (2); they give no loss and count as wrong"
    )
    assert labels.unseen(TRAIN, "train") is None


def test_many_unseen_labels_are_told_in_short():
    dev = [Example(list("abcdefg"), list("abcdefg"))]
    assert "7 of 7" in Labels.of(TRAIN).unseen(dev, "dev")
    assert "and 2 more" in Labels.of(TRAIN).unseen(dev, "dev")


def test_saved_and_loaded(tmp_path):
    labels = Labels(["é", "O", 'B-"x"'])
    labels.save(tmp_path / "labels.json")
    assert Labels.load(tmp_path / "labels.json") == labels
    for content in ("{}", "[1]", "[", "[]"):
        (tmp_path / "labels.json").write_text(content)
        with pytest.raises(ElmoFastError, match="labels"):
            Labels.load(tmp_path / "labels.json")


def test_no_label_or_one_twice_is_an_error():
    for names in ([], ["a", "a"]):
        with pytest.raises(ElmoFastError, match="labels must be one or more, all different; got"):
            Labels(names)
