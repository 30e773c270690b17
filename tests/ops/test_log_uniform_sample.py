"""The log-uniform sampler: its generator, its law, its tries, and the expected counts that follow from them."""

import math

import numpy as np
import pytest
import torch

from elmo_fast.errors import ElmoFastError
from elmo_fast.ops import _native, expected_counts, log_expected_counts, log_uniform_sample
from elmo_fast.ops.log_uniform_sample import reference

needs_native = pytest.mark.skipif(_native.WHY_NOT is not None, reason=str(_native.WHY_NOT))
both = pytest.mark.parametrize("backend", ["reference", pytest.param("native", marks=needs_native)])


def law(num_words):
    k = np.arange(num_words)
    return np.log((k + 2) / (k + 1)) / math.log(num_words + 1)


@pytest.mark.parametrize(
    ("counter", "key", "wanted"),
    [
        ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
def test_philox_gives_random123s_known_answers(counter, key, wanted):
    """The published known-answer vectors of Random123; the C++ header asserts the same ones while compiling."""
    found = reference.philox4x32(np.array([counter], dtype=np.uint64), key)
    assert tuple(int(word) for word in found[0]) == wanted


@needs_native
@pytest.mark.parametrize(
    ("samples", "words"), [(1, 1), (1, 10), (2, 2), (7, 7), (64, 100), (100, 100), (1000, 5000), (8192, 100_000)]
)
@pytest.mark.parametrize(("seed", "offset"), [(0, 0), (5, 1), (2**63 - 1, 2**40 + 3), (2**32 + 1, 7)])
def test_native_draws_what_the_reference_draws(samples, words, seed, offset):
    """Ids, their order and the tries agree exactly, on both halves of every 64-bit number."""
    native = log_uniform_sample(samples, words, seed=seed, offset=offset, backend="native")
    wanted = log_uniform_sample(samples, words, seed=seed, offset=offset, backend="reference")
    assert torch.equal(native[0], wanted[0])
    assert native[1].item() == wanted[1].item()


@both
def test_samples_are_distinct_words_and_reproducible(backend):
    """Without replacement, inside the vocabulary; equal (seed, offset) repeat a draw, either one changed does not."""
    draw = [
        log_uniform_sample(500, 3000, seed=seed, offset=offset, backend=backend)[0]
        for seed, offset in ((1, 2), (1, 2), (2, 2), (1, 3), (1 + 2**32, 2), (1, 2 + 2**32))
    ]
    for ids in draw:
        assert ids.dtype == torch.int64
        assert len(set(ids.tolist())) == 500
        assert ids.min() >= 0
        assert ids.max() < 3000
    assert torch.equal(draw[0], draw[1])
    assert not any(torch.equal(draw[0], other) for other in draw[2:])


@both
def test_frequencies_follow_the_law(backend):
    """Chi-square of first draws against ln((k+2)/(k+1))/ln(V+1), 19 degrees of freedom: 43.8 is the 0.1 % point."""
    words, draws = 20, 4000
    first = [int(log_uniform_sample(1, words, seed=7, offset=i, backend=backend)[0]) for i in range(draws)]
    counts, wanted = np.bincount(first, minlength=words), law(words) * draws
    assert ((counts - wanted) ** 2 / wanted).sum() < 43.8


def test_every_try_counts_and_the_last_one_finds():
    """Tries are the draws up to the one that completes the sample; repeats count, later draws do not."""
    for offset in range(30):
        ids, tries = log_uniform_sample(30, 60, seed=3, offset=offset)
        u = reference.uniforms(3, offset, 0, 4000)
        stream = [int(math.exp(x * math.log1p(60))) - 1 for x in u.tolist()]
        seen = list(dict.fromkeys(stream[: int(tries)]))
        assert ids.tolist() == seen
        assert len(set(stream[: int(tries) - 1])) == 29
        assert int(tries) > 30


@both
def test_the_whole_vocabulary_can_be_drawn(backend):
    """S = V ends, gives a permutation, and takes about V ln(V)^2 tries."""
    ids, tries = log_uniform_sample(200, 200, seed=0, backend=backend)
    assert sorted(ids.tolist()) == list(range(200))
    assert 200 * math.log(200) < int(tries) < 10 * 200 * math.log(200) ** 2


def test_mean_number_of_tries_is_the_expected_one():
    """The tries t solve sum_k (1 - (1 - p_k)^t) = S on average (S = 300 of 2000; within 1 %)."""
    tries = np.array([int(log_uniform_sample(300, 2000, seed=1, offset=i)[1]) for i in range(200)])
    found = (1 - (1 - law(2000)) ** tries.mean()).sum()
    assert abs(found - 300) < 3


def test_expected_counts_are_tensorflows():
    """-expm1(tries log1p(-p)), or p S where no draw was repeated; compared with arithmetic in Python floats."""
    ids = torch.tensor([0, 1, 17, 999, 793_470])
    p = [math.log1p(1 / (k + 1)) / math.log(793_472) for k in ids.tolist()]
    repeated = expected_counts(ids, torch.tensor(16_053), 8192, 793_471)
    shortcut = expected_counts(ids, 8192, 8192, 793_471)
    torch.testing.assert_close(repeated.tolist(), [-math.expm1(16_053 * math.log1p(-q)) for q in p], rtol=1e-12, atol=0)
    torch.testing.assert_close(shortcut.tolist(), [8192 * q for q in p], rtol=1e-12, atol=0)


def test_expected_counts_match_how_often_words_are_drawn():
    """Over 3000 draws of 20 of 50, a word appears as often as its mean expected count says (5 sigma + 2 %)."""
    draws, appeared, expected = 3000, np.zeros(50), np.zeros(50)
    for i in range(draws):
        ids, tries = log_uniform_sample(20, 50, seed=11, offset=i)
        appeared[ids.numpy()] += 1
        expected += expected_counts(torch.arange(50), tries, 20, 50).numpy()
    rate, wanted = appeared / draws, expected / draws
    assert (np.abs(rate - wanted) < 5 * np.sqrt(wanted * (1 - wanted) / draws) + 0.02).all()


@pytest.mark.parametrize(("correction", "term"), [("allennlp", 1e-13), ("allennlp-0.9", 1e-7)])
def test_allennlps_counts_round_in_float32_and_know_no_shortcut(correction, term):
    """AllenNLP's formula with NumPy float32 arithmetic, also where tries == S."""
    ids = torch.tensor([0, 3, 500, 90_000])
    k = ids.numpy().astype(np.float32)
    p = np.log((k + np.float32(2)) / (k + np.float32(1))) / np.float32(math.log(100_001))
    wanted = -(np.exp(np.float32(64) * np.log1p(-p)) - np.float32(1))
    found = expected_counts(ids, 64, 64, 100_000, correction=correction)
    assert found.dtype == torch.float32
    np.testing.assert_allclose(found.numpy(), wanted, rtol=3e-6, atol=2e-7)
    logs = log_expected_counts(ids, 64, 64, 100_000, correction=correction)
    np.testing.assert_allclose(logs.numpy(), np.log(found.numpy() + np.float32(term)), rtol=1e-6)


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        ({"num_samples": 11, "num_words": 10, "seed": 0}, "num_samples must be from 1 to num_words = 10"),
        ({"num_samples": 0, "num_words": 10, "seed": 0}, "got 0"),
        ({"num_samples": 1, "num_words": 0, "seed": 0}, "num_words must be from 1"),
        ({"num_samples": 1, "num_words": 10, "seed": -1}, "seed must be from 0"),
        ({"num_samples": 1, "num_words": 10, "seed": 0, "offset": 2**63}, "offset must be from 0"),
    ],
)
def test_arguments_out_of_range_are_refused(arguments, wanted):
    """The message names the argument, what is wanted and what was given."""
    with pytest.raises(ElmoFastError, match=wanted):
        log_uniform_sample(**arguments)


def test_an_unknown_correction_is_refused():
    """The message lists the known ones."""
    with pytest.raises(ElmoFastError, match=r"tensorflow, allennlp.*'keras'"):
        expected_counts(torch.arange(3), 3, 3, 9, correction="keras")


@needs_native
def test_opcheck():
    """The registered op agrees with its fake and traces."""
    torch.library.opcheck(torch.ops.elmo_fast.log_uniform_sample.default, (5, 20, 1, 2))
