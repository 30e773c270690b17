"""Running out of a GPU's memory, in the user's words: what was asked for, what is free, what to do."""

import contextlib
from collections.abc import Iterator

import torch

from elmo_fast.errors import ElmoFastError
from elmo_fast.sizes import size


@contextlib.contextmanager
def explained(op: str, what: str, needed: int, per_row: int, rows: int, device: torch.device) -> Iterator[None]:
    """Turns a torch.OutOfMemoryError within the block into an ElmoFastError that says what would fit.

    what: the rows' name in the user's words ("rows of the batch"); needed: bytes asked for in all; per_row: bytes of
    one row. Allocate within the block and write after it, so that nothing is half updated.
    """
    try:
        yield
    except torch.OutOfMemoryError as error:
        free = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else 0
        free += torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device) if device.type == "cuda" else 0
        fits = max(0, min(rows - 1, free // max(1, per_row)))
        raise ElmoFastError(
            f"{op}: out of memory on {device}: {rows} {what} need {size(needed)} and about {size(free)} are free; "
            f"about {fits} would fit"
        ) from error
