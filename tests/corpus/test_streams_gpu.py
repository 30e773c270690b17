"""Streams whose batches go to a GPU: the same batches, and nothing that waits for it."""

import numpy as np
import pytest
import torch

from elmo_fast.corpus import Stream, encode, streams
from tests.corpus.test_streams import LONG, equal
from tests.corpus.texts import VOCABULARY, resharded

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


@pytest.mark.parametrize("placement", ["device", "host", "auto"])
@pytest.mark.parametrize("cuts", [[], [9, 30]])
def test_batches_are_those_of_the_cpu_and_nothing_waits(monkeypatch, placement, cuts):
    monkeypatch.setattr(streams, "SLAB", 60)
    corpus = resharded(encode(LONG, VOCABULARY), cuts)
    stream = Stream(corpus, 3, 4, seed=1, device="cuda", placement=placement)
    expected = Stream(corpus, 3, 4, seed=1)
    got = [stream.batch(0, 0)]
    torch.cuda.set_sync_debug_mode("error")
    try:
        got += [stream.batch(0, step) for step in range(1, stream.steps_per_epoch)]
    finally:
        torch.cuda.set_sync_debug_mode("default")
    for step, batch in enumerate(got):
        assert batch.types.device.type == "cuda"
        assert equal(batch._replace(types=batch.types.cpu(), targets=batch.targets.cpu()), expected.batch(0, step))


def test_characters_are_built_on_the_device():
    table = encode(LONG, VOCABULARY).types
    types = torch.arange(len(table), device="cuda").view(1, -1)
    characters = table.characters(9, "cuda")
    torch.cuda.set_sync_debug_mode("error")
    try:
        ids = characters.ids(types)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    np.testing.assert_array_equal(ids.cpu().numpy(), table.characters(9).ids(types.cpu()).numpy())


def test_a_text_that_fits_lies_on_the_gpu(monkeypatch):
    corpus = encode(LONG, VOCABULARY)
    assert Stream(corpus, 3, 4, seed=1, device="cuda").placement == "device"
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (8 * int(corpus.offsets[-1]), 1 << 40))
    assert Stream(corpus, 3, 4, seed=1, device="cuda").placement == "host"
