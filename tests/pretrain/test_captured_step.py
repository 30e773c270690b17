"""A training step replayed from CUDA graphs leaves the bits of an eager one."""

import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from elmo_fast.errors import PerformanceWarning
from elmo_fast.modules.losses import LOSS_CLASSES
from elmo_fast.ops import _graphs
from elmo_fast.pretrain.captured_step import CapturedStep
from tests.ops.graph_cases import DEVICE, needs_graphs
from tests.pretrain.sides import Side, check_equal


@needs_graphs
@pytest.mark.parametrize(
    "changes",
    [{}, {"input": "words", "micro_batches": 3, "words": 500}, {"input": "words", "make": torch.optim.AdamW}],
    ids=["characters", "words-parts", "adamw"],
)
def test_replayed_steps_leave_the_bits_of_launched_ones(seen, changes):
    """With a schedule, state resets, dropout, a batch of another shape in between, an update that is left out, and
    weights that something else changes."""
    sides = Side(**changes), Side(True, **changes)
    for side in sides:
        for number, batch in enumerate((0, 1, 0, 2, 1, 2, 0, 1, 0)):
            side.take(number, batch, rate=0.2 / (number + 1), diverges=number == 2)
            if number == 6:
                with torch.no_grad():
                    side.model.softmax_weight.mul_(0.5)
    check_equal(sides)
    pieces = 2 if "make" in changes else 1
    assert pieces == 2 or sides[1].optimizer.skipped == 1
    # Eager: 0 and 3 are the first of their shapes.
    assert (len(seen.begun), seen.replays) == (2 * pieces, 7 * pieces)


MOST_CALLS = 1360  # lower it when there are fewer


@needs_graphs
def test_a_replayed_step_is_little_work_for_the_host(seen, monkeypatch):
    """So many calls of Python's and torch's functions, which do not depend on the machine; none of the graph's."""
    replay, runs, calls = torch.cuda.CUDAGraph.replay, True, 0
    monkeypatch.setattr(torch.cuda.CUDAGraph, "replay", lambda graph: runs and replay(graph))
    side = Side(True)
    for number in range(4):
        side.take(number, 0)

    def count(frame, event, argument):
        nonlocal calls
        calls += event in ("call", "c_call")

    runs = False
    sys.setprofile(count)
    try:
        side.step(side.batches[0], side.state, 4)
    finally:
        sys.setprofile(None)
    assert seen.replays == 3
    assert calls <= MOST_CALLS


@needs_graphs
def test_a_replay_samples_by_its_own_step(seen):
    """If the device samples, the words are a function of the offset in memory, as the host's are of its number."""

    def draw(seed, offset, device):
        return (torch.arange(6, device=device) * 3 + offset) % 8, (offset % 5 + 6).reshape(())

    sides = Side(input="words"), Side(True, input="words")
    for side in sides:
        side.step.draws_on_device, side.model.loss.draw = side is sides[1], draw
        if side is sides[0]:
            side.model.loss.draw = lambda seed, offset, device: draw(seed, torch.tensor(offset), device)
        for number in range(5):
            side.take(number, 0)
    check_equal(sides)
    assert seen.replays == 4


@needs_graphs
@pytest.mark.parametrize(("words", "parts"), [(300, 3), (2_500, 1)])
@pytest.mark.parametrize("loss", LOSS_CLASSES)
def test_steps_of_any_vocabulary_are_taken_and_replayed(seen, loss, words, parts):
    """If two directions' rows outnumber a bias, torch would coalesce its gradient and not the table's: both are
    dense. The weights are those of sparse gradients, which the CPU takes."""
    changes = {"loss": loss, "words": words, "n_negative_samples_batch": min(words, 2048), "input": "words"}
    changes |= {"dim": 4, "projection_dim": 2, "n_layers": 1, "batch_size": 6, "micro_batches": parts, "dropout": 0.0}
    sides = [Side(**changes), Side(True, **changes), Side(device="cpu", **changes)]
    for side in sides:
        for number in range(4):
            side.take(number, min(number, 1))
    plain = sides.pop()
    check_equal(sides)
    assert seen.replays == 2  # the step after a replay is one too
    torch.testing.assert_close(
        plain.left()[2], {n: w.cpu() for n, w in sides[0].left()[2].items()}, rtol=1e-5, atol=1e-7
    )


@needs_graphs
def test_a_graph_is_of_the_parameters_that_it_trains(seen):
    """What is frozen later is trained no more: the next step is eager."""
    side = Side(True)
    for number in range(4):
        side.take(number, 0)
    side.model.bilm.encoder.requires_grad_(False)
    replays = seen.replays
    side.step(side.batches[0], side.state, 4)
    assert seen.replays == replays == 3


@needs_graphs
def test_a_step_whose_capture_fails_runs_eagerly(seen, monkeypatch):
    """With the same bits."""
    owner, name = torch.Tensor, "backward"
    sides, function = (Side(input="words"), Side(True, input="words")), getattr(owner, name)

    def refused(*arguments, **options):
        """In a capture, fails as CUDA does."""
        if torch.cuda.is_current_stream_capturing():
            torch.ones(1, device=DEVICE).item()
        return function(*arguments, **options)

    monkeypatch.setattr(owner, name, refused)
    for side in sides:
        for number in range(5):
            side.take(number, 0, heard="ignore")
    check_equal(sides)
    assert _graphs._given_up.is_set()
    assert (len(seen.begun), seen.replays) == (1, 0)


@needs_graphs
def test_a_step_without_memory_for_its_replay_is_eager(seen):
    """Until more is available; the update is made once."""
    model, state = OneWeight(), (torch.zeros(1, device=DEVICE), torch.zeros(1, device=DEVICE))
    launches, wanted = model.launches, [0]

    def greedy(factor, state):
        numbers, h, c = yield from _graphs.pieces_of(launches, factor, state)
        if wanted[0] and torch.cuda.is_current_stream_capturing():
            result = torch.empty(wanted[0] // 4, device=DEVICE)
            result[:1] = numbers
            return result, h, c
        return numbers, h, c

    captured, truth = CapturedStep(model, model.optimizer, greedy), model.weight.detach().clone()
    wanted[0] = torch.cuda.mem_get_info()[0] // 5 * 3  # a replay copies the result

    def step():
        nonlocal truth, state
        truth = truth - 0.25 * truth * 0.5
        _, *state = captured.run(torch.full((1,), 0.5), tuple(state), DEVICE)
        torch.testing.assert_close(model.weight.detach(), truth, rtol=0, atol=0)

    step()
    with pytest.warns(PerformanceWarning, match="launch by launch: .*out of memory"):
        step()
    step()
    assert (len(seen.begun), seen.replays, len(captured.graphs)) == (1, 0, 0)
    wanted[0] = 0
    for held in captured.graphs._held.values():
        assert all(held.seen.values())
        held.seen = dict.fromkeys(held.seen, 1)  # as if there had been less memory than there is now
    step(), step()
    assert seen.replays == 2


def pool_is_locked():
    """True if another thread holds the lock of all graphs."""
    lock = _graphs.pool_of(DEVICE).lock
    if free := lock.acquire(blocking=False):
        lock.release()
    return not free


class OneWeight(torch.nn.Module):
    """A model whose step, or the host between its two pieces, updates its weight."""

    def __init__(self, by_host=False):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.tensor([1.0, 2.0, 3.0], device=DEVICE))
        self.optimizer, self.by_host = torch.optim.SGD([self.weight], 0.25), by_host
        self.locked = []

    @torch.no_grad()
    def launches(self, factor, state):
        gradient = self.weight * factor.sum()
        numbers, h, c = self.weight.sum()[None], state[0] + 1, factor[:1].float()
        if self.by_host:
            yield lambda: self.step(gradient)
            return numbers + 0, h, c
        self.weight -= 0.25 * gradient
        return numbers, h, c

    @torch.no_grad()
    def step(self, gradient):
        with ThreadPoolExecutor(1) as other:  # the gradient is in the memory of all graphs
            self.locked.append(other.submit(pool_is_locked).result())
        self.weight -= 0.25 * gradient


@needs_graphs
@pytest.mark.parametrize("when", [None, 1, 2, 4])
@pytest.mark.parametrize("by_host", [False, True])
def test_a_step_reads_the_weights_of_now(seen, by_host, when):
    """Changed by nothing but steps, or after one that was eager, captured or replayed."""
    sides, pieces = ([], []), 1 + by_host
    for captures in (False, True):
        model, state = OneWeight(by_host), (torch.zeros(1, device=DEVICE), torch.zeros(1, device=DEVICE))
        captured = CapturedStep(model, model.optimizer, model.launches)
        for number in range(6):
            if number == when:
                with torch.no_grad():
                    model.weight.copy_(torch.tensor([9.0, 8.0, 7.0]))
            factor = torch.full((1,), number)
            if captures:
                numbers, *state = captured.run(factor, tuple(state), DEVICE)
            else:
                numbers, *state = _graphs.run_pieces(model.launches, factor.to(DEVICE), state)
            left = numbers, model.weight.detach(), *state
            sides[captures].append([each.clone() for each in left])
    torch.testing.assert_close(sides[1], sides[0], rtol=0, atol=0)
    if when is None:
        assert (len(seen.begun), seen.replays) == (pieces, 5 * pieces)
    assert model.locked == [True] * 6 * by_host


@needs_graphs
def test_a_steps_state_goes_from_graph_to_graph_and_back_to_the_caller(seen):
    """A graph goes on from the state that it left, from a caller's own, and from one of another shape."""
    model = OneWeight()
    model.launches = lambda factor, state: (factor + 0, state[0] + factor, state[1] + 2 * factor)
    captured = CapturedStep(model, model.optimizer, model.launches)
    one, state, found = torch.ones(1), [torch.zeros(2, device=DEVICE)] * 2, []
    for number in range(9):
        if number == 5:
            state = torch.full((2,), 7.0, device=DEVICE), torch.full((2,), 8.0, device=DEVICE)
        if number == 7:
            state = [torch.zeros(3, device=DEVICE)] * 2
        _, *state = captured.run(one, tuple(state), DEVICE)
        found.append((state[0][0].item(), state[1][0].item()))
    assert seen.replays == 7
    assert found == [(1, 2), (2, 4), (3, 6), (4, 8), (5, 10), (8, 10), (9, 12), (1, 2), (2, 4)]
