"""How many CPU threads torch uses, for a while."""

import contextlib
from collections.abc import Iterator


@contextlib.contextmanager
def torch_threads(count: int | None) -> Iterator[None]:
    """That many while open, then as many as before; None: as they are."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(count or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)
