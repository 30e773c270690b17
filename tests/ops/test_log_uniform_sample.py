"""The log-uniform sampler: its generator, its law, its tries, and the expected counts that follow from them."""

import importlib
import math

import numpy as np
import pytest
import torch

from elmo_fast.errors import ElmoFastError, PerformanceWarning
from elmo_fast.ops import (
    _dispatch,
    _native,
    _sampling,
    _schemas,
    _triton,
    expected_counts,
    log_expected_counts,
    log_uniform_sample,
)
from tests.support.backends import backends, device_of

needs_native = pytest.mark.skipif(_native.WHY_NOT is not None, reason=str(_native.WHY_NOT))
needs_triton = pytest.mark.skipif(_triton.WHY_NOT is not None, reason=str(_triton.WHY_NOT))
kernels = pytest.mark.parametrize("backend", backends("log_uniform_sample"))
every = pytest.mark.parametrize("backend", backends("log_uniform_sample", reference=True))
GPU = torch.device("cuda")


def law(num_words):
    k = np.arange(num_words)
    return np.log((k + 2) / (k + 1)) / math.log(num_words + 1)


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
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
def test_philox_gives_random123s_known_answers(counter, key, expected):
    """The published known-answer vectors of Random123; the tests below compare C++ and Triton with this code."""
    actual = _sampling.philox4x32(key, [torch.tensor([word]) for word in counter])
    assert tuple(int(word) for word in actual) == expected


@kernels
@pytest.mark.parametrize(
    ("samples", "words", "seed", "offset"),
    [
        (1, 1, 0, 0),
        (7, 7, 5, 1),
        (100, 100, 2**63 - 1, 2**40 + 3),
        (8192, 100_000, 0, 0),
        (300, 20_000_000, 2**32 + 1, 7),
    ],
)
def test_kernels_draw_what_the_reference_draws(backend, samples, words, seed, offset):
    """Ids, their order and the tries agree exactly, on both halves of every 64-bit number."""
    actual = log_uniform_sample(samples, words, seed=seed, offset=offset, backend=backend, device=device_of(backend))
    expected = log_uniform_sample(samples, words, seed=seed, offset=offset, backend="reference")
    assert actual[0].device.type == actual[1].device.type == device_of(backend).type
    assert torch.equal(actual[0].cpu(), expected[0])
    assert actual[1].item() == expected[1].item()


@every
def test_samples_are_distinct_words_and_reproducible(backend):
    """Without replacement, inside the vocabulary; equal (seed, offset) repeat a draw, either one changed does not."""
    draw = [
        log_uniform_sample(500, 3000, seed=seed, offset=offset, backend=backend, device=device_of(backend))[0]
        for seed, offset in ((1, 2), (1, 2), (2, 2), (1, 3), (1 + 2**32, 2), (1, 2 + 2**32))
    ]
    for ids in draw:
        assert ids.dtype == torch.int64
        assert len(set(ids.tolist())) == 500
        assert ids.min() >= 0
        assert ids.max() < 3000
    assert torch.equal(draw[0], draw[1])
    assert not any(torch.equal(draw[0], other) for other in draw[2:])


def test_every_try_counts_and_the_last_one_finds():
    """Tries are the draws up to the one that completes the sample; repeats count, later draws do not."""
    for offset in range(30):
        ids, tries = log_uniform_sample(30, 60, seed=3, offset=offset)
        u = _sampling.uniforms(3, offset, 0, 4000)
        stream = [int(math.exp(x * math.log1p(60))) - 1 for x in u.tolist()]
        seen = list(dict.fromkeys(stream[: int(tries)]))
        assert ids.tolist() == seen
        assert len(set(stream[: int(tries) - 1])) == 29
        assert int(tries) > 30


@every
def test_the_whole_vocabulary_can_be_drawn(backend):
    """S = V ends, gives a permutation, and takes about V ln(V)^2 tries."""
    ids, tries = log_uniform_sample(200, 200, seed=0, backend=backend, device=device_of(backend))
    assert sorted(ids.tolist()) == list(range(200))
    assert 200 * math.log(200) < int(tries) < 10 * 200 * math.log(200) ** 2


def test_expected_counts_are_tensorflows():
    """-expm1(tries log1p(-p)), or p S where no draw was repeated; compared with arithmetic in Python floats."""
    ids = torch.tensor([0, 1, 17, 999, 793_470])
    p = [math.log1p(1 / (k + 1)) / math.log(793_472) for k in ids.tolist()]
    repeated = expected_counts(ids, torch.tensor(16_053), 8192, 793_471)
    shortcut = expected_counts(ids, 8192, 8192, 793_471)
    torch.testing.assert_close(repeated.tolist(), [-math.expm1(16_053 * math.log1p(-q)) for q in p], rtol=1e-12, atol=0)
    torch.testing.assert_close(shortcut.tolist(), [8192 * q for q in p], rtol=1e-12, atol=0)


def test_expected_counts_match_how_often_words_are_drawn():
    """Over 3000 samples of 20 of 50, a word appears as often as its mean expected count says (5 sigma + 2 %)."""
    draws, appeared, expected = 3000, np.zeros(50), np.zeros(50)
    for i in range(draws):
        ids, tries = log_uniform_sample(20, 50, seed=11, offset=i)
        appeared[ids.numpy()] += 1
        expected += expected_counts(torch.arange(50), tries, 20, 50).numpy()
    rate, reference = appeared / draws, expected / draws
    assert (np.abs(rate - reference) < 5 * np.sqrt(reference * (1 - reference) / draws) + 0.02).all()


@pytest.mark.parametrize(("correction", "term"), [("allennlp", 1e-13), ("allennlp-0.9", 1e-7)])
def test_allennlps_counts_round_in_float32_and_know_no_shortcut(correction, term):
    """AllenNLP's formula with NumPy float32 arithmetic, also where tries == S."""
    ids = torch.tensor([0, 3, 500, 90_000])
    k = ids.numpy().astype(np.float32)
    p = np.log((k + np.float32(2)) / (k + np.float32(1))) / np.float32(math.log(100_001))
    expected = -(np.exp(np.float32(64) * np.log1p(-p)) - np.float32(1))
    actual = expected_counts(ids, 64, 64, 100_000, correction=correction)
    assert actual.dtype == torch.float32
    np.testing.assert_allclose(actual.numpy(), expected, rtol=3e-6, atol=2e-7)
    logs = log_expected_counts(ids, 64, 64, 100_000, correction=correction)
    np.testing.assert_allclose(logs.numpy(), np.log(actual.numpy() + np.float32(term)), rtol=1e-6)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"num_samples": 11, "num_words": 10, "seed": 0}, "num_samples must be from 1 to num_words = 10"),
        ({"num_samples": 1, "num_words": 0, "seed": 0}, "num_words must be from 1"),
        ({"num_samples": 1, "num_words": 10, "seed": -1}, "seed must be from 0"),
        ({"num_samples": 1, "num_words": 10, "seed": 0, "offset": 2**63}, "offset must be from 0"),
        ({"num_samples": 1, "num_words": 10, "seed": 0, "offset": torch.tensor(-3)}, "offset must be from 0 .* got -3"),
        ({"num_samples": 1, "num_words": 10, "seed": 0, "offset": torch.tensor(1.0)}, "offset must be int64"),
        ({"num_samples": 1, "num_words": 10, "seed": 0, "offset": torch.tensor([1, 2])}, "offset must be one number"),
        (
            {"num_samples": 1, "num_words": 10, "seed": 0, "offset": torch.tensor(1, device="meta")},
            "only be read by waiting",
        ),
        (
            {"num_samples": 1, "num_words": 10, "seed": 0, "backend": "cuda"},
            "backend must be one of auto, native, triton",
        ),
    ],
)
def test_arguments_out_of_range_are_refused(arguments, expected):
    """The message names the argument, the expected value and the actual one."""
    with pytest.raises(ElmoFastError, match=expected):
        log_uniform_sample(**arguments)


def test_an_unknown_correction_is_refused():
    """The message lists the known ones."""
    with pytest.raises(ElmoFastError, match=r"tensorflow, allennlp.*'keras'"):
        expected_counts(torch.arange(3), 3, 3, 9, correction="keras")


@needs_native
def test_opcheck():
    torch.library.opcheck(torch.ops.elmo_fast.log_uniform_sample.default, (5, 20, 1, torch.tensor(2)))


@every
def test_the_offset_may_be_a_tensor(backend):
    """It gives what its value gives."""
    device = device_of(backend)
    expected = log_uniform_sample(50, 90, seed=2**40, offset=7, backend=backend, device=device)
    for offset in (torch.tensor(7, device=device), torch.tensor([7], device=device), torch.tensor(7)):
        actual = log_uniform_sample(50, 90, seed=2**40, offset=offset, backend=backend, device=device)
        assert all(map(torch.equal, actual, expected))


@needs_triton
@pytest.mark.parametrize(("samples", "words"), [(30, 1000), (300, 300)])
def test_a_gpu_gives_up_at_the_limit_and_says_so(samples, words):
    """A sample whose last word comes at try t is complete under the limit t + 1 and abandoned under t: tries -1."""
    kernels = importlib.import_module("elmo_fast.ops.log_uniform_sample.kernels")
    offset = torch.tensor(1, device=device_of("triton"))
    arguments = _schemas.arguments_of("log_uniform_sample")(samples, words, 3, offset)
    expected, needed = log_uniform_sample(samples, words, seed=3, offset=1)
    ids, tries = kernels.sample(arguments, int(needed) + 1)
    assert torch.equal(ids.cpu(), expected)
    assert tries == needed
    for limit in (int(needed), int(needed) // 2, 1):
        ids, tries = kernels.sample(arguments, limit)
        assert tries == -1
        there = min(samples - 1, len(set(ids.tolist())) - 1)
        assert torch.equal(ids[:there].cpu(), expected[:there])
        assert not ids[there + 1 :].any()


def test_without_its_kernel_a_gpu_is_given_a_sample_of_the_cpu(monkeypatch):
    """ "auto" says so once; the kernel is an error where it is named."""
    monkeypatch.setitem(_dispatch.OPS["log_uniform_sample"].unsupported, "triton", lambda *_: "it stayed at home")
    _dispatch.warn_once.cache_clear()
    with pytest.warns(PerformanceWarning, match="using the slower backend 'reference', because it stayed at home"):
        assert _dispatch.select("log_uniform_sample", "auto", GPU, torch.float32) == "reference"
    with pytest.raises(ElmoFastError, match="it stayed at home"):
        log_uniform_sample(1, 2, seed=0, device=GPU, backend="triton")


def test_where_the_sample_is_returned():
    """On the CPU unless another device is named."""
    assert log_uniform_sample(3, 9, seed=0)[0].device.type == "cpu"
    assert log_uniform_sample(3, 9, seed=0, device="meta")[1].device.type == "meta"


def test_a_sample_of_the_cpu_is_refused_in_a_graph(monkeypatch):
    """Every replay would copy the same words."""
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    with pytest.raises(ElmoFastError, match="a CUDA graph cannot capture sampling"):
        log_uniform_sample(100, 500, seed=3, device="cuda", backend="reference")
