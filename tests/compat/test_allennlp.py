"""Interface that code written for AllenNLP's ELMo uses: names, defaults, parameters, states, the token indexer,
from_params."""

import inspect
import types

import pytest
import torch

from elmo_fast.compat import allennlp
from elmo_fast.compat.allennlp import (
    ConfigurationError,
    Elmo,
    ElmoEmbedder,
    ELMoTokenCharactersIndexer,
    ElmoTokenEmbedder,
    SampledSoftmaxLoss,
    SoftmaxLoss,
    batch_to_ids,
    get_lengths_from_binary_sequence_mask,
    sort_batch_by_length,
)
from tests.support.weights import make_weights

# Name -> the arguments of AllenNLP 0.9 to 2.10 and their defaults, in order.
_CLIPS = "recurrent_dropout_probability=0.0, memory_cell_clip_value=None, state_projection_clip_value=None"
SIGNATURES = {
    "Elmo": "options_file, weight_file, num_output_representations, requires_grad=False, do_layer_norm=False, "
    "dropout=0.5, vocab_to_cache=None, keep_sentence_boundaries=False, scalar_mix_parameters=None, module=None",
    "ElmoTokenEmbedder": "options_file, weight_file, do_layer_norm=False, dropout=0.5, requires_grad=False, "
    "projection_dim=None, vocab_to_cache=None, scalar_mix_parameters=None",
    "_ElmoBiLm": "options_file, weight_file=None, requires_grad=False, vocab_to_cache=None",
    "_ElmoCharacterEncoder": "options_file, weight_file=None, requires_grad=False",
    "ElmoLstm": f"input_size, hidden_size, cell_size, num_layers, requires_grad=False, {_CLIPS}",
    "LstmCellWithProjection": f"input_size, hidden_size, cell_size, go_forward=True, {_CLIPS}",
    "ScalarMix": "mixture_size, do_layer_norm=False, initial_scalar_parameters=None, trainable=True",
    "SampledSoftmaxLoss": "num_words, embedding_dim, num_samples, sparse=False, unk_id=None, "
    "use_character_inputs=True, use_fast_sampler=False",
}


@pytest.fixture
def files(tmp_path):
    return make_weights(tmp_path)


@pytest.mark.parametrize("name", SIGNATURES)
def test_arguments_are_allennlps(name):
    """In AllenNLP's order with its defaults; what is added takes a keyword."""
    parameters = inspect.signature(getattr(allennlp, name)).parameters.values()
    positional = [p for p in parameters if p.kind == p.POSITIONAL_OR_KEYWORD]
    assert (
        ", ".join(p.name + ("" if p.default is p.empty else f"={p.default!r}") for p in positional) == SIGNATURES[name]
    )


def token(text):
    return types.SimpleNamespace(text=text)


def test_token_indexer():
    indexer = ELMoTokenCharactersIndexer()
    tokens = [token("Ā" + "t"), "</S>"]
    rows = [[259, 197, 129, 117, 260] + [261] * 45, [259, 258, 260] + [261] * 47]
    assert indexer.tokens_to_indices(tokens, None, "mine") == {"mine": rows}  # 0.9
    indexed = indexer.tokens_to_indices(tokens, None)  # 1.0 on
    assert indexed == {"elmo_tokens": rows}
    assert indexer.get_padding_lengths(indexed) == {"elmo_tokens": 2}
    padded = indexer.as_padded_tensor_dict(indexed, {"elmo_tokens": 3})["elmo_tokens"]
    assert torch.equal(padded, torch.tensor([*rows, [0] * 50]))
    assert torch.equal(indexer.as_padded_tensor({"k": rows}, {"k": 1}, {})["k"], torch.tensor(rows[:1]))
    nothing = indexer.as_padded_tensor_dict(indexer.get_empty_token_list(), {"elmo_tokens": 0})
    assert nothing["elmo_tokens"].shape == (0, 50)
    with pytest.raises(ConfigurationError, match="tokens must be strings or have an attribute text"):
        indexer.tokens_to_indices([token(None)])


def test_tokens_with_characters_of_their_own():
    indexer = ELMoTokenCharactersIndexer(tokens_to_add={"<sep>": 1})
    assert indexer.tokens_to_indices(["<sep>"])["elmo_tokens"] == [[259, 2, 260] + [261] * 47]
    assert indexer._mapper == allennlp.ELMoCharacterMapper({"<sep>": 1})
    assert indexer._mapper != allennlp.ELMoCharacterMapper()
    assert allennlp.ELMoCharacterMapper.beginning_of_sentence_characters[:4] == [258, 256, 259, 260]
    assert allennlp.ELMoCharacterMapper().convert_word_to_char_ids("a") == [259, 98, 260] + [261] * 47


def test_states_are_reached_through_elmo(files):
    """elmo._elmo_lstm._elmo_lstm.reset_states() and ._states, as people call them."""
    elmo, ids = Elmo(*files, 1, dropout=0.0), batch_to_ids([["a", "b"], ["c"]])
    first = elmo(ids)["elmo_representations"][0]
    assert [tuple(s.shape) for s in elmo._elmo_lstm._elmo_lstm._states] == [(2, 2, 16), (2, 2, 48)]
    elmo._elmo_lstm._elmo_lstm.reset_states()
    assert torch.equal(elmo(ids)["elmo_representations"][0], first)
    elmo._elmo_lstm._elmo_lstm.stateful = False
    assert torch.equal(elmo(ids)["elmo_representations"][0], first)


def test_embedder_keeps_the_size_of_its_empty_array(files):
    embedder = ElmoEmbedder(options_file=str(files[0]), weight_file=str(files[1]))
    assert embedder.embed_sentence([]).shape == (3, 0, 1024)
    assert [a.shape for a in embedder.embed_sentences([["a", "b"], []])] == [(3, 2, 16), (3, 0, 1024)]
    activations, mask = embedder.batch_to_embeddings([["a", "b"], ["c"]])
    assert activations.shape == (2, 3, 2, 16)
    assert mask.tolist() == [[True, True], [True, False]]
    assert embedder.cuda_device == -1


class Params:
    """The least of allennlp.common.Params."""

    def __init__(self, values):
        self.params = values

    def keys(self):
        return self.params.keys()

    def pop(self, key):
        return self.params.pop(key)


@pytest.mark.parametrize("kind", [dict, Params])
def test_from_params(files, kind):
    options_file, weight_file = files
    values = {
        "type": "elmo_token_embedder",
        "options_file": options_file,
        "weight_file": weight_file,
        "projection_dim": 20,
    }
    arguments = kind(dict(values))
    embedder = ElmoTokenEmbedder.from_params(vocab=None, params=arguments)
    assert embedder.get_output_dim() == 20
    words = torch.zeros(1, 2, 50).long()
    words[0, :, :4] = torch.tensor([[6, 5, 4, 3], [3, 2, 1, 0]])
    assert embedder(words).shape == (1, 2, 20)
    assert embedder(words[:, :, None]).shape == (1, 2, 1, 20)
    if kind is dict:
        assert arguments == values
    else:
        assert not arguments.params
    assert ElmoTokenEmbedder.from_params(kind(dict(values))).get_output_dim() == 20
    elmo = Elmo.from_params(
        kind({"options_file": options_file, "weight_file": weight_file}), num_output_representations=2
    )
    assert len(elmo(words)["elmo_representations"]) == 2
    with pytest.raises(TypeError, match="no_such"):
        ElmoTokenEmbedder.from_params(kind({"options_file": options_file, "weight_file": weight_file, "no_such": 1}))


def test_from_params_caches_a_namespace(files):
    vocabulary = types.SimpleNamespace(get_token_to_index_vocabulary=lambda namespace: {"@@PADDING@@": 0, namespace: 1})
    params = {"options_file": files[0], "weight_file": files[1], "namespace_to_cache": "words"}
    embedder = ElmoTokenEmbedder.from_params(vocabulary, params)
    assert embedder._elmo._elmo_lstm._word_embedding.weight.shape == (2, 8)
    with pytest.raises(ConfigurationError, match="needs the vocab"):
        ElmoTokenEmbedder.from_params(vocab=None, params=params)


def test_whole_softmax_of_both_losses_agrees():
    sampled, whole = SampledSoftmaxLoss(10000, 12, 40).eval(), SoftmaxLoss(10000, 12).eval()
    sampled.softmax_w.data, sampled.softmax_b.data = whole.softmax_w.t(), whole.softmax_b
    hidden, targets = torch.rand(100, 12), torch.randint(0, 1000, (100,))
    assert sampled(hidden, targets).item() == pytest.approx(whole(hidden, targets).item(), rel=1e-6)


def test_sorting_by_length_and_back():
    rows = torch.rand(5, 7, 3)
    lengths = get_lengths_from_binary_sequence_mask(torch.arange(7) < torch.tensor([7, 6, 0, 2, 0])[:, None])
    ordered, falling, restoration, order = sort_batch_by_length(rows, lengths)
    assert order.tolist() == [0, 1, 3, 2, 4]
    assert falling.tolist() == [7, 6, 2, 0, 0]
    assert torch.equal(ordered.index_select(0, restoration), rows)
