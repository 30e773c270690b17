"""Characters of words on a GPU: nothing waits for it."""

import numpy as np
import pytest
import torch

from elmo_fast.corpus import encode
from tests.corpus.test_streams import LONG
from tests.corpus.texts import VOCABULARY

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


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
