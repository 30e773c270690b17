"""A biLM's pass replayed from a graph: the same vectors and the same carried state as without. On a GPU the graphs are
real; without one, a stand-in runs the captured function again on the same inputs."""

import copy
import pickle

import pytest
import torch

from elmo_fast import batch_to_ids
from elmo_fast.modules import BiLM
from elmo_fast.modules._graph_replay import SENTENCES, WORDS, GraphReplay, rounded_up
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
            padded = stateful or (rounded_up(ids.shape[0], SENTENCES), rounded_up(ids.shape[1], WORDS)) != ids.shape[:2]
            assert_alike(f"{turn}, {batch}", *results[:2], lambda result=results[2]: result, "float32", padded)
        assert len(models[0]._graph_replay.graphs) == 4  # none of the older weights
        if stateful:
            *both, right = (model._elmo_lstm._states for model in models)
            assert_alike("states", *both, lambda result=right: result, "float32", True)
        with torch.no_grad():
            for model in models:
                model._elmo_lstm.forward_layers[0].state_linearity.weight.mul_(0.5)


def test_results_are_not_overwritten_by_the_next_call(files):
    model = BiLM(*files(), stateful=False, cuda_graphs=True).eval()
    model._graph_replay = Always()
    ids = batch_to_ids(BATCHES[0])
    with torch.inference_mode():
        model(ids), model(ids)
    with torch.no_grad():
        first = model(ids)["activations"]
        kept = [layer.clone() for layer in first]
        model(batch_to_ids([["other", "words", "here"], ["x"]]))  # of the same bucket
    assert len(model._graph_replay.graphs) == 1
    assert all(torch.equal(a, b) for a, b in zip(first, kept, strict=True))


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
    assert not GraphReplay().serves(model, model._elmo_lstm, ids)
    with torch.no_grad():
        assert GraphReplay().serves(model, model._elmo_lstm, ids) == cuda_graphs


def test_the_cpu_is_served_by_no_graph(files):
    model = BiLM(*files(), cuda_graphs=True)
    with torch.no_grad():
        assert not GraphReplay().serves(model, model._elmo_lstm, batch_to_ids(BATCHES[0]))


def test_sizes_are_rounded_up():
    """To powers of two, then multiples; never less than asked for."""
    assert [rounded_up(n, 8) for n in (1, 2, 3, 5, 8, 9, 16, 17)] == [1, 2, 4, 8, 8, 16, 16, 24]
