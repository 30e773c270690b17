"""The character encoder against the float64 judge; encoding words once and keeping their vectors changes no bit."""

import copy
import os

import numpy as np
import pytest
import torch

from elmo_fast import CharacterEncoder
from elmo_fast.checkpoints import ElmoOptions, read_options
from elmo_fast.errors import ElmoFastError
from elmo_fast.text import batch_to_ids
from tests.modules.conftest import BATCHES
from tests.support.bilm_numpy import BilmNumpy


def test_slots_other_than_50(files):
    options_file, weight_file = files(max_characters=12)
    encoder, judge = CharacterEncoder(options_file, weight_file), BilmNumpy(options_file, weight_file)
    output = encoder(batch_to_ids([["a" * 30]], 12))["token_embedding"]
    np.testing.assert_allclose(output[0, 1], judge.token_vector(judge.characters("a" * 30)), rtol=2e-6, atol=2e-6)
    with pytest.raises(ElmoFastError, match=r"\[B, T, 12\].*got shape \(1, 1, 50\)"):
        encoder(batch_to_ids([["a"]]))


def test_unique_words_and_cache_change_no_bit(files, native_encoder):
    """Words encoded once, cached across batches, evicted from a cache of 3: bitwise equal to encoding every word."""
    options_file, weight_file = files(cell=40, proj=16, filters=((1, 8), (2, 24), (3, 40)))
    plain = CharacterEncoder(options_file, weight_file, unique_words=False, cache_size=0)
    others = [
        CharacterEncoder(options_file, weight_file, unique_words=unique, cache_size=size)
        for unique, size in [(True, 0), (True, 100), (False, 100), (True, 3), (False, 3)]
    ]
    caches = [encoder.new_cache() for encoder in others]
    for batch in BATCHES + BATCHES[::-1]:
        ids = batch_to_ids(batch)
        expected = plain(ids)["token_embedding"]
        for encoder, cache in zip(others, caches, strict=True):
            with torch.no_grad():
                actual = encoder(ids, cache)["token_embedding"]
            assert torch.equal(actual, expected), (encoder.unique_words, encoder.cache_size)
            assert cache is None or 0 < len(cache._slots) <= encoder.cache_size
    assert [cache is None for cache in caches] == [encoder.cache_size == 0 for encoder in others]


def test_gradients_of_unique_words_equal_those_of_all(files):
    """A word's gradient is the sum over its occurrences."""
    options_file, weight_file = files()
    ids, gradients = batch_to_ids(BATCHES[0]), []
    for unique in (True, False):
        encoder = CharacterEncoder(options_file, weight_file, requires_grad=True, unique_words=unique)
        output = encoder(ids)["token_embedding"]
        (output * torch.linspace(-1, 1, output.numel()).reshape(output.shape)).sum().backward()
        gradients.append({name: p.grad for name, p in encoder.named_parameters()})
    for name, gradient in gradients[0].items():
        torch.testing.assert_close(gradient, gradients[1][name], rtol=1e-5, atol=1e-6, msg=name)
        assert gradient.any(), name


def waits_for_nothing(encoder):
    """Put an encoder on the GPU's path, which asks for no value (tests/standin runs it on a GPU)."""
    encoder._waits_for_nothing = True
    encoder.asked = []
    encode = encoder._encode
    encoder._encode = lambda rows, count: (encoder.asked.append((len(rows), int(count))), encode(rows, count))[1]
    return encoder


@pytest.mark.parametrize("requires_grad", [False, True])
def test_the_path_that_waits_for_nothing_gives_the_same(files, requires_grad):
    """Equal vectors, and equal gradients of every parameter; only distinct words are counted."""
    options_file, weight_file = files(cell=40, proj=16, filters=((1, 8), (2, 24), (3, 40)))
    plain = CharacterEncoder(options_file, weight_file, requires_grad)
    other = waits_for_nothing(CharacterEncoder(options_file, weight_file, requires_grad))
    for batch in BATCHES[:2]:
        ids = batch_to_ids(batch)
        expected, actual = plain(ids), other(ids)
        torch.testing.assert_close(actual["token_embedding"], expected["token_embedding"], rtol=1e-5, atol=1e-6)
        assert torch.equal(actual["mask"], expected["mask"])
        if requires_grad:
            for output in (expected, actual):
                vectors = output["token_embedding"]
                (vectors * torch.linspace(-1, 1, vectors.numel()).reshape(vectors.shape)).sum().backward()
            for (name, one), two in zip(plain.named_parameters(), other.parameters(), strict=True):
                torch.testing.assert_close(two.grad, one.grad, rtol=1e-4, atol=1e-5, msg=name)
                assert two.grad.any(), name
    places, distinct = 3 * 9, 7 + 3 + 1 + 3  # words of three sentences, both markers, padding
    assert other.asked[0] == (places, distinct)


@pytest.mark.skipif(os.environ.get("STANDIN_KERNELS") == "native", reason="C++, in Triton's place, counts no rows")
def test_the_path_that_waits_for_nothing_compiles_to_one_graph(files):
    """No break where a shape would depend on values."""
    pytest.importorskip("triton")
    ids, pair = batch_to_ids(BATCHES[0]), files()
    encoder = CharacterEncoder(*pair, backend="triton")
    encoder._waits_for_nothing = True
    compiled = torch.compile(encoder.encode, fullgraph=True, backend="aot_eager")
    expected = CharacterEncoder(*pair, unique_words=False).encode(ids)
    torch.testing.assert_close(compiled(ids), expected, rtol=1e-5, atol=1e-6)


def test_a_call_of_the_module_remembers_no_word(files):
    """Neither of the call before nor of a cache that another call owns: weights may change in any way between."""
    encoder, ids = CharacterEncoder(*files()), batch_to_ids(BATCHES[0])
    cache = encoder.new_cache()
    with torch.no_grad():
        before = encoder(ids, cache)["token_embedding"]
    encoder._projection.weight.data.view(-1)[7] += 3
    after = encoder(ids)["token_embedding"]
    assert torch.equal(after, copy.deepcopy(encoder)(ids)["token_embedding"])
    assert not torch.equal(before, after)


def test_least_recently_used_words_make_room(files):
    encoder = CharacterEncoder(*files(), cache_size=2)
    calls, cache = [], encoder.new_cache()
    encode = encoder._encode
    encoder._encode = lambda rows: (calls.append(len(rows)), encode(rows))[1]
    a, b, c = (batch_to_ids([[word]]) for word in "abc")
    with torch.no_grad():
        for ids in (a, b, a, c, a, b):  # a is used again before c comes, so that b goes
            encoder.encode(ids, cache=cache)
    assert calls == [1, 1, 1, 1]


def test_new_parameters_are_bilm_tfs():
    """Ranges, spreads and the carrying bias of bilm-tf's initialisers."""
    cnn = {"filters": [[1, 64], [3, 192]], "n_highway": 2, "embedding": {"dim": 16}}
    lstm = {"dim": 64, "projection_dim": 128, "n_layers": 1}
    encoder = CharacterEncoder(ElmoOptions.from_dict({"lstm": lstm, "char_cnn": cnn}))
    characters = encoder._char_embedding_weights
    assert not characters[0].any()
    assert 0.99 < characters.abs().max() <= 1
    assert 0.049 < encoder.char_conv_1.weight.abs().max() <= 0.05
    assert abs(encoder._highways._layers[0].weight.std().item() - 256**-0.5) < 1e-3
    assert abs(encoder._projection.weight.std().item() - 256**-0.5) < 1e-3
    assert encoder._highways._layers[1].bias.tolist() == [0.0] * 256 + [2.0] * 256
    tanh = CharacterEncoder(ElmoOptions.from_dict({"lstm": lstm, "char_cnn": cnn | {"activation": "tanh"}}))
    assert abs(tanh.char_conv_1.weight.std().item() - 48**-0.5) < 5e-3


def test_refusals(files):
    options_file, weight_file = files()
    for arguments, settings, message in (
        ((options_file, weight_file), {"precision": "float8"}, "precision must be one of"),
        ((options_file, weight_file), {"backend": "tpu"}, "backend must be one of"),
        ((read_options(options_file), weight_file), {}, "must be two paths, .*; got ElmoOptions and "),
        ((options_file,), {}, "options_file"),
        (files(words=7), {}, "word ids"),
    ):
        with pytest.raises(ElmoFastError, match=message):
            CharacterEncoder(*arguments, **settings)
    with pytest.raises(ElmoFastError, match="whole numbers"):
        CharacterEncoder(options_file, weight_file)(torch.zeros(1, 2, 50))
