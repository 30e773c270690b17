"""Rounded copies of weights on a GPU follow the weights' version counters (ops/_weights.py)."""

import pytest
import torch

from elmo_fast.ops import _weights


class Stream:
    """A stream that remembers for what its work waits."""

    def __init__(self, log, name):
        self.log, self.name = log, name

    def record_event(self):
        return f"{self.name}'s event"

    def wait_event(self, event):
        self.log.append(f"{self.name} waits for {event}")

    def wait_stream(self, other):
        self.log.append(f"{self.name} waits for {other.name}")


def test_a_copy_on_a_second_stream_waits_for_the_first(monkeypatch):
    """A reader waits once for the writing, the next writer for the readers and the last writer."""
    log = []
    first, second = Stream(log, "first"), Stream(log, "second")
    current = [first]
    monkeypatch.setattr(_weights, "_stream", lambda tensor: current[0])
    monkeypatch.setattr(torch.Tensor, "record_stream", lambda copy, stream: log.append(f"memory used by {stream.name}"))
    weight = torch.randn(5)

    def use(stream):
        current[0], log[:] = stream, []
        assert torch.equal(_weights.rounded_copy(weight, torch.float16), weight.half())
        return list(log)

    assert use(first) == use(first) == []
    assert use(second) == ["second waits for first's event", "memory used by second"]
    assert use(second) == use(first) == []
    weight.add_(1)
    assert use(first) == ["first waits for second"]
    assert use(second) == ["second waits for first's event", "memory used by second"]
    weight.add_(1)
    assert use(second) == ["second waits for first"]
    log.clear()
    current[0] = first
    entries = _weights.fresh_roundings([weight])
    assert _weights.roundings_of(entries).keys() == {id(weight)}
    assert log == ["first waits for second"]
    _weights.mark_rounded(entries)
    assert use(second) == ["second waits for first's event", "memory used by second"]


def rounds_right(weight):
    return torch.equal(_weights.rounded_copy(weight, torch.float16), weight.detach().half())


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.Adam])
def test_a_copy_follows_fused_optimizers(kind):
    """They are made to count."""
    weight = torch.nn.Parameter(torch.randn(80, 64))
    assert rounds_right(weight)
    optimizer = kind([weight], lr=0.5, fused=True)
    weight.grad = torch.ones_like(weight)
    optimizer.step()
    assert rounds_right(weight)


def test_a_weight_in_a_larger_memory_is_copied_at_every_use():
    """As FSDP holds it, whose writes count elsewhere."""
    memory = torch.randn(160, 64)
    weight = torch.nn.Parameter(memory[:80])
    for _ in range(2):
        assert rounds_right(weight)
        memory.mul_(2)
