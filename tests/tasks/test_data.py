"""The data of a task: labels as numbers, the order of training, nested shares."""

import dataclasses
import itertools

import numpy as np
import pytest
import torch

from elmo_fast.errors import ElmoFastError
from elmo_fast.tasks import UNSEEN, Example, Labels, TaskConfig, tag_scores
from elmo_fast.tasks.data import (
    epoch_batches,
    fixed_batches,
    raw_text_note,
    read_data,
    read_labelled,
    shared_subset,
)
from elmo_fast.text.tokenizers import RAW_TEXT_ADVICE

TRAIN = [Example(["a", "b"], ["N", "V"]), Example(["c"], ["A"])]
LENGTHS = np.random.default_rng(0).integers(1, 40, 203).tolist()


def test_unseen_labels_give_no_loss_count_wrong_and_are_told():
    """The number is the one torch's losses leave out; whatever is predicted for such a word is wrong."""
    labels = Labels.of(TRAIN)
    assert (labels.names, len(labels), labels.of_ids([2, 0])) == (["A", "N", "V"], 3, ["V", "A"])
    dev = [Example(["x", "y", "z"], ["N", "X", "X"])]
    ids = labels.ids(dev[0].labels)
    assert ids == [1, UNSEEN, UNSEEN]
    logits = torch.randn(3, 3)
    loss = torch.nn.functional.cross_entropy(logits, torch.tensor(ids))
    torch.testing.assert_close(loss, torch.nn.functional.cross_entropy(logits[:1], torch.tensor([1])))
    assert tag_scores([dev[0].labels], [labels.of_ids([1, 1, 0])]).accuracy == pytest.approx(1 / 3)
    assert labels.unseen(dev, "dev") == (
        "dev: 2 of 3 labels do not occur in the training data: X (2); 1 different; they give no loss and count as wrong"
    )
    assert labels.unseen(TRAIN, "train") is None
    many = labels.unseen([Example(list("abcdefg"), list("abcdefg"))], "dev")
    assert "7 of 7" in many
    assert "e (1); 7 different" in many


def test_raw_text_is_noticed_and_the_other_task_is_named(tmp_path):
    path = tmp_path / "a.tsv"
    path.write_text("good\tI liked it.\nbad\tI slept!\n")
    about = {"train_path": str(path), "dev_path": str(path), "save_dir": "out"}
    classify = TaskConfig(**about, task="classify")
    (example,) = read_labelled(str(path), classify)[:1]
    sentence = raw_text_note([example], str(path), classify)
    assert sentence == f"{path}, sentence 1 {RAW_TEXT_ADVICE}"
    for tokenizer in ("basic", "whitespace"):
        assert raw_text_note([example], str(path), dataclasses.replace(classify, tokenizer=tokenizer)) is None
    with pytest.raises(ElmoFastError, match="tsv has one per sentence; to train a classifier, add --task classify"):
        read_data(TaskConfig(**about))
    with pytest.raises(ElmoFastError, match="needs a label per sentence, and the format text has none: give --format"):
        read_data(dataclasses.replace(classify, format="text"))


@pytest.mark.parametrize("batches", [epoch_batches(LENGTHS, 16, 0, 3), fixed_batches(LENGTHS, 16)])
def test_every_sentence_once_in_batches_of_like_lengths(batches):
    """No sentence is lost or doubled, and next to nothing of a batch is padding."""
    assert sorted(itertools.chain.from_iterable(batches)) == list(range(len(LENGTHS)))
    assert max(map(len, batches)) == 16
    cells = sum(len(batch) * max(LENGTHS[i] for i in batch) for batch in batches)
    assert cells < 1.15 * sum(LENGTHS)


def test_sentences_of_one_length_keep_their_order():
    """Whatever instructions numpy sorts with, so that a run is the same on every machine."""
    assert fixed_batches([1, 2] * 2500, 2500) == [list(range(1, 5000, 2)), list(range(0, 5000, 2))]
    order = np.random.default_rng([1, 2]).permutation(5000).tolist()
    assert epoch_batches([1, 2] * 2500, 5000, 1, 2) == [sorted(order, key=lambda index: index % 2)]


def test_an_epoch_is_a_function_of_seed_and_number():
    first, again, later, other = (epoch_batches(LENGTHS, 16, *pair) for pair in [(0, 0), (0, 0), (0, 1), (1, 0)])
    assert first == again
    assert sorted(map(sorted, first)) != sorted(map(sorted, later))
    assert first != other


def test_shares_are_nested_and_of_their_size():
    """1 % within 10 % within all; another seed draws others; of a few sentences, one stays."""
    subsets = [set(shared_subset(1000, share, 5)) for share in (0.01, 0.1, 0.5, 1.0)]
    assert [len(each) for each in subsets] == [10, 100, 500, 1000]
    assert all(smaller < larger for smaller, larger in itertools.pairwise(subsets))
    assert set(shared_subset(1000, 0.1, 6)) != subsets[1]
    assert len(shared_subset(3, 0.01, 0)) == 1
