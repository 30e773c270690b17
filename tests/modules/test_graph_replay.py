"""A biLM's pass replayed from a graph: the same vectors and the same carried state as without. On a GPU the graphs are
real; without one, a stand-in runs the captured function again on the same inputs."""

import collections
import copy
import pickle

import numpy as np
import pytest
import torch

from elmo_fast import batch_to_ids
from elmo_fast.embed.sentence_vectors import GPU_BATCH_SIZE, GPU_TOKENS, WINDOW, batches
from elmo_fast.modules import BiLM, _graph_replay
from elmo_fast.modules._graph_replay import GraphReplay, padded_rows, padded_words
from elmo_fast.ops import _graphs, _triton, _weights
from tests.backends import HAS_CUDA
from tests.ops.graph_cases import again, assert_alike

BATCHES = (
    [["The", "cat", "sat"], ["naïve"]],
    [["a", "b", "c", "d"], [], ["x" * 60]],
    [["sat"]],
    [["The", "cat", "sat", "on", "the", "mat", "a", "b", "c"], ["one"]],
)


class Always(GraphReplay):
    """Graphs, stood in for where there is no GPU, whatever the device."""

    def __init__(self):
        super().__init__(_graphs.capture if HAS_CUDA else again)

    def serves(self, model, lstm, inputs):
        return inputs.numel() > 0


@pytest.mark.parametrize("stateful", [True, False])
def test_replays_equal_the_pass_itself(files, stateful):
    """Batches of several sizes in turn, states carried, weights changed between: alike."""
    device = torch.device("cuda" if HAS_CUDA else "cpu")
    models = [BiLM(*files(), stateful=stateful, cuda_graphs=not i).to(device).eval() for i in range(2)]
    models.append(BiLM(*files(), stateful=stateful).double().eval())  # on the CPU: the truth
    models[0]._graph_replay = Always()
    for turn in range(2):
        for batch in (*BATCHES, *BATCHES):  # the first time without a graph
            ids = batch_to_ids(batch).to(device)
            with torch.no_grad():
                actual, expected, truth = (
                    model(each) for model, each in zip(models, (ids, ids, ids.cpu()), strict=True)
                )
            assert torch.equal(actual["mask"], expected["mask"])
            results = [result["activations"] for result in (actual, expected, truth)]
            # Carried states keep what a padded bucket has changed.
            padded = stateful or (padded_rows(ids.shape[0]), padded_words(ids.shape[1])) != ids.shape[:2]
            assert_alike(f"{turn}, {batch}", *results[:2], lambda result=results[2]: result, "float32", padded)
        assert len(models[0]._graph_replay.graphs) == 4  # none of the older weights
        if stateful:
            *both, right = (model._elmo_lstm._states for model in models)
            assert_alike("states", *both, lambda result=right: result, "float32", True)
        with torch.no_grad():
            for model in models:
                model._elmo_lstm.forward_layers[0].state_linearity.weight.mul_(0.5)


@pytest.mark.parametrize("stateful", [True, False])
def test_replays_of_distinct_words_equal_the_pass_over_ids(files, stateful):
    """Sentences of other words, sizes and states in turn; each graph serves several."""
    model, plain = (BiLM(*files(), stateful=stateful, cuda_graphs=True).eval() for _ in range(2))
    model._graph_replay = Always()
    with torch.no_grad():
        for batch in [*BATCHES, [["an", "other", "cat"], ["mat"]]] * 3:
            distinct, numbers = model.encoder.distinct(batch)
            actual, expected = model.forward_distinct(distinct, numbers, stateful=stateful), plain(batch_to_ids(batch))
            for layer, other in zip(actual, expected["activations"], strict=True):
                torch.testing.assert_close(layer, other, rtol=1e-5, atol=1e-6)
            assert torch.equal(numbers > 0, expected["mask"])
    assert len(model._graph_replay.graphs) < 5


def test_results_are_not_overwritten_by_the_next_call(files):
    model = BiLM(*files(), stateful=False, cuda_graphs=True).eval()
    model._graph_replay = Always()
    ids = batch_to_ids(BATCHES[0])
    with torch.inference_mode():
        model(ids), model(ids)
    with torch.no_grad():
        first = model(ids)["activations"]
        copies = [layer.clone() for layer in first]
        model(batch_to_ids([["other", "words", "here"], ["x"]]))  # of the same bucket
    assert len(model._graph_replay.graphs) == 1
    assert all(torch.equal(a, b) for a, b in zip(first, copies, strict=True))


def test_dropped_copies_and_copied_models_capture_anew(files):
    model = BiLM(*files(), cuda_graphs=True).eval()
    model._graph_replay = Always()
    ids = batch_to_ids(BATCHES[0])
    with torch.no_grad():
        counts = [(model(ids), len(model._graph_replay.graphs))[1] for _ in range(2)]
        _weights.clear_packed()
        counts += [(model(ids), len(model._graph_replay.graphs))[1] for _ in range(2)]
    assert counts == [0, 1, 0, 1]
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert len(twin._graph_replay.graphs) == 0


@pytest.mark.parametrize("cuda_graphs", [False, True])
def test_only_passes_without_gradients_that_ask_for_it_are_captured(files, monkeypatch, cuda_graphs):
    """A GPU in name: nothing else keeps a pass from a graph."""
    model, ids = BiLM(*files(), requires_grad=True, cuda_graphs=cuda_graphs), batch_to_ids(BATCHES[0])
    monkeypatch.setattr(_graphs, "enabled", lambda device: True)
    monkeypatch.setattr(_triton, "unsupported", lambda *arguments: None)
    passes = [0, 0]
    monkeypatch.setattr(_graphs.Graphs, "run", lambda *_: passes.__setitem__(torch.is_grad_enabled(), 1))
    model(ids)
    with torch.no_grad():
        model(ids)
    assert passes == [cuda_graphs, 0]


def test_the_cpu_is_served_by_no_graph(files):
    model = BiLM(*files(), cuda_graphs=True)
    with torch.no_grad():
        assert not GraphReplay().serves(model, model.lstm, batch_to_ids(BATCHES[0]))


def test_sizes_are_rounded_up():
    """To powers of two, then multiples; never less than asked for."""
    words = (1, 2, 3, 5, 8, 9, 17, 64, 65, 80, 81, 128, 129, 257)
    assert [padded_words(n) for n in words] == [1, 2, 4, 8, 8, 12, 20, 64, 80, 80, 96, 128, 160, 320]
    assert [padded_rows(n) for n in (1, 3, 63, 64, 65, 682, 1024)] == [1, 4, 64, 64, 128, 704, 1024]


def test_a_corpus_makes_few_sizes():
    """65,536 sentences as long as a newspaper's: few graphs serve all batches but the first of each size."""
    random = np.random.default_rng(0)
    lengths = np.clip(random.lognormal(3, 0.55, 65_536).round(), 1, 200).astype(int)
    cut = batches(
        [["w"] * length for length in lengths],
        batch_size=GPU_BATCH_SIZE,
        max_tokens=GPU_TOKENS,
        window=WINDOW,
        padded=padded_words,
    )
    sizes = collections.Counter(
        (padded_rows(len(batch.sentences)), padded_words(max(map(len, batch.sentences)))) for batch in cut
    )
    assert len(sizes) <= 20
    assert max(rows * words for rows, words in sizes) <= 2 * GPU_TOKENS
    assert sum(rows * words * count for (rows, words), count in sizes.items()) < 1.3 * lengths.sum()


def wrapped(model):
    """The same memory and version in another Parameter, twice: the id and address of the first may come back."""
    for _ in range(2):
        for layer in model.modules():
            for name, weight in list(layer._parameters.items()):
                if weight is not None:
                    layer._parameters[name] = torch.nn.Parameter(weight.data, requires_grad=False)
                    while layer._parameters[name]._version < weight._version:
                        layer._parameters[name].mul_(0.5)


def normalized(model):
    torch.nn.utils.parametrizations.weight_norm(model._token_embedder._projection)


def shared(model):
    """A second Parameter on the memory of a weight, which writes without its counter."""
    weight = model._token_embedder._projection.weight
    model.other = [torch.nn.Parameter(weight.data)]
    with torch.no_grad():
        model.other[0].mul_(0.5)


def clipped(model):
    for layer in (*model._elmo_lstm.forward_layers, *model._elmo_lstm.backward_layers):
        layer.state_projection_clip_value = 0.01


@pytest.mark.parametrize(
    "change", [wrapped, shared, clipped, lambda model: setattr(model.lstm, "precision", "bfloat16")]
)
def test_graphs_of_other_tensors_or_settings_are_not_replayed(files, change):
    model = BiLM(*files(), stateful=False, cuda_graphs=True).eval()
    model._graph_replay = Always()
    ids = batch_to_ids(BATCHES[0])
    with torch.no_grad():
        for _ in range(2):
            model(ids)
        assert len(model._graph_replay.graphs) == 1
        change(model)
        captured = [each for held in model._graph_replay.graphs._held.values() for each in held.entries.values()]
        replays = [each._replace(replay=lambda: pytest.fail("a graph of before was replayed")) for each in captured]
        for held in model._graph_replay.graphs._held.values():
            held.entries.update(zip(held.entries, replays, strict=True))
        expected = torch.stack(copy.deepcopy(model)(ids)["activations"])
        assert torch.equal(torch.stack(model(ids)["activations"]), expected)


def test_a_pass_under_autocast_and_one_outside_have_graphs_of_their_own(files):
    model = BiLM(*files(), stateful=False, cuda_graphs=True).eval()
    model._graph_replay = Always()
    ids = batch_to_ids(BATCHES[0])
    with torch.no_grad():
        expected = torch.stack(model(ids)["activations"])
        for _ in range(3):
            with torch.autocast("cpu", torch.bfloat16):
                rounded = torch.stack(model(ids)["activations"])
            assert torch.equal(torch.stack(model(ids)["activations"]), expected)
            assert not torch.equal(rounded, expected)
    assert len(model._graph_replay.graphs) == 2


def test_a_graph_without_carried_state_holds_none(files):
    """State in and out is larger than all layers together at the original size."""
    held = {}
    for stateful in (True, False):
        model = BiLM(*files(), stateful=stateful, cuda_graphs=True).eval()
        model._graph_replay = Always()
        with torch.no_grad():
            model(batch_to_ids(BATCHES[0])), model(batch_to_ids(BATCHES[0]))
        (entry,) = [each for held in model._graph_replay.graphs._held.values() for each in held.entries.values()]
        held[stateful] = len(entry.inputs), len(entry.outputs)
    assert held == {True: (4, 4), False: (2, 2)}


def test_weights_that_are_computed_have_no_graph(files, monkeypatch):
    """A parametrization may read anything, at any address."""
    model, ids = BiLM(*files(), cuda_graphs=True), batch_to_ids(BATCHES[0])
    monkeypatch.setattr(_graphs, "enabled", lambda device: True)
    monkeypatch.setattr(_triton, "unsupported", lambda *arguments: None)
    with torch.no_grad():
        assert GraphReplay().serves(model, model.lstm, ids)
        assert _graph_replay._tensors(model) is not None
        for change in (normalized, lambda model: model._elmo_lstm.register_forward_hook(lambda *_: None)):
            other = copy.deepcopy(model)
            change(other)
            assert _graph_replay._tensors(other) is None
