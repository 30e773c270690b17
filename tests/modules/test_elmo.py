"""Elmo and its wrappers: shapes, mixes, dropout, boundaries, more dimensions, fine-tuning, compiling."""

import numpy as np
import pytest
import torch
from torch.nn.utils.rnn import pack_padded_sequence
from torch.utils.checkpoint import checkpoint

from elmo_fast import BiLM, Elmo, ElmoTokenEmbedder, ScalarMix
from elmo_fast.checkpoints import read_options
from elmo_fast.errors import CheckpointError, ElmoFastError
from elmo_fast.modules.boundaries import remove_sentence_boundaries
from elmo_fast.text import Vocabulary, batch_to_ids
from tests.modules.conftest import BATCHES
from tests.support.bilm_numpy import BilmNumpy
from tests.support.weights import make_weights

SENTENCES = [["The", "sentence", "."], ["ELMo", "helps", "disambiguate", "ELMo", "from", "Elmo", "."]]


def test_mixes_of_the_judges_layers(files):
    """Two mixes of different weights over carried batches; rows past each sentence are zeros; the mask is bool."""
    options_file, weight_file = files()
    elmo, judge = Elmo(options_file, weight_file, 2, dropout=0.0), BilmNumpy(options_file, weight_file)
    for k, weight in enumerate((0.5, -1.0, 2.0)):
        elmo.scalar_mix_1.scalar_parameters[k].data[0] = weight
    elmo.scalar_mix_1.gamma.data[0] = 3.0
    softmax = np.exp([0.5, -1.0, 2.0]) / np.exp([0.5, -1.0, 2.0]).sum()
    for batch in BATCHES:
        output = elmo(batch_to_ids(batch))
        assert output["mask"].dtype == torch.bool
        assert output["mask"].sum(dim=1).tolist() == [len(sentence) for sentence in batch]
        for row, layers in enumerate(judge.embed(batch)):
            even, other = (r[row].detach().numpy() for r in output["elmo_representations"])
            words = layers.shape[1]
            np.testing.assert_allclose(even[:words], layers.mean(axis=0), rtol=2e-6, atol=2e-6)
            truth = 3 * np.tensordot(softmax, layers, 1)
            np.testing.assert_allclose(other[:words], truth, rtol=2e-6, atol=6e-6)
            assert not even[words:].any()


def test_sentence_boundaries_kept(files):
    options_file, weight_file = files()
    ids = batch_to_ids(SENTENCES)
    with_boundaries = Elmo(options_file, weight_file, 1, dropout=0.0, keep_sentence_boundaries=True)(ids)
    inner = Elmo(options_file, weight_file, 1, dropout=0.0)(ids)
    assert with_boundaries["elmo_representations"][0].shape == (2, 9, 16)
    assert with_boundaries["mask"].sum(dim=1).tolist() == [5, 9]
    removed, mask = remove_sentence_boundaries(with_boundaries["elmo_representations"][0], with_boundaries["mask"])
    assert torch.equal(removed, inner["elmo_representations"][0])
    assert torch.equal(mask, inner["mask"])


@pytest.mark.parametrize("statistics", ["allennlp", "bilm"])
def test_layer_norm_statistics(files, statistics):
    """AllenNLP normalises with BOS and EOS among the elements, bilm-tf without: each against float64."""
    options_file, weight_file = files()
    elmo = Elmo(options_file, weight_file, 1, do_layer_norm=True, dropout=0.0, statistics=statistics)
    mixed = elmo(batch_to_ids(SENTENCES))["elmo_representations"][0].detach().numpy()
    layers, lengths = BilmNumpy(options_file, weight_file).embed_with_boundaries(SENTENCES)
    cut = 0 if statistics == "allennlp" else 1
    total = 0
    for layer in layers:
        counted = np.concatenate([layer[row, cut : n - cut] for row, n in enumerate(lengths)])
        total = total + (layer - counted.mean()) / np.sqrt(counted.var() + 1e-12) / 3
    for row, n in enumerate(lengths):
        np.testing.assert_allclose(mixed[row, : n - 2], total[row, 1 : n - 1], rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("boundaries", [False, True])
def test_dropout_comes_after_mixing(files, boundaries):
    """Kept elements are those of the mix, doubled; each representation has its own mask; none when not training."""
    options_file, weight_file = files()
    ids = batch_to_ids(SENTENCES)
    settings = {"keep_sentence_boundaries": boundaries, "stateful": False}
    expected = Elmo(options_file, weight_file, 1, dropout=0.0, **settings).eval()(ids)["elmo_representations"][0]
    elmo = Elmo(options_file, weight_file, 2, **settings)
    first, second = elmo(ids)["elmo_representations"]
    nonzero = first != 0
    torch.testing.assert_close(first[nonzero], 2 * expected[nonzero])
    assert 0.3 < nonzero[expected != 0].float().mean() < 0.7
    assert not torch.equal(nonzero, second != 0)
    torch.testing.assert_close(elmo.eval()(ids)["elmo_representations"][1], expected)


@pytest.mark.parametrize("cached", [False, True])
def test_more_dimensions_equal_one_batch_each(files, cached):
    """[2, 3, T, 50] runs as 6 sentences, and so do indices of cached words, which count only with a vocabulary."""
    words = ["@@PADDING@@", "This", "is", "a", "sentence"]
    elmo = Elmo(*files(), 2, dropout=0.0, stateful=False, vocab_to_cache=words if cached else None)
    groups = [[words[1:], ["is"]], [["a", "sentence"], words[1:]], [["is"], words[:0:-1]]]
    ids = torch.stack([batch_to_ids(group) for group in groups], dim=1)
    indices = torch.zeros(2, 3, 4, dtype=torch.int64)
    for k, group in enumerate(groups):
        for row, sentence in enumerate(group):
            indices[row, k, : len(sentence)] = torch.tensor([words.index(word) for word in sentence])
    together = elmo(torch.zeros_like(ids) if cached else ids, indices)
    assert together["mask"].shape == (2, 3, 4)
    for k, group in enumerate(groups):
        alone = elmo(batch_to_ids(group))
        for actual, expected in zip(together["elmo_representations"], alone["elmo_representations"], strict=True):
            torch.testing.assert_close(actual[:, k], expected, rtol=1e-6, atol=1e-6)
        assert torch.equal(together["mask"][:, k], alone["mask"])


def test_a_module_in_place_of_files(files):
    bilm = BiLM(*files())
    elmo = Elmo(None, None, 2, dropout=0.0, module=bilm)
    assert elmo._elmo_lstm is bilm
    assert [tuple(r.shape) for r in elmo(batch_to_ids(SENTENCES))["elmo_representations"]] == [(2, 7, 16)] * 2
    with pytest.raises(ElmoFastError, match="module replaces"):
        Elmo(*files(), 1, module=bilm)
    with pytest.raises(ElmoFastError, match="give model, or options_file and weight_file; got options_file=None"):
        Elmo(None, None, 1)


def test_options_alone_give_random_weights_by_the_seed(files, tmp_path):
    """AllenNLP's Elmo(options, None): equal to an Elmo of the ElmoOptions; a biLM of word ids finds its vocab.txt."""
    options_file, weight_file = files()
    ids, made = batch_to_ids(SENTENCES), []
    for options in (str(options_file), read_options(options_file)):
        torch.manual_seed(1)
        made.append(Elmo(options, None, 1, dropout=0.0)(ids)["elmo_representations"][0])
    assert torch.equal(made[0], made[1])
    assert not torch.equal(made[0], Elmo(options_file, weight_file, 1, dropout=0.0)(ids)["elmo_representations"][0])

    options_file, _ = make_weights(tmp_path, words=4)
    Vocabulary(["<S>", "</S>", "<UNK>", "cat"]).write(tmp_path / "vocab.txt")
    elmo = Elmo(options_file, None, 1)
    assert elmo(elmo.batch_to_ids([["cat"]]))["elmo_representations"][0].shape == (1, 1, 16)
    with pytest.raises(CheckpointError, match="absent"):
        Elmo("absent", None, 1)


def test_a_call_with_too_few_arguments_names_the_way(files):
    """The advice is taken by the last lines; a count of mixes that is none is refused, and 0 is AllenNLP's."""
    advice = r"for a model by its name or folder, write Elmo\.from_pretrained\('mini'\)"
    with pytest.raises(ElmoFastError, match=rf"^Elmo: missing a required argument: 'weight_file'; {advice}$"):
        Elmo("mini")
    with pytest.raises(ElmoFastError, match=r"^ElmoTokenEmbedder: .* argument: 'weight_file'; .* None as weight_file$"):
        ElmoTokenEmbedder(options_file="mini")
    for number in (-1, None, "1"):
        with pytest.raises(
            ElmoFastError, match="num_output_representations must be the number of mixes, usually 1; got"
        ):
            Elmo(*files(), number)
    assert ElmoTokenEmbedder("mini", None).get_output_dim() == 256
    assert Elmo(*files(), 0)(batch_to_ids(SENTENCES))["elmo_representations"] == []


IDS, VECTORS = batch_to_ids(SENTENCES), torch.randn(2, 7, 8)
MASK = torch.ones(2, 7, dtype=torch.bool)
# Module -> a call of it with x for one of its tensors, and such a tensor.
CALLS = {
    "Elmo": (lambda elmo, x: elmo(x), IDS),
    "Elmo, word_inputs": (lambda elmo, x: elmo(IDS, x), torch.ones(2, 7, dtype=torch.int64)),
    "ElmoTokenEmbedder": (lambda elmo, x: ElmoTokenEmbedder(None, None, module=elmo._elmo_lstm)(x), IDS),
    "BiLM": (lambda elmo, x: elmo._elmo_lstm(x, stateful=False), IDS),
    "BiLM, graphs": (lambda elmo, x: BiLM("mini", cuda_graphs=True)(x), IDS),
    "CharacterEncoder": (lambda elmo, x: elmo._elmo_lstm.encoder(x), IDS),
    "ElmoLstm": (lambda elmo, x: elmo._elmo_lstm._elmo_lstm(x, MASK, stateful=False), VECTORS),
    "ElmoLstm, mask": (lambda elmo, x: elmo._elmo_lstm._elmo_lstm(VECTORS, x, stateful=False), MASK),
    "ProjectedLSTM": (lambda elmo, x: elmo._elmo_lstm._elmo_lstm.forward_layer_0(x), VECTORS),
    "ScalarMix": (lambda elmo, x: elmo.scalar_mix_0([x, x, x]), VECTORS),
    "ScalarMix, mask": (lambda elmo, x: ScalarMix(1, do_layer_norm=True)([VECTORS], x), MASK),
}


@pytest.mark.parametrize("module", CALLS)
def test_what_is_no_tensor_is_refused_in_a_sentence(files, module):
    elmo = Elmo(*files(), 1, dropout=0.0, vocab_to_cache=["The"])
    call, tensor = CALLS[module]
    call(elmo, tensor)
    packed = pack_padded_sequence(tensor, [7, 3], batch_first=True)
    for other, message in (
        (tensor.numpy(), r"got ndarray: pass torch.from_numpy\(array\)"),
        (packed, "got PackedSequence: pass the padded tensor that torch.nn.utils.rnn.pad_packed_sequence returns"),
        (tensor.tolist(), "got list"),
    ):
        with pytest.raises(ElmoFastError, match=f"must be a tensor.*{message}"):
            call(elmo, other)


@pytest.mark.parametrize("requires_grad", [True, False])
def test_fine_tuning_reaches_everything_or_only_the_mixes(files, requires_grad):
    embedder = ElmoTokenEmbedder(*files(), requires_grad=requires_grad)
    embedder(torch.randint(1, 262, (3, 4, 50))).square().sum().backward()
    for name, parameter in embedder.named_parameters():
        reached = parameter.grad is not None and bool(parameter.grad.any())
        assert reached == (requires_grad or "_elmo_lstm" not in name), name


@pytest.mark.parametrize(("mixes", "boundaries", "training"), [(1, False, True), (2, True, False), (2, False, True)])
def test_outputs_may_be_changed_in_place(files, mixes, boundaries, training):
    """Each is a tensor of its own, as in AllenNLP, and its gradient is that of a copy."""
    elmo = Elmo(*files(), mixes, True, dropout=0.0, keep_sentence_boundaries=boundaries, stateful=False).train(training)

    def gradients(change):
        elmo.zero_grad()
        outputs = elmo(batch_to_ids(SENTENCES))["elmo_representations"]
        torch.cat([change(each) for each in outputs]).square().sum().backward()
        return [parameter.grad.clone() for parameter in elmo.parameters() if parameter.grad is not None]

    in_place, apart = (
        gradients(lambda x: x.mul_(2).masked_fill_(x > 0.5, 0)),
        gradients(lambda x: (2 * x).where(2 * x <= 0.5, 0)),
    )
    for actual, expected in zip(in_place, apart, strict=True):
        torch.testing.assert_close(actual, expected)
    layers = elmo._elmo_lstm(batch_to_ids(SENTENCES))["activations"]
    assert [layer.add_(1).sum().requires_grad for layer in layers] == [True] * 3


@pytest.mark.parametrize("reentrant", [False, True])
def test_a_stateful_call_within_a_backward_pass_is_refused(files, reentrant):
    """Recomputing it would begin at the state after the batch: wrong gradients, and a state carried on twice."""

    def gradients(stateful, forward):
        elmo = Elmo(*files(), 1, True, dropout=0.0, stateful=stateful)
        ids, one = batch_to_ids(SENTENCES), torch.ones(1, requires_grad=True)
        forward(lambda ids, one: elmo(ids)["elmo_representations"][0] * one, ids, one).square().sum().backward()
        return torch.cat([parameter.grad.flatten() for parameter in elmo.parameters()])

    def recomputed(*arguments):
        return checkpoint(*arguments, use_reentrant=reentrant)

    assert torch.equal(gradients(False, recomputed), gradients(False, lambda run, *arguments: run(*arguments)))
    with pytest.raises(ElmoFastError, match=r"within a backward pass .* make it with stateful=False"):
        gradients(True, recomputed)


def test_token_embedder_and_its_projection(files):
    options_file, weight_file = files()
    plain, projected = (
        ElmoTokenEmbedder(options_file, weight_file, projection_dim=width, stateful=False).eval()
        for width in (None, 20)
    )
    assert (plain.get_output_dim(), projected.get_output_dim()) == (16, 20)
    ids = batch_to_ids(SENTENCES)[:, None]
    vectors = plain(ids)
    assert vectors.shape == (2, 1, 7, 16)
    torch.testing.assert_close(projected(ids), projected._projection(vectors), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("stateful", [False, True])
@pytest.mark.filterwarnings("ignore:.torch.jit.script_method. is deprecated")  # torch says it of itself, with a GPU
def test_compiles_without_a_graph_break(files, stateful):
    """torch.compile(fullgraph=True) of Elmo: outputs, carried states and gradients as without."""
    torch._dynamo.reset()
    options_file, weight_file = files(layers=1)
    settings = {"requires_grad": True, "dropout": 0.0, "stateful": stateful}
    plain, elmo = (Elmo(options_file, weight_file, 2, **settings) for _ in range(2))
    compiled = torch.compile(elmo, fullgraph=True, backend="aot_eager")
    ids = batch_to_ids(SENTENCES)
    for _ in range(2):
        actual, expected = compiled(ids), plain(ids)
        loss = 0
        assert torch.equal(actual["mask"], expected["mask"])
        for a, b in zip(actual["elmo_representations"], expected["elmo_representations"], strict=True):
            torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)
            loss = loss + a.square().sum() + b.square().sum()
        loss.backward()
    for (name, actual), expected in zip(elmo.named_parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(actual.grad, expected.grad, rtol=1e-4, atol=1e-5, msg=name)
    assert (elmo._elmo_lstm._elmo_lstm._states is not None) == stateful
