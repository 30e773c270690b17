"""A training step replayed from a graph leaves the bits that launching leaves. Without a GPU, a stand-in records what a
step runs and runs it again on the same memory."""

import dataclasses
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from elmo_fast.errors import PerformanceWarning
from elmo_fast.modules.losses import LOSS_CLASSES
from elmo_fast.ops import _dropout, _graphs, _table_rows, _triton, _weights
from elmo_fast.pretrain import step
from elmo_fast.pretrain.captured_step import CapturedStep
from tests.backends import HAS_CUDA
from tests.ops.recorded_graph import Recorded
from tests.pretrain.sides import Side, check_equal, pretend
from tests.pretrain.toy import toy_reader

pytestmark = pytest.mark.skipif(HAS_CUDA, reason="weights on the CPU")


pretending = pytest.fixture(autouse=True)(pretend)


@pytest.mark.parametrize(
    "changes",
    [{}, {"input": "words", "micro_batches": 3, "words": 500}, {"make": torch.optim.AdamW}],
    ids=["characters", "words-parts", "adamw"],
)
def test_replayed_steps_leave_the_bits_of_launched_ones(changes):
    """With a schedule, state resets, dropout, a batch of another shape in between, an update that is left out, and
    weights that something else changes."""
    graphs = Recorded()
    sides = Side(**changes), Side(graphs, **changes)
    for side in sides:
        for number, batch in enumerate((0, 1, 0, 2, 1, 2, 0, 1, 0)):
            side.take(number, batch, rate=0.2 / (number + 1), factor=float("nan") if number == 4 else 1.0)
            if number == 6:
                with torch.no_grad():
                    side.model.softmax_weight.mul_(0.5)
    check_equal(sides)
    assert "make" in changes or sides[1].optimizer.skipped == 1
    # Launched: 0 and 3 are the first of their shapes, 7 finds weights that others changed.
    assert [each.times for each in graphs] == [4, 1, 1]


def test_a_replay_samples_by_its_own_step():
    """If the device samples, the words are a function of the offset in memory, as the host's are of its number."""

    def draw(seed, offset, device):
        return (torch.arange(6) * 3 + offset) % 8, (offset % 5 + 6).reshape(())

    graphs = Recorded()
    sides = Side(input="words"), Side(graphs, input="words")
    for side in sides:
        side.step.draws_on_device, side.model.loss.draw = side is sides[1], draw
        if side is sides[0]:
            side.model.loss.draw = lambda seed, offset, device: draw(seed, torch.tensor(offset), device)
        for number in range(5):
            side.take(number, 0)
    check_equal(sides)
    assert [each.times for each in graphs] == [4]


@pytest.mark.parametrize(("words", "parts"), [(300, 1), (300, 3), (10_000, 1), (800_000, 1)])
@pytest.mark.parametrize("loss", LOSS_CLASSES)
def test_steps_of_any_vocabulary_are_taken_and_replayed(loss, words, parts):
    """If two directions' rows outnumber a bias, torch would coalesce its gradient and not the table's: both are
    dense. The weights are those of sparse gradients, which the CPU takes."""
    changes = {"loss": loss, "words": words, "n_negative_samples_batch": min(words, 8192), "input": "words"}
    changes |= {"dim": 4, "projection_dim": 2, "n_layers": 1, "batch_size": 6, "micro_batches": parts, "dropout": 0.0}
    if loss == "full_softmax" and words > 10_000:
        changes |= {"batch_size": 3, "unroll_steps": 2}
    # All logits of the full softmax over many words, recorded, would take gigabytes.
    graphs = None if loss == "full_softmax" and words > 10_000 else Recorded()
    sides = Side(**changes), Side(graphs, **changes)
    for side in sides:
        for number in range(4):
            side.take(number, min(number, 1))
    check_equal(sides)
    assert graphs is None or [each.times for each in graphs] == [2]  # the step after a replay is one too
    plain = Side(**changes)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_table_rows, "coalesced_at_once", lambda device: device.type == "cpu")
        for number in range(4):
            plain.state = plain.step(plain.batches[min(number, 1)], plain.state, number).state
    torch.testing.assert_close(plain.left()[2:4], sides[0].left()[2:4], rtol=1e-5, atol=1e-7)


@pytest.mark.skipif(not _triton.INTERPRETED, reason="Triton's interpreter is off")
def test_replayed_kernels_leave_the_bits_of_launched_ones(monkeypatch):
    """Triton's, with copies of weights in float16: an evaluation and the next replay see what a graph changed, though
    the host has launched nothing."""
    from elmo_fast.ops.char_cnn import kernels

    def segment_sum(rows, keys, number):
        """The op's results, by torch: its kernels are slow to interpret."""
        places = torch.where((keys >= 0) & (keys < number), keys.long(), number)
        return rows.new_zeros(number + 1, rows.shape[1]).index_add(0, places, rows)[:number].contiguous()

    monkeypatch.setattr(kernels, "segment_sum", segment_sum)
    monkeypatch.setattr(_dropout, "has_kernel", lambda device: True)
    tiny = {"backend": "triton", "precision": "float16", "unroll_steps": 1, "batch_size": 2, "n_layers": 1, "dim": 4}
    tiny |= {"filters": [[1, 3], [2, 4]], "char_embedding_dim": 4, "max_characters_per_token": 4, "projection_dim": 3}
    tiny |= {"words": 40}
    graphs = Recorded()
    sides = Side(**tiny), Side(graphs, **tiny)
    for side in sides:
        for layer in (side.model.bilm._elmo_lstm, *side.model.bilm._elmo_lstm.children()):
            layer.backend = "reference"  # as slow
        side.state = torch.zeros(1, 2, 2, 3), torch.zeros(1, 2, 2, 4)
        for number in range(3):
            side.take(number, number, rate=0.2 / (number + 1))
        types, characters = side.batches[3].types, side.step.characters
        with torch.no_grad():
            side.found.append(side.model.eval()(types, characters, side.state)[0].flatten()[:3].tolist())
    check_equal(sides)
    assert [each.times for each in graphs] == [2]
    kernels = {
        "char_cnn_forward_convolve_kernel",
        "char_cnn_backward_weight_sums_kernel",
        "highway_forward_gate_kernel",
        "vocabulary_loss_backward_logits_kernel",
        "dropout_sample_kernel",
    }
    assert kernels <= set(graphs[0].names)


def wrapped_again(side):
    """The same memory and version in a Parameter of its own, twice, so that id and address may come back."""
    for _ in range(2):
        for name, weight in list(side.model.loss._parameters.items()):
            side.model.loss._parameters[name] = torch.nn.Parameter(weight.data)
            with torch.no_grad():
                while side.model.loss._parameters[name]._version < weight._version:
                    side.model.loss._parameters[name].mul_(0.5)


def frozen_input(side):
    side.model.bilm.encoder.requires_grad_(False)


def less_dropout(side):
    side.model.options = dataclasses.replace(side.model.options, dropout=0.1)


def other_precision(side):
    for layer in (side.model.bilm._elmo_lstm, *side.model.bilm._elmo_lstm.children()):
        layer.precision = "bfloat16"


def other_loss(side):
    side.model.loss.semantics = "allennlp"


def other_reader(side):
    side.step.characters = toy_reader(side.model)


def no_count(side):
    side.optimizer.skipped = None


CHANGES = [wrapped_again, frozen_input, less_dropout, other_precision, other_loss, other_reader, no_count]


@pytest.mark.parametrize("change", CHANGES)
def test_a_graph_is_of_the_settings_with_which_it_was_captured(change):
    """State of a graph that no tensor shows: after a change the next step is eager."""
    graphs = Recorded()
    side = Side(graphs)
    for number in range(4):
        side.state = side.step(side.batches[0], side.state, number).state
    change(side)
    replays = sum(each.times for each in graphs)
    side.step(side.batches[0], side.state, 4)
    assert sum(each.times for each in graphs) == replays > 0


def test_a_step_whose_capture_fails_is_launched(monkeypatch):
    """So are all that follow; a warning gives the reason, and no copy of a weight is taken for one that was made."""

    def not_permitted(function, inputs, pool):
        function(*inputs)
        weight = sides[1].model.softmax_weight
        assert _weights.rounded_copy(weight, torch.float16) is not None
        raise RuntimeError("operation not permitted when stream is capturing")

    def stepping(optimizer, *arguments):
        """Before the update, which counts up versions, a step reads the copies."""
        weight = optimizer.param_groups[0]["params"][0]
        assert torch.equal(_weights.rounded_copy(weight, torch.float16), weight.half())
        return clip_and_update(optimizer, *arguments)

    clip_and_update = step.clip_and_update
    monkeypatch.setattr(step, "clip_and_update", stepping)
    sides = Side(input="words"), Side(Recorded(), input="words")
    sides[1].step.captured.capturing = not_permitted
    for number in range(4):
        sides[0].take(number, number % 2)
        if number != 1:
            sides[1].take(number, number % 2)
            continue
        with pytest.warns(PerformanceWarning, match="without a CUDA graph, launch by launch: operation not permitted"):
            sides[1].take(number, 1, heard="default")
    check_equal(sides)
    weight = sides[1].model.softmax_weight
    assert torch.equal(_weights.rounded_copy(weight, torch.float16), weight.half())


def pool_is_locked():
    """True if another thread holds the lock of all graphs."""
    lock = _graphs.pool_of(torch.device("cpu")).lock
    if free := lock.acquire(blocking=False):
        lock.release()
    return not free


class OneWeight(torch.nn.Module):
    """A model whose step reads a rounded copy of its weight.

    update: "writes" the copy too, "leaves" it to the next step, or is the "host's", between two pieces.
    """

    def __init__(self, update):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.tensor([1.0, 2.0, 3.0]))
        self.optimizer, self.update = torch.optim.SGD([self.weight], 0.25), update
        self.locked = []

    @torch.no_grad()
    def launches(self, factor, state):
        copy = _weights.rounded_copy(self.weight, torch.float16)
        entries = _weights.fresh_roundings([self.weight])
        gradient = copy.float() * factor.sum()
        numbers, h, c = copy.float().sum()[None], state[0] + 1, factor[:1].float()
        if self.update == "host's":
            yield lambda: self.step(gradient)
            return numbers + 0, h, c
        self.weight -= 0.25 * gradient
        if self.update == "writes":
            self.write_copies(entries)
        return numbers, h, c

    def write_copies(self, entries):
        """An update like AdaGrad's kernel's."""
        for copy in _weights.roundings_of(entries).values():
            copy.copy_(self.weight)
        _weights.mark_rounded(entries)

    @torch.no_grad()
    def step(self, gradient):
        with ThreadPoolExecutor(1) as other:  # the gradient is in the memory of all graphs
            self.locked.append(other.submit(pool_is_locked).result())
        entries = _weights.fresh_roundings([self.weight])
        self.weight -= 0.25 * gradient
        self.write_copies(entries)


def launched_and_captured(update, steps, around):
    """What steps of OneWeight leave, launched and captured; around: called with model and number before each step.

    Returns (launched, captured), the captured side's model and its graphs.
    """
    sides, graphs = ([], []), Recorded()
    for captures in (False, True):
        model, state = OneWeight(update), (torch.zeros(1), torch.zeros(1))
        captured = CapturedStep(
            model, model.optimizer, model.launches, writes_copies=lambda: update == "writes", capturing=graphs.capture
        )
        for number in range(steps):
            around(model, number)
            factor = torch.full((1,), number)
            if captures:
                numbers, *state = captured.run(factor, state, torch.device("cpu"))
            else:
                numbers, *state = _graphs.run_pieces(model.launches(factor, state))
            left = numbers, model.weight.detach(), *state
            sides[captures].append([each.clone() for each in left])
    return sides, model, graphs


updates = pytest.mark.parametrize("update", ["writes", "leaves", "host's"])


@updates
def test_gradients_of_a_graph_are_those_of_the_weights_now(update):
    """Whoever updates, whether with a weight's rounded copy or without, and whoever made a copy before the capture."""

    def evaluated(model, number):
        if number == 1:
            _weights.rounded_copy(model.weight, torch.float16)  # as an evaluation makes it

    (launched, captured), model, graphs = launched_and_captured(update, 5, evaluated)
    assert (graphs[0].times, graphs[0].pieces) == (4, 2 if update == "host's" else 1)
    assert update != "host's" or model.locked == [True] * 5
    torch.testing.assert_close(captured, launched, rtol=0, atol=0)


@updates
@pytest.mark.parametrize("when", range(5))
def test_a_step_after_a_change_reads_copies_of_the_new_weights(update, when):
    """The step before was eager, captured or replayed."""

    def changed(model, number):
        if number == when:
            with torch.no_grad():
                model.weight.copy_(torch.tensor([9.0, 8.0, 7.0]))

    (launched, captured), *_ = launched_and_captured(update, 6, changed)
    torch.testing.assert_close(captured, launched, rtol=0, atol=0)


def test_of_two_copies_of_a_weight_a_graph_reads_the_one_that_is_written():
    """A step of another shape may write another one than the graph reads: then the graph is captured again."""
    model, graphs, state, found = OneWeight("writes"), Recorded(), (torch.zeros(1), torch.zeros(1)), []
    _weights.rounded_copy(model.weight, torch.bfloat16)
    with torch.no_grad():
        model.weight.mul_(1.5)
    truth = model.weight.detach().clone()
    captured = CapturedStep(model, model.optimizer, model.launches, capturing=graphs.capture)
    for shape in (1, 1, 1, 0, 2, 1, 1):
        if not shape:
            _weights.rounded_copy(model.weight, torch.bfloat16)
            continue
        expected = truth.half().float().sum()
        truth -= 0.25 * truth.half().float() * 0.5 * shape
        numbers, *state = captured.run(torch.full((shape,), 0.5), state, torch.device("cpu"))
        found.append((numbers[0].item(), expected.item()))
    assert [actual for actual, _ in found] == [expected for _, expected in found]


def test_a_steps_state_goes_from_graph_to_graph_and_back_to_the_caller():
    """A graph goes on from the state that it left, from a caller's own, and from none; shapes of it may change."""
    model, graphs = OneWeight("leaves"), Recorded()
    model.launches = lambda factor, state: (
        factor + 0, torch.zeros(2) if state is None else state[0] + factor, factor + 0 if state is None else state[1]
    )  # fmt: skip
    captured = CapturedStep(model, model.optimizer, model.launches, capturing=graphs.capture)
    one, state, found = torch.ones(2), None, []
    for number in range(9):
        given = {5: (torch.full((2,), 7.0), torch.full((2,), 8.0)), 7: None}.get(number, state)
        _, *state = captured.run(one, given, torch.device("cpu"))
        found.append((state[0][0].item(), state[1][0].item()))
    assert [each.times for each in graphs] == [8]
    assert found == [(0, 1), (1, 1), (2, 1), (3, 1), (4, 1), (8, 8), (9, 8), (1, 0), (2, 0)]
