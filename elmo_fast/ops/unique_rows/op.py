"""unique_rows: each distinct word of a batch once."""

import torch
from torch import Tensor

from elmo_fast.errors import ElmoFastError
from elmo_fast.ops._checks import check_dtype, check_shape, given
from elmo_fast.ops._dispatch import select


def unique_rows(ids: Tensor, *, backend: str = "auto") -> tuple[Tensor, Tensor]:
    """The distinct rows of `ids`, and for every row which of them it is.

        unique[inverse] == ids, and no two rows of `unique` are equal

    The order of `unique` is the backend's: "native" keeps the order of first occurrence, "reference" sorts.

    Args:
        ids: rows of whole numbers, such as the character ids of words, [N, C] int64|int32, C >= 1, any strides.
        backend: "auto", "native" or "reference".

    Returns:
        unique: the distinct rows, [U, C], dtype of `ids`; U depends on the values, so that under
            `torch.compile(fullgraph=True)` `torch._dynamo.config.capture_dynamic_output_shape_ops` must be on.
        inverse: row of `unique` equal to each row of `ids`, [N] int64.

    Raises:
        ElmoFastError: wrong shape or dtype, or an unknown backend.
    """
    check_shape("unique_rows", "ids", ids, "N C")
    check_dtype("unique_rows", "ids", ids, torch.int64, torch.int32)
    if ids.shape[1] == 0:
        raise ElmoFastError(f"unique_rows: ids must have at least one column; got {given(ids)}")
    unique, inverse = select("unique_rows", backend, ids.device, torch.float32).run(ids)
    return unique, inverse
