"""A biLM's pass replayed from a CUDA graph: the same vectors and the same carried state as without."""

import copy
import pickle

import pytest
import torch

from elmo_fast import BiLM, batch_to_ids, ops
from elmo_fast.modules._graph_replay import padded_rows, padded_words
from tests.ops.graph_cases import DEVICE, needs_graphs
from tests.support.tolerances import assert_no_worse

BATCHES = (
    [["The", "cat", "sat"], ["naïve"]],
    [["a", "b", "c", "d"], [], ["x" * 60]],
    [["sat"]],
    [["The", "cat", "sat", "on", "the", "mat", "a", "b", "c"], ["one"]],
)


def assert_alike(name, replayed, launched, truth, padded):
    """The same bits. Where a graph is larger than the call (`padded`) a GPU's libraries see products of other sizes,
    whose sums may have another order: there both are held to float64."""
    for i, (actual, expected, right) in enumerate(zip(replayed, launched, truth, strict=True)):
        if padded:
            assert_no_worse(f"{name}, result {i}", actual.cpu(), expected.cpu(), right, "float32")
        else:
            assert torch.equal(actual, expected), name


def bilm(files, **options):
    """A biLM on the GPU, with graphs."""
    return BiLM(*files(), cuda_graphs=True, **options).to(DEVICE).eval()


def ids_of(batch):
    return batch_to_ids(batch).to(DEVICE)


@needs_graphs
@pytest.mark.parametrize("stateful", [True, False])
def test_replays_equal_the_pass_itself(files, seen, stateful):
    """Batches of several sizes in turn, states carried, weights changed between: alike."""
    models = [bilm(files, stateful=stateful), BiLM(*files(), stateful=stateful).to(DEVICE).eval()]
    models.append(BiLM(*files(), stateful=stateful).double().eval())  # on the CPU: the truth
    for turn, some in enumerate((BATCHES, BATCHES[:2])):
        for batch in (*some, *some):  # the first time without a graph
            ids = ids_of(batch)
            with torch.no_grad():
                actual, expected, truth = (
                    model(each) for model, each in zip(models, (ids, ids, ids.cpu()), strict=True)
                )
            assert torch.equal(actual["mask"], expected["mask"])
            results = [result["activations"] for result in (actual, expected, truth)]
            # Carried states keep what a padded bucket has changed.
            padded = stateful or (padded_rows(ids.shape[0]), padded_words(ids.shape[1])) != ids.shape[:2]
            assert_alike(f"{turn}, {batch}", *results, padded)
        assert len(models[0]._graphs) == len(some)  # none of the older weights
        if stateful:
            assert_alike("states", *(model._elmo_lstm._states for model in models), True)
        with torch.no_grad():
            for model in models:
                model._elmo_lstm.forward_layers[0].state_linearity.weight.mul_(0.5)


@needs_graphs
@pytest.mark.parametrize("stateful", [True, False])
def test_replays_of_distinct_words_equal_the_pass_over_ids(files, seen, stateful):
    """Sentences of other words, sizes and states in turn; each graph serves several."""
    model, plain = bilm(files, stateful=stateful), BiLM(*files(), stateful=stateful).to(DEVICE).eval()
    with torch.no_grad():
        for batch in [*BATCHES, [["an", "other", "cat"], ["mat"]]] * 3:
            distinct, numbers = (each.to(DEVICE) for each in model.encoder.distinct(batch))
            actual, expected = model.forward_distinct(distinct, numbers, stateful=stateful), plain(ids_of(batch))
            for layer, other in zip(actual, expected["activations"], strict=True):
                torch.testing.assert_close(layer, other, rtol=1e-5, atol=1e-6)
            assert torch.equal(numbers > 0, expected["mask"])
    assert seen.replays > 5
    assert len(model._graphs) < 5


@needs_graphs
def test_batches_of_one_size_each_get_their_own_vectors(files, seen):
    """A replay reads the words that it is given, not those of the batch that was captured, and its results last."""
    model, eager = bilm(files, stateful=False), BiLM(*files(), stateful=False).to(DEVICE).eval()
    batches = [[["The", "cat", "sat"], ["naïve"]], [["other", "words", "here"], ["x"]], [["a"], ["b", "c", "d", "e"]]]
    with torch.no_grad():
        for inference in (True, False):  # the graph is captured in the first
            with torch.inference_mode(inference):
                actual = [model(ids_of(batch))["activations"] for batch in batches * 2]
        expected = [eager(ids_of(batch))["activations"] for batch in batches * 2]
    assert (len(seen.begun), seen.replays) == (1, 11)
    for i, (replayed, launched) in enumerate(zip(actual, expected, strict=True)):
        torch.testing.assert_close(torch.stack(replayed), torch.stack(launched), rtol=1e-5, atol=1e-6, msg=f"batch {i}")


@needs_graphs
def test_dropped_copies_and_copied_models_capture_anew(files, seen):
    model, ids = bilm(files), ids_of(BATCHES[0])
    with torch.no_grad():
        counts = [(model(ids), len(model._graphs))[1] for _ in range(2)]
        ops.refresh_weights()
        counts += [(model(ids), len(model._graphs))[1] for _ in range(2)]
    assert counts == [0, 1, 0, 1]
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert len(twin._graphs) == 0


@needs_graphs
@pytest.mark.parametrize("cuda_graphs", [False, True])
def test_only_passes_without_gradients_that_ask_for_it_are_captured(files, seen, cuda_graphs):
    model = BiLM(*files(), requires_grad=True, cuda_graphs=cuda_graphs).to(DEVICE)
    for _ in range(3):
        model(ids_of(BATCHES[0]))
    assert not seen.begun
    with torch.no_grad():
        for _ in range(3):
            model(ids_of(BATCHES[0]))
    assert len(seen.begun) == cuda_graphs


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


def clipped(model):
    for layer in (*model._elmo_lstm.forward_layers, *model._elmo_lstm.backward_layers):
        layer.state_projection_clip_value = 0.01


@needs_graphs
@pytest.mark.parametrize("change", [wrapped, clipped, lambda model: setattr(model.lstm, "precision", "float16")])
def test_graphs_of_other_tensors_or_settings_are_not_replayed(files, seen, change):
    model, ids = bilm(files, stateful=False), ids_of(BATCHES[0])
    with torch.no_grad():
        for _ in range(2):
            model(ids)
        assert (len(seen.begun), seen.replays) == (1, 1)
        change(model)
        expected = torch.stack(copy.deepcopy(model)(ids)["activations"])
        assert torch.equal(torch.stack(model(ids)["activations"]), expected)
    assert seen.replays == 1


@needs_graphs
def test_a_pass_under_autocast_and_one_outside_have_graphs_of_their_own(files, seen):
    model, ids = bilm(files, stateful=False), ids_of(BATCHES[0])
    with torch.no_grad():
        expected = torch.stack(model(ids)["activations"])
        for _ in range(3):
            with torch.autocast("cuda", torch.float16):
                rounded = torch.stack(model(ids)["activations"])
            torch.testing.assert_close(torch.stack(model(ids)["activations"]), expected, rtol=1e-5, atol=1e-6)
            assert not torch.equal(rounded, expected)
    assert (len(model._graphs), seen.replays) == (2, 5)


@needs_graphs
@pytest.mark.parametrize(
    "change", [normalized, lambda model: model._elmo_lstm.register_forward_hook(lambda *_: None), lambda model: None]
)
def test_weights_that_are_computed_have_no_graph(files, seen, change):
    """A parametrization or a hook may read anything, at any address."""
    model, ids = bilm(files, stateful=False), ids_of(BATCHES[0])
    change(model)
    with torch.no_grad():
        model(ids), model(ids)
    assert len(seen.begun) == (change.__name__ == "<lambda>" and not model._elmo_lstm._forward_hooks)
