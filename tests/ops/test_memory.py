"""Out of memory in the user's words, and nothing half done."""

import pytest
import torch

from elmo_fast.errors import ElmoFastError
from elmo_fast.memory import size
from elmo_fast.ops import _triton


def test_it_says_what_was_asked_for_and_what_would_fit():
    with (
        pytest.raises(
            ElmoFastError, match=r"op: out of memory on cpu: 10 rows need 20\.0 GiB and about 0 bytes are free"
        ),
        _triton.explained("op", "rows", 20 * 2**30, 2 * 2**30, 10, torch.device("cpu")),
    ):
        raise torch.OutOfMemoryError("CUDA out of memory")


def test_what_would_fit_is_counted_from_free_memory(monkeypatch):
    """Free on the card, and what torch holds without using it."""
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (3 * 2**30, 9 * 2**30))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 2 * 2**30)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: 2**30)
    with (
        pytest.raises(ElmoFastError, match=r"20\.0 GiB and about 4\.0 GiB are free; about 2 would fit"),
        _triton.explained("op", "rows", 20 * 2**30, 2 * 2**30, 10, torch.device("cuda")),
    ):
        raise torch.OutOfMemoryError("CUDA out of memory")


def test_other_errors_pass():
    with pytest.raises(ValueError, match="other"), _triton.explained("op", "rows", 1, 1, 1, torch.device("cpu")):
        raise ValueError("other")


def test_sizes_are_as_people_read_them():
    assert [size(n) for n in (5, 2048, 3 * 2**20, 1.5 * 2**30)] == ["5 bytes", "2.0 KiB", "3.0 MiB", "1.5 GiB"]
