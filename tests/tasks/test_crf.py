"""The CRF against every sequence of labels written out, in float64."""

import itertools

import pytest
import torch

from elmo_fast.errors import ElmoFastError
from elmo_fast.tasks.crf import CRF


def random_crf(labels):
    """A CRF in float64 whose scores of neighbours are as large as those of words."""
    crf = CRF(labels).double()
    for parameter in crf.parameters():
        torch.nn.init.normal_(parameter)
    return crf


def by_hand(crf, scores, path):
    """s(x, y) of one sentence, term by term."""
    total = crf.start[path[0]] + crf.end[path[-1]]
    for t, label in enumerate(path):
        total = total + scores[t, label]
    for before, after in itertools.pairwise(path):
        total = total + crf.transitions[before, after]
    return total


def every_path(crf, scores, length):
    """(paths, s(x, y) of each) of one sentence."""
    paths = list(itertools.product(range(scores.shape[1]), repeat=length))
    return paths, torch.stack([by_hand(crf, scores, path) for path in paths])


@pytest.mark.parametrize(("labels", "lengths"), [(3, [5, 1, 3]), (2, [6, 6]), (4, [1]), (1, [3, 2])])
def test_likelihood_and_best_path_are_those_of_all_paths(labels, lengths):
    """log Z, the score of a path, the likeliest path and its score, row by row, of any lengths."""
    crf, lengths = random_crf(labels), torch.tensor(lengths)
    scores = torch.randn(len(lengths), int(lengths.max()), labels, dtype=torch.float64)
    gold = torch.randint(labels, scores.shape[:2])
    log_z, likelihood = crf.log_partition(scores, lengths), crf.log_likelihood(scores, gold, lengths)
    best, best_score = crf.decode(scores, lengths)
    for row, length in enumerate(lengths.tolist()):
        paths, totals = every_path(crf, scores[row], length)
        torch.testing.assert_close(log_z[row], totals.logsumexp(0))
        torch.testing.assert_close(
            likelihood[row], by_hand(crf, scores[row], gold[row, :length].tolist()) - totals.logsumexp(0)
        )
        assert tuple(best[row, :length].tolist()) == paths[int(totals.argmax())]
        assert best[row, length:].tolist() == [0] * (scores.shape[1] - length)
        torch.testing.assert_close(best_score[row], totals.max())


@torch.no_grad()
def test_marginals_are_sums_over_all_paths():
    """Each row sums to 1, and is 0 past its length; no gradient is left behind."""
    crf, lengths = random_crf(3), torch.tensor([4, 1, 3])
    scores = torch.randn(3, 4, 3, dtype=torch.float64)
    marginals = crf.marginals(scores, lengths)
    assert not marginals.requires_grad
    assert crf.transitions.grad is None
    for row, length in enumerate(lengths.tolist()):
        paths, totals = every_path(crf, scores[row], length)
        each, expected = totals.softmax(0), torch.zeros(4, 3, dtype=torch.float64)
        for path, probability in zip(paths, each, strict=True):
            for t, label in enumerate(path):
                expected[t, label] += probability
        torch.testing.assert_close(marginals[row], expected)
        torch.testing.assert_close(marginals[row, :length].sum(1), torch.ones(length, dtype=torch.float64))


def test_padding_counts_for_nothing():
    """Neither the numbers past a row's length nor how far the batch is padded change its result, nor get a gradient."""
    crf, lengths = random_crf(3), torch.tensor([2, 3])
    scores, gold = torch.randn(2, 3, 3, dtype=torch.float64), torch.randint(3, (2, 3))
    expected = crf.log_likelihood(scores, gold, lengths)
    padded = torch.full((2, 7, 3), 1e6, dtype=torch.float64)
    padded[0, :2], padded[1] = scores[0, :2], torch.cat([scores[1], padded[1, 3:]])
    padded.requires_grad_()
    labels = torch.full((2, 7), -100)
    labels[:, :3] = gold
    labels[0, 2] = -100
    actual = crf.log_likelihood(padded, labels, lengths)
    torch.testing.assert_close(actual, expected)
    actual.sum().backward()
    assert padded.grad[0, 2:].abs().max() == 0
    assert padded.grad[1, 3:].abs().max() == 0
    assert padded.grad[1, :3].abs().max() > 0


@pytest.mark.parametrize("lengths", [[0, 3], [4, 3]])
def test_lengths_that_do_not_fit_are_refused(lengths):
    with pytest.raises(ElmoFastError, match=r"lengths must lie in 1\.\.T=3"):
        CRF(2).log_partition(torch.zeros(2, 3, 2), torch.tensor(lengths))
