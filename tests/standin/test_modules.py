"""Modules and adapters on a GPU, real or stood in for: each batch gets its own values, which are the CPU's."""

import numpy as np
import pytest
import torch

from elmo_fast import Elmo, ElmoEmbedder, ops
from tests.support.weights import make_weights

if not torch.cuda.is_available():
    pytest.skip("needs a GPU, or `python -m tests.standin python -m pytest ...`", allow_module_level=True)

pytestmark = pytest.mark.filterwarnings("default")
TEXTS = [[["the", "cat", "sat"], ["a", "dog", "ran"]], [["it", "was", "never"], ["seen", "before", "."]]]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("elmo")
    make_weights(path, cell=12, proj=8, filters=((1, 4), (2, 4)), char_dim=4, n_highway=1, scale=0.5)
    return path


def elmo_of(model, device="cuda", **options):
    return Elmo.from_pretrained(str(model), 1, dropout=0.0, **options).to(device).eval()


def vectors(elmo, text, device="cuda"):
    with torch.no_grad():
        return elmo(elmo.batch_to_ids(text).to(device))["elmo_representations"][0].cpu()


def check(elmo, reference, device="cuda"):
    """Check that batches of one shape in turn, with graphs from the second on, get the vectors of the reference."""
    for text in TEXTS * 3:
        torch.testing.assert_close(vectors(elmo, text, device), vectors(reference, text, "cpu"), rtol=2e-5, atol=2e-5)


def halved(elmo):
    with torch.no_grad():
        for parameter in elmo.parameters():
            parameter.mul_(0.5)


def halved_by_a_fused_optimizer(elmo):
    """torch does not count its writes."""
    optimizer = torch.optim.SGD(elmo.parameters(), 0.5, fused=True)
    for parameter in elmo.parameters():
        parameter.grad = parameter.detach().clone()
    optimizer.step()


def halved_in_other_memory(elmo):
    for parameter in elmo.parameters():
        parameter.data = parameter.data * 0.5


def halved_past_the_counter(elmo):
    """As FSDP does, whose memory is larger; or by hand."""
    for parameter in elmo.parameters():
        parameter.data.mul_(0.5)
    ops.refresh_weights()


@pytest.mark.parametrize(
    ("change", "cuda_graphs"),
    [
        (halved, True),
        (halved_by_a_fused_optimizer, False),
        (halved_by_a_fused_optimizer, True),
        (halved_in_other_memory, True),
        (halved_past_the_counter, False),
        (halved_past_the_counter, True),
    ],
)
def test_weights_that_change_are_seen(model, cuda_graphs, change):
    """By the copies that ops read, and by graphs."""
    elmo, reference = elmo_of(model, cuda_graphs=cuda_graphs), elmo_of(model, "cpu")
    check(elmo, reference)
    for each in (elmo, reference):
        change(each)
    check(elmo, reference)


def test_a_weight_in_a_larger_memory_is_copied_at_every_call(model):
    elmo, reference = elmo_of(model), elmo_of(model, "cpu")
    weight = elmo.get_parameter("_elmo_lstm._elmo_lstm.forward_layer_0.state_linearity.weight")
    memory = torch.cat([weight.data, weight.data])
    weight.data = memory[: len(weight)]
    for _ in range(2):
        check(elmo, reference)
        memory.mul_(0.5)
        with torch.no_grad():
            reference.get_parameter("_elmo_lstm._elmo_lstm.forward_layer_0.state_linearity.weight").mul_(0.5)


def test_copies_are_made_once_and_written_where_they_are(model):
    """A graph of a stream, or of another precision, goes on reading them; another stream waits for them."""
    elmo, ids = elmo_of(model), None
    ids = elmo.batch_to_ids(TEXTS[0]).cuda()
    lstm = elmo._elmo_lstm._elmo_lstm.forward_layer_0

    def copies():
        with torch.no_grad():
            elmo(ids)
        return lstm._packed._copies[lstm.precision]

    first = copies()
    with torch.cuda.stream(torch.cuda.Stream()):
        assert copies() is first
    places = [each.data_ptr() for each in first.tensors]
    halved(elmo)
    assert [each.data_ptr() for each in copies().tensors] == places
    assert copies() is not first


def test_a_model_moves_between_devices(model):
    elmo, reference = elmo_of(model, cuda_graphs=True), elmo_of(model, "cpu")
    for device in ("cuda", "cpu", f"cuda:{torch.cuda.device_count() - 1}", "cuda"):
        check(elmo.to(device), reference, device)


def test_a_warm_call_does_not_wait_for_the_gpu(model):
    elmo = elmo_of(model)
    ids = elmo.batch_to_ids(TEXTS[0]).cuda()
    with torch.no_grad():
        elmo(ids)
        torch.cuda.set_sync_debug_mode("error")
        try:
            elmo(ids)
            with pytest.raises(RuntimeError, match="synchronizing"):
                ids.sum().item()
        finally:
            torch.cuda.set_sync_debug_mode("default")


def test_a_graph_of_the_user_may_hold_the_model(model):
    elmo, graph = elmo_of(model, cuda_graphs=True), torch.cuda.CUDAGraph()
    ids, reference = elmo.batch_to_ids(TEXTS[0]).cuda(), elmo_of(model, "cpu")
    check(elmo, reference)
    with torch.no_grad(), torch.cuda.graph(graph):
        captured = elmo(ids)["elmo_representations"][0]
    for text in TEXTS[::-1]:
        ids.copy_(elmo.batch_to_ids(text))
        graph.replay()
        torch.testing.assert_close(captured.cpu(), vectors(reference, text, "cpu"), rtol=2e-5, atol=2e-5)


def test_dropout_within_the_mixes_kernel_comes_after_mixing(model):
    """Kept elements are those of the mix, doubled; each representation has its own mask."""
    expected = elmo_of(model, stateful=False)
    ids = expected.batch_to_ids(TEXTS[0]).cuda()
    mix = expected(ids)["elmo_representations"][0]
    dropping = Elmo.from_pretrained(str(model), 2, dropout=0.5, stateful=False).cuda().train()
    first, second = dropping(ids)["elmo_representations"]
    kept = first != 0
    torch.testing.assert_close(first[kept], 2 * mix[kept])
    assert 0.2 < kept.float().mean() < 0.8
    assert not torch.equal(kept, second != 0)


@pytest.mark.parametrize("number", range(-1, torch.cuda.device_count()))
def test_an_embedder_takes_the_device_of_its_number(model, number):
    embedder = ElmoEmbedder.from_pretrained(str(model), cuda_device=number)
    expected = ElmoEmbedder.from_pretrained(str(model), cuda_device=-1)
    for text in TEXTS * 2:
        for actual, wanted in zip(embedder.embed_batch(text), expected.embed_batch(text), strict=True):
            np.testing.assert_allclose(actual, wanted, rtol=2e-5, atol=2e-5)
