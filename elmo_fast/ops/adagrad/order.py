"""The order in which rows of equal ids stand together."""

from typing import NamedTuple

import torch
from torch import Tensor


class RowOrder(NamedTuple):
    """The ids of a table's rows, sorted; equal ids keep their order."""

    ids: Tensor
    """the ids, rising, [n]"""
    positions: Tensor
    """where each stood, [n] int64"""


def row_order(ids: Tensor, num_words: int) -> RowOrder:
    """Sorts ids [n] int64|int32 of a table of `num_words` rows; ids outside it become -1 or `num_words`.

    So a norm and an update of the same rows sort once. No value is read on the host. A radix sort passes over the keys
    once per byte: 32 bits do where V allows it, and no larger id can wrap into the table, as all are clamped first.
    """
    keys = ids.clamp(-1, num_words)
    return RowOrder(*torch.sort(keys.to(torch.int32) if num_words < 2**31 - 1 else keys, stable=True))
