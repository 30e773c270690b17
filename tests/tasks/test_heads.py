"""The BiLSTM against torch's, and what tagger and classifier make of its output."""

import pytest
import torch
from torch.nn import functional as F

from elmo_fast.errors import ElmoFastError
from elmo_fast.tasks.data import UNSEEN
from elmo_fast.tasks.heads import BiLSTM, Classifier, Tagger, pool
from tests.support.tolerances import assert_close

LENGTHS = torch.tensor([5, 1, 3])


def torchs(actual, size, hidden):
    """torch.nn.LSTM with the weights of a BiLSTM."""
    expected = torch.nn.LSTM(size, hidden, len(actual.layers), bidirectional=True, batch_first=True)
    with torch.no_grad():
        for layer, pair in enumerate(actual.layers):
            for cell, suffix in zip(pair, ("", "_reverse"), strict=True):
                getattr(expected, f"weight_ih_l{layer}{suffix}").copy_(cell.weights.weight_ih)
                getattr(expected, f"weight_hh_l{layer}{suffix}").copy_(cell.weights.weight_hh)
                getattr(expected, f"bias_ih_l{layer}{suffix}").copy_(cell.weights.bias)
                getattr(expected, f"bias_hh_l{layer}{suffix}").zero_()
    return expected


def test_the_bilstm_is_torchs():
    """Two layers, outputs and gradients, sentences of other lengths in one batch."""
    result = BiLSTM(6, 4, 2)
    expected = torchs(result, 6, 4)
    x, y = (torch.randn(3, 5, 6).requires_grad_() for _ in range(2))
    y.data.copy_(x.data)
    packed = torch.nn.utils.rnn.pack_padded_sequence(y, LENGTHS, batch_first=True, enforce_sorted=False)
    reference, _ = torch.nn.utils.rnn.pad_packed_sequence(expected(packed)[0], batch_first=True)
    actual = result(x, LENGTHS)
    assert_close("outputs", actual, reference)
    grad = torch.randn_like(reference)
    reference.backward(grad)
    actual.backward(grad)
    assert_close("gradient", x.grad, y.grad)


def test_no_layers_is_the_input_itself():
    x = torch.randn(3, 5, 6)
    lstm = BiLSTM(6, 4, 0)
    assert lstm(x, LENGTHS) is x
    assert lstm.output_size == 6
    assert Tagger(6, 3, hidden=4, lstm_layers=0)(x, LENGTHS).shape == (3, 5, 3)


@pytest.mark.parametrize("crf", [False, True])
def test_padding_changes_nothing_of_a_tagger(crf):
    """Scores, loss and tags of a sentence are the same among longer ones and alone."""
    tagger = Tagger(6, 4, hidden=5, lstm_layers=1, output_width=2, crf=crf).eval()
    x, extra = torch.randn(3, 5, 6), torch.randn(3, 5, 2)
    labels = torch.randint(4, (3, 5)).masked_fill(torch.arange(5) >= LENGTHS[:, None], UNSEEN)
    together = tagger(x, LENGTHS, extra)
    tags = tagger.decode(together, LENGTHS)
    losses = []
    for row, length in enumerate(LENGTHS.tolist()):
        some = slice(row, row + 1), slice(0, length)
        alone = tagger(x[some], LENGTHS[row : row + 1], extra[some])
        assert_close("scores", alone[0], together[row, :length])
        assert tagger.decode(alone, LENGTHS[row : row + 1]) == [tags[row]]
        losses.append(tagger.loss(alone, labels[some], LENGTHS[row : row + 1]) * length)
    assert [len(row) for row in tags] == LENGTHS.tolist()
    assert_close("loss", tagger.loss(together, labels, LENGTHS), sum(losses) / LENGTHS.sum())


def test_unseen_tags_give_no_loss():
    """A word without a known tag counts for nothing in the softmax, its sentence for nothing in the CRF."""
    scores = torch.randn(2, 3, 4)
    labels, lengths = torch.tensor([[1, UNSEEN, 2], [0, 3, 1]]), torch.tensor([3, 3])
    softmax, crf = (Tagger(4, 4, hidden=1, lstm_layers=0, crf=crf) for crf in (False, True))
    known = labels != UNSEEN
    assert_close("softmax", softmax.loss(scores, labels, lengths), F.cross_entropy(scores[known], labels[known]))
    assert_close("crf", crf.loss(scores, labels, lengths), crf.loss(scores[1:], labels[1:], lengths[1:]))
    for tagger in (softmax, crf):
        nothing = tagger.loss(scores.requires_grad_(), torch.full_like(labels, UNSEEN), lengths)
        nothing.backward()
        assert nothing == 0


@pytest.mark.parametrize("pooling", ["max", "mean", "both"])
def test_pooling_is_over_the_words_of_each_sentence(pooling):
    x = torch.randn(3, 5, 4) - 3
    rows = [x[row, :length] for row, length in enumerate(LENGTHS.tolist())]
    parts = {"max": [torch.stack([row.amax(0) for row in rows])], "mean": [torch.stack([row.mean(0) for row in rows])]}
    parts["both"] = parts["max"] + parts["mean"]
    assert_close(pooling, pool(x, LENGTHS, pooling), torch.cat(parts[pooling], dim=1))


def test_a_classifier_gives_one_label_and_ignores_unseen_ones():
    classifier = Classifier(6, 3, hidden=4, lstm_layers=1, output_width=2, pooling="both").eval()
    scores = classifier(torch.randn(3, 5, 6), LENGTHS, torch.randn(3, 5, 2))
    assert scores.shape == (3, 3)
    assert classifier.decode(scores, LENGTHS) == [[i] for i in scores.argmax(1).tolist()]
    expected = F.cross_entropy(scores[:2], torch.tensor([2, 0]))
    assert_close("loss", classifier.loss(scores, torch.tensor([2, 0, UNSEEN]), LENGTHS), expected)
    with pytest.raises(ElmoFastError, match="pooling must be one of max, mean, both; got 'sum'"):
        Classifier(6, 3, hidden=4, lstm_layers=1, pooling="sum")


@pytest.mark.parametrize("head", [BiLSTM, Tagger, Classifier])
def test_dropout_falls_while_training_alone(head):
    """Between the layers of the BiLSTM too."""
    x = torch.randn(3, 5, 6)
    model = BiLSTM(6, 4, 2, dropout=0.5) if head is BiLSTM else head(6, 3, hidden=4, lstm_layers=0, dropout=0.5)
    assert not torch.equal(model(x, LENGTHS), model(x, LENGTHS))
    model.eval()
    assert torch.equal(model(x, LENGTHS), model(x, LENGTHS))
