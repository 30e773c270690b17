"""A stand-in for a GPU: the CPU, where Triton's interpreter serves, is a card that was never seen."""

import pytest
import torch

from elmo_fast.ops import _card, _card_files, _check_once, _check_processes, _dispatch, _first_use, _verdicts
from elmo_fast.ops._check import Answer

CPU = torch.device("cpu")
ABOUT = {"gpu": "Stand-in 1", "driver": "1.0", "kernels": "abc"}


@pytest.fixture
def card(monkeypatch, tmp_path):
    """The card's verdicts, an empty folder; no unit is known in this process."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv(_first_use.VARIABLE, raising=False)
    monkeypatch.setattr(_card, "present", lambda device: True)
    monkeypatch.setattr(_card, "identity", lambda device: ABOUT)
    made = dict.fromkeys(("cuda", "triton"), "cpu") | {"native": "none"}
    monkeypatch.setattr(_dispatch, "_MADE_FOR", made)
    begin_anew(monkeypatch)
    _dispatch.warn_once.cache_clear()
    yield _card_files.folder()
    _dispatch.warn_once.cache_clear()


def begin_anew(monkeypatch):
    """As a new process does."""
    for module, name in ((_verdicts, "known"), (_verdicts, "_files"), (_first_use, "_settled")):
        monkeypatch.setattr(module, name, {})
    monkeypatch.setattr(_check_once, "_told", set())


class Answering:
    """In the place of the processes that check: answers at once, and counts the units."""

    def __init__(self, monkeypatch, **why):
        self.why, self.asked = why, []
        monkeypatch.setattr(_check_processes, "answers", self.answers)

    def answers(self, units, device, answered):
        self.asked += units
        return {unit: self.why.get(unit.op, Answer()) for unit in units}
