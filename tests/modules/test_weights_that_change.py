"""Weights that are written past torch's version counter, cast, or replaced by a quantizer."""

import functools
import warnings

import numpy as np
import pytest
import torch

from elmo_fast import BiLM, Elmo, ElmoEmbedder, SampledSoftmaxLoss, ScalarMix, ops
from elmo_fast._runtime.threads import torch_threads
from elmo_fast.checkpoints.bilm_hdf5 import write_bilm_hdf5
from elmo_fast.embed.sentence_vectors import run_batches, write_vectors
from elmo_fast.embed.token_vectors import TokenVectors
from elmo_fast.errors import ElmoFastError, PerformanceWarning
from elmo_fast.modules.bilm import model_digest
from elmo_fast.modules.elmo import save_bilm
from elmo_fast.ops import _dispatch
from elmo_fast.text import batch_to_ids
from tests.modules.conftest import BATCHES

IDS = batch_to_ids(BATCHES[0])


def through_data(weight):
    weight.data.view(-1)[unprobed(weight)] += 3


def through_numpy(weight):
    weight.detach().numpy().reshape(-1)[unprobed(weight).numpy()] += 3


def unprobed(weight):
    """The places that neither probe looks at: 256 spread evenly, and every one of 64 equal strides' first."""
    count = weight.numel()
    places = torch.ones(count, dtype=torch.bool)
    places[torch.arange(256) * (count - 1) // 255] = False
    places[:: max(count // 64, 1)] = False
    return places


@pytest.mark.parametrize(
    ("name", "write"),
    [("_token_embedder._projection", through_data), ("_elmo_lstm.forward_layer_1.state_linearity", through_numpy)],
)
def test_refresh_weights_shows_what_was_written_past_the_counter(files, write, name):
    """Bitwise equal to a module created with these weights; words cached across batches are forgotten too."""
    model = BiLM(*files(cell=40, proj=16, filters=((1, 8), (2, 24), (3, 40))), stateful=False)
    before = torch.stack(model(IDS)["activations"])
    write(model.get_submodule(name).weight)
    ops.refresh_weights()
    other = BiLM(model.options, model.state_dict(), stateful=False)
    after = torch.stack(model(IDS)["activations"])
    assert torch.equal(after, torch.stack(other(IDS)["activations"]))
    assert not torch.allclose(after, before)


@pytest.mark.parametrize("cast", ["half", "bfloat16"])
def test_a_cast_module_is_slower_and_told_of_precision(files, cast):
    model = getattr(Elmo(*files(layers=1), 1, stateful=False).eval(), cast)()
    _dispatch.warn_once.cache_clear()
    name = str(next(model.parameters()).dtype).removeprefix("torch.")
    with pytest.warns(PerformanceWarning, match=f'keep them in float32 and pass precision="{name}"'):
        model(IDS)
    _dispatch.warn_once.cache_clear()


@pytest.mark.parametrize("part", [lambda elmo: elmo, lambda elmo: elmo._elmo_lstm._elmo_lstm], ids=["Elmo", "ElmoLstm"])
def test_a_quantizer_is_refused_in_one_sentence(files, part):
    """torch.ao.quantization puts layers whose weight is no tensor in the place of torch.nn.Linear."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch.ao.quantization is deprecated, and says so
        model = Elmo(*files(layers=1), 1, stateful=False).eval()
        model = torch.ao.quantization.quantize_dynamic(part(model), {torch.nn.Linear})
    inputs = (IDS,) if isinstance(model, Elmo) else (torch.zeros(1, 2, 8), torch.ones(1, 2))
    with pytest.raises(ElmoFastError, match=r'was replaced by torch\.ao\..*quantized.*precision="int8"'):
        model(*inputs)


def old_weight_norm(layer):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # deprecated, and still used
        torch.nn.utils.weight_norm(layer)
    return lambda: layer.weight_g.mul_(1.5)


def pruned(layer):
    torch.nn.utils.prune.l1_unstructured(layer, "weight", 0.3)
    return lambda: layer.weight_orig.mul_(1.5)


def old_spectral_norm(layer):
    torch.nn.utils.spectral_norm(layer)
    return lambda: layer.bias.add_(1) if layer.bias is not None else layer.weight_orig[0].mul_(3)


class Scaled(torch.nn.Module):
    """A parametrization with a number that is neither parameter nor buffer."""

    scale = 1.0

    def forward(self, weight):
        return weight * self.scale


def parametrized(layer):
    scaled = Scaled()
    torch.nn.utils.parametrize.register_parametrization(layer, "weight", scaled)
    return lambda: setattr(scaled, "scale", 1.5)


COMPUTED = [old_weight_norm, pruned, old_spectral_norm, parametrized]
LAYERS = [
    "_token_embedder._projection", "_token_embedder._highways._layers.0", "_token_embedder.char_conv_1",
    "_elmo_lstm.forward_layer_1.state_linearity", "_elmo_lstm.backward_layer_0.state_projection",
]  # fmt: skip


@pytest.mark.parametrize(("name", "compute"), list(zip(LAYERS, [*COMPUTED, old_weight_norm], strict=True)))
def test_a_weight_that_is_computed_is_computed_at_every_pass(files, name, compute):
    """By a hook or a parametrization: a changed part shows, in a bare call and through `encode`; two steps train."""
    model = BiLM(*files(), requires_grad=True, stateful=False).eval()
    embedder = ElmoEmbedder(model.options, model.state_dict(), stateful=False)
    embedder.elmo_bilm = model
    layer = model.get_submodule(name)
    change = compute(layer)
    for _ in range(2):
        torch.stack(model(IDS)["activations"]).sum().backward()
    before = torch.stack(model(IDS)["activations"]), embedder.encode(BATCHES[0])
    with torch.no_grad():
        change()
    after = torch.stack(model(IDS)["activations"]), embedder.encode(BATCHES[0])
    layer(torch.zeros(1, layer.weight.shape[1], 9) if layer.weight.dim() == 3 else torch.zeros(1, layer.in_features))
    fixed = BiLM(*files(), stateful=False).eval()
    state = {key: value for key, value in model.state_dict().items() if key in fixed.state_dict()}
    fixed.load_state_dict(state | {f"{name}.weight": layer.weight.detach()})
    torch.testing.assert_close(after[0], torch.stack(fixed(IDS)["activations"]), rtol=1e-5, atol=1e-6)
    assert not torch.allclose(before[0], after[0])
    assert not np.allclose(before[1], after[1])


class Adapter(torch.nn.Module):
    """Adds to what a layer gives, as LoRA does."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    @property
    def weight(self):
        return self.layer.weight

    def forward(self, *inputs):
        return self.layer(*inputs) + 1


class OwnMix(ScalarMix):
    """A mix of a user's own."""

    def forward(self, tensors, mask=None):
        return tensors[0]


@pytest.mark.parametrize("name", [LAYERS[0], LAYERS[2], "_token_embedder._highways", "_elmo_lstm.forward_layer_1"])
def test_what_would_never_run_is_refused(files, name):
    """Hooks of layers and of what holds them; a forward that was replaced on the instance, as accelerate does."""
    model = BiLM(*files(), stateful=False)
    inner = model.get_submodule(name)
    for kind in ("forward", "forward_pre", "full_backward"):
        handle = getattr(inner, f"register_{kind}_hook")(lambda *_: None)
        with pytest.raises(ElmoFastError, match=f"a hook of the inner {type(inner).__name__} would never run"):
            model(IDS)
        handle.remove()
    model(IDS)
    inner.forward = functools.update_wrapper(functools.partial(inner.forward), type(inner).forward)
    with pytest.raises(ElmoFastError, match="whose forward would not run"):
        model(IDS)


@pytest.mark.parametrize("name", [LAYERS[0], LAYERS[2], "_elmo_lstm.forward_layer_1"])
def test_a_layer_that_was_replaced_is_refused_in_a_sentence(files, name):
    """Its own forward would not run, so that what it adds would be left out."""
    model = BiLM(*files(), stateful=False)
    parent, _, child = name.rpartition(".")
    setattr(model.get_submodule(parent), child, Adapter(model.get_submodule(name)))
    with pytest.raises(ElmoFastError, match=r"was replaced by .*Adapter, whose forward would not run"):
        model(IDS)


def test_a_mix_and_a_table_refuse_what_would_not_run(files):
    """All mixes are one kernel, which reads their parameters; so is a loss."""
    elmo = Elmo(*files(), 2, stateful=False)
    elmo.scalar_mix_1 = OwnMix(3)
    with pytest.raises(ElmoFastError, match="OwnMix, whose forward would not run"):
        elmo(IDS)
    loss = SampledSoftmaxLoss(9, 4, 3, sparse=True)
    loss.softmax_w.register_forward_hook(lambda *_: None)
    with pytest.raises(ElmoFastError, match="a hook of the inner Embedding would never run"):
        loss(torch.zeros(2, 4), torch.zeros(2, dtype=torch.int64))


@pytest.mark.parametrize("name", ["", "_token_embedder", "_elmo_lstm"])
def test_hooks_of_modules_that_are_called_run(files, name):
    """In a bare call and in `encode`, of a sentence that would run in chunks too."""
    model, calls = BiLM(*files(), stateful=False), []
    model.get_submodule(name).register_forward_hook(lambda *_: calls.append(name))
    model(IDS)
    assert calls == [name]
    list(TokenVectors(model)(BATCHES[0]))
    assert calls == [name] * 2
    list(TokenVectors(model, max_tokens=2)([["a", "long", "sentence"]]))
    assert calls == [name] * 3


def test_a_call_that_owns_the_weights_looks_at_them_once(files):
    """Its second batch has the weights of the first, whatever is written meanwhile; the next call sees the change."""
    model = BiLM(*files(), requires_grad=True, stateful=False)
    batches = run_batches(model, [["a", "b"]] * 2, batch_size=1)
    first = next(batches).vectors()[0]
    with torch.no_grad():
        model.lstm.forward_layer_0.state_linearity.weight.mul_(2)
    assert np.array_equal(next(batches).vectors()[0], first)
    assert not np.array_equal(next(run_batches(model, [["a", "b"]])).vectors()[0], first)


def test_a_forward_of_a_subclass_runs_in_embedding_too(files):
    class Doubled(BiLM):
        def forward(self, *arguments, **named):
            output = super().forward(*arguments, **named)
            return output | {"activations": [2 * layer for layer in output["activations"]]}

    paths = files()
    plain, doubled = (list(TokenVectors(kind(*paths, stateful=False))([["a", "b"]])) for kind in (BiLM, Doubled))
    assert np.array_equal(2 * plain[0], doubled[0])


def test_numbers_under_autocast_stay_in_their_context(files):
    """A call under autocast leaves nothing behind for one outside, and another thread computes under it too."""
    embedder = ElmoEmbedder(*files(cell=40, proj=16), stateful=False)
    expected = embedder.encode(BATCHES[0])
    for threads in (1, 2, 4):
        with torch_threads(threads):
            with torch.autocast("cpu", torch.bfloat16):
                rounded = embedder.encode(BATCHES[0])
                written = write_all(embedder.elmo_bilm, BATCHES[0])
            assert np.array_equal(embedder.encode(BATCHES[0]), expected)
        assert 1e-4 < np.abs(rounded - expected).max() < 0.1
        assert np.array_equal(np.stack([rows.mean(0) for rows in written]), rounded)


def write_all(bilm, sentences):
    """The vectors that a command writes, which two threads compute."""
    rows = {}
    lengths = sum(map(len, sentences))
    write_vectors(bilm, sentences, rows.__setitem__, "average", side_by_side=True, total=lengths)
    return [rows[i] for i in range(len(sentences))]


def test_the_arithmetic_is_that_of_the_layers(files):
    model = BiLM(*files(), stateful=False)
    assert model.arithmetic == "float32"
    model.lstm.forward_layer_1.precision = "bfloat16"
    assert model.precision == model.arithmetic == "float32 and bfloat16"
    expected = torch.stack(model(IDS)["activations"])
    model.lstm.precision = "int8"
    assert model.precision == model.arithmetic == "int8 and float32"
    assert not torch.equal(torch.stack(model(IDS)["activations"]), expected)
    with torch.autocast("cpu", torch.bfloat16):
        assert model.arithmetic == f"{model.precision}, autocast torch.bfloat16"


def test_reading_weights_leaves_their_storages_as_they_were(files, tmp_path):
    """torch can still resize them, as FSDP does after an evaluation, and frozen ones are not digested at every call."""
    model = BiLM(*files(), stateful=False)
    list(TokenVectors(model)(BATCHES[0]))
    digest = model_digest(model)
    save_bilm(tmp_path / "saved", model)
    write_bilm_hdf5(tmp_path / "weights.hdf5", model.checkpoint_state(), model.options)
    assert all(weight.untyped_storage().resizable() for weight in model.parameters())
    assert model_digest(BiLM(tmp_path / "saved")) == digest
