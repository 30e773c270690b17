"""The character encoder against the float64 judge; encoding words once and keeping their vectors changes no bit."""

import copy
import functools
import pickle

import numpy as np
import pytest
import torch

from elmo_fast.checkpoints import ElmoOptions, read_options
from elmo_fast.errors import ElmoFastError
from elmo_fast.modules import CharacterEncoder
from elmo_fast.text import batch_to_ids
from tests.bilm_numpy import BilmNumpy
from tests.modules.conftest import BATCHES


def test_slots_other_than_50(files):
    options_file, weight_file = files(max_characters=12)
    encoder, judge = CharacterEncoder(options_file, weight_file), BilmNumpy(options_file, weight_file)
    output = encoder(batch_to_ids([["a" * 30]], 12))["token_embedding"]
    np.testing.assert_allclose(output[0, 1], judge.token_vector(judge.characters("a" * 30)), rtol=2e-6, atol=2e-6)
    with pytest.raises(ElmoFastError, match=r"\[B, T, 12\].*got shape \(1, 1, 50\)"):
        encoder(batch_to_ids([["a"]]))


def test_unique_words_and_cache_change_no_bit(files, native_encoder):
    """Words encoded once, kept across batches, evicted from a cache of 3: all bit-equal to encoding every position."""
    options_file, weight_file = files(cell=40, proj=16, filters=((1, 8), (2, 24), (3, 40)))
    plain = CharacterEncoder(options_file, weight_file, unique_words=False, cache_size=0)
    others = [
        CharacterEncoder(options_file, weight_file, unique_words=unique, cache_size=size)
        for unique, size in [(True, 0), (True, 100), (False, 100), (True, 3), (False, 3)]
    ]
    for batch in BATCHES + BATCHES[::-1]:
        ids = batch_to_ids(batch)
        expected = plain(ids)["token_embedding"]
        for encoder in others:
            assert torch.equal(encoder(ids)["token_embedding"], expected), (encoder.unique_words, encoder.cache_size)
            assert len(encoder._cache) <= encoder.cache_size


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


@pytest.fixture(params=["auto", "triton"])
def waits_for_nothing(request, monkeypatch):
    """Puts an encoder on the GPU's path, which asks for no value; with Triton interpreted, or without."""
    from elmo_fast import ops
    from elmo_fast.ops import _triton

    if request.param == "triton":
        why = _triton.unsupported(torch.device("cpu"), torch.float32, "float32")
        if why is not None:
            pytest.skip(why)
        for name in ("ordered_unique_rows", "gather_rows", "char_cnn"):
            monkeypatch.setattr(ops, name, functools.partial(replacing(getattr(ops, name)), backend="triton"))

    def put(encoder):
        encoder._waits_for_nothing = True
        encoder.asked = []
        encode = encoder._encode
        encoder._encode = lambda rows, count: (encoder.asked.append((len(rows), int(count))), encode(rows, count))[1]
        return encoder

    return put


def replacing(op):
    """`op` that lets the caller's backend be overruled."""
    return lambda *arguments, backend, **options: op(*arguments, backend=backend, **options)


@pytest.mark.parametrize("requires_grad", [False, True])
def test_the_path_that_waits_for_nothing_gives_the_same(files, waits_for_nothing, requires_grad):
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


def test_the_path_that_waits_for_nothing_compiles_to_one_graph(files):
    """No break where a shape would depend on values."""
    pytest.importorskip("triton")
    encoder = CharacterEncoder(*files(), unique_words=False)
    ids = batch_to_ids(BATCHES[0])
    expected = encoder.encode(ids)
    encoder.unique_words, encoder._waits_for_nothing = True, True
    with pytest.MonkeyPatch.context() as patch:
        from elmo_fast import ops

        patch.setattr(ops, "ordered_unique_rows", functools.partial(ops.ordered_unique_rows, backend="triton"))
        compiled = torch.compile(encoder.encode, fullgraph=True, backend="aot_eager")
        torch.testing.assert_close(compiled(ids), expected, rtol=1e-5, atol=1e-6)


def changed_by_optimizer(encoder):
    encoder.requires_grad_(True)
    encoder(batch_to_ids(BATCHES[0]))["token_embedding"].sum().backward()
    torch.optim.SGD(encoder.parameters(), lr=0.1).step()
    encoder.requires_grad_(False)


@torch.no_grad()
def changed_in_one_place(encoder):
    """A value that is none of those looked at; the version counter tells."""
    encoder._highways.layers[0].weight[0, 1] += 9


@pytest.mark.parametrize(
    "change",
    [
        changed_by_optimizer,
        changed_in_one_place,
        lambda encoder: encoder._highways.layers[0].weight.data.mul_(1.5),
        lambda encoder: setattr(encoder, "precision", "bfloat16"),
        lambda encoder: encoder.load_state_dict({name: value * 0.5 for name, value in encoder.state_dict().items()}),
        CharacterEncoder.reset_parameters,
    ],
    ids=["optimizer", "one place", "through .data", "precision", "load_state_dict", "new parameters"],
)
def test_kept_vectors_are_forgotten_when_parameters_change(files, change):
    encoder = CharacterEncoder(*files())
    ids = batch_to_ids(BATCHES[0])
    before = encoder(ids)["token_embedding"]
    assert len(encoder._cache) > 0
    change(encoder)
    kept = encoder(ids)["token_embedding"]
    encoder.cache_size = 0
    torch.testing.assert_close(kept, encoder(ids)["token_embedding"], rtol=1e-6, atol=1e-6)
    assert not torch.allclose(before, kept, rtol=1e-3)


def test_what_changes_past_the_counter_of_a_parameter_is_seen(files):
    """Through a second Parameter of the same memory, and in inference mode, in values that no probe looks at."""
    encoder, ids = CharacterEncoder(*files()), batch_to_ids(BATCHES[0])
    encoder(ids)
    for weight in (encoder._projection.weight, encoder._convolutions[0].weight):
        other = torch.nn.Parameter(weight.data)
        before = encoder(ids)["token_embedding"]
        assert len(encoder._cache) > 0
        with torch.no_grad():
            other.flatten()[1::2].mul_(3)
        del other
        assert not torch.equal(before, encoder(ids)["token_embedding"])
    with torch.inference_mode():
        encoder._projection.weight = torch.nn.Parameter(encoder._projection.weight.clone(), requires_grad=False)
        before = encoder(ids)["token_embedding"]
        encoder._projection.weight[0, 1] += 100
        assert not torch.equal(before, encoder(ids)["token_embedding"])


def test_what_the_cache_keeps_and_when(files):
    """Nothing while gradients are wanted; train() empties it; copies begin empty; eval() and batches fill it."""
    encoder = CharacterEncoder(*files(), requires_grad=True)
    ids = batch_to_ids(BATCHES[0])
    assert encoder(ids)["token_embedding"].requires_grad
    assert len(encoder._cache) == 0
    with torch.no_grad():
        encoder.eval()(ids)
    distinct = len({word for sentence in BATCHES[0] for word in sentence})
    assert len(encoder._cache) == distinct + 3  # BOS, EOS, padding
    assert len(copy.deepcopy(encoder)._cache) == 0
    assert len(pickle.loads(pickle.dumps(encoder))._cache) == 0
    encoder.train()
    assert len(encoder._cache) == 0


def test_cache_filled_in_inference_mode_serves_outside_it(files):
    encoder = CharacterEncoder(*files())
    with torch.inference_mode():
        first = encoder(batch_to_ids(BATCHES[0]))["token_embedding"].clone()
        encoder(batch_to_ids(BATCHES[1]))
    encoder(batch_to_ids(BATCHES[2]))
    second = encoder(batch_to_ids(BATCHES[0]))["token_embedding"]
    torch.testing.assert_close(first, second, rtol=1e-6, atol=1e-6)


def test_least_recently_used_words_make_room(files):
    encoder = CharacterEncoder(*files(), cache_size=2)
    calls = []
    encode = encoder._encode
    encoder._encode = lambda rows: (calls.append(len(rows)), encode(rows))[1]
    a, b, c = (batch_to_ids([[word]]) for word in "abc")
    for ids in (a, b, a, c, a, b):  # a is used again before c comes, so that b goes
        encoder.encode(ids)
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
    assert abs(encoder._highways.layers[0].weight.std().item() - 256**-0.5) < 1e-3
    assert abs(encoder._projection.weight.std().item() - 256**-0.5) < 1e-3
    assert encoder._highways.layers[1].bias.tolist() == [0.0] * 256 + [2.0] * 256
    tanh = CharacterEncoder(ElmoOptions.from_dict({"lstm": lstm, "char_cnn": cnn | {"activation": "tanh"}}))
    assert abs(tanh.char_conv_1.weight.std().item() - 48**-0.5) < 5e-3


def test_refusals(files):
    options_file, weight_file = files()
    for arguments, settings, message in (
        ((options_file, weight_file), {"precision": "float8"}, "precision must be one of"),
        ((options_file, weight_file), {"backend": "tpu"}, "backend must be one of"),
        ((read_options(options_file), weight_file), {}, "ElmoOptions takes no weight_file"),
        ((options_file,), {}, "options_file"),
        (files(words=7), {}, "word ids"),
    ):
        with pytest.raises(ElmoFastError, match=message):
            CharacterEncoder(*arguments, **settings)
    with pytest.raises(ElmoFastError, match="whole numbers"):
        CharacterEncoder(options_file, weight_file)(torch.zeros(1, 2, 50))
