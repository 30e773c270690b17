"""Rows of a table and their gradients, which must not depend on threads: a resumed run promises the same bits."""

import pytest
import torch

from elmo_fast.ops._table_rows import table_rows

WORDS, DRAWN, SIZE = 300, 4000, 64


@pytest.mark.parametrize("sparse", [False, True])
def test_gradients_have_the_same_bits_on_any_number_of_threads(sparse):
    """Dense as AdamW's, and sparse, of words that repeat often; torch's index_put gives other bits from run to run."""
    generator, before = torch.Generator().manual_seed(0), torch.get_num_threads()
    ids = torch.randint(0, WORDS, (DRAWN,), generator=generator)
    grad = torch.randn(DRAWN, SIZE, generator=generator)
    found = []
    torch.use_deterministic_algorithms(False)  # as users have it: with it torch adds on one thread
    try:
        for threads in (1, *[4] * 20):
            torch.set_num_threads(threads)
            table = torch.zeros(WORDS, SIZE, requires_grad=True)
            table_rows(table, ids, sparse).backward(grad)
            found.append(table.grad.to_dense())
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(each, found[0]) for each in found[1:])
