"""A training step replayed from a graph leaves the bits that launching leaves. Without a GPU, a stand-in records what a
step runs and runs it again on the same memory."""

import sys
import warnings
from dataclasses import replace

import pytest
import torch

from elmo_fast import ops
from elmo_fast.errors import PerformanceWarning
from elmo_fast.ops import _capture, _graphs, _packed, _triton
from elmo_fast.ops._checks import check_values
from elmo_fast.pretrain.data.inputs import make_input_reader
from elmo_fast.pretrain.processes import Processes
from elmo_fast.pretrain.step import training_step
from elmo_fast.pretrain.step.adagrad import AdaGrad
from elmo_fast.pretrain.step.captured_step import CapturedStep
from elmo_fast.pretrain.step.training_step import Step
from tests.backends import HAS_CUDA
from tests.ops.recorded_graph import Recorded, SparseAsOnGpu
from tests.pretrain.toy import toy_config, toy_corpus, toy_model, toy_words

pytestmark = pytest.mark.skipif(HAS_CUDA, reason="weights on the CPU")


@pytest.fixture(autouse=True)
def pretend(monkeypatch):
    """Steps of the CPU may be captured, which reads no value as a GPU reads none; no test finds another's graphs."""
    monkeypatch.setattr(_capture, "enabled", lambda device: True)
    ours = [module for name, module in sys.modules.items() if name.startswith("elmo_fast.")]
    for module in ours:
        if getattr(module, "check_values", None) is check_values:
            monkeypatch.setattr(module, "check_values", lambda *values: None)
    # Those of plain torch look at how many distinct rows there are.
    monkeypatch.setattr(ops, "ordered_unique_rows", each_its_own)
    monkeypatch.setattr(ops, "gather_rows", lambda rows, inverse, order, backend: rows.index_select(0, inverse))
    _graphs.release(torch.device("cpu"))


def each_its_own(rows, backend):
    """Rows as if all of them were distinct."""
    return rows, torch.arange(len(rows)), torch.full((), len(rows)), None


class Side:
    """A model and its training, the same for each side; graphs: the recorded ones, None to launch."""

    def __init__(self, graphs=None, backend="reference", optimizer=AdaGrad, words=None, micro_batches=1, **changes):
        torch.manual_seed(3)
        corpus, config = toy_corpus(), toy_config(**{"dropout": 0.4, "backend": backend} | changes)
        self.model, self.batches = toy_model(config, corpus), words or toy_words(config, corpus)
        self.model.bilm.encoder._waits_for_nothing = True
        if config.model.input == "words":
            reader = make_input_reader(self.model.options, corpus, "cpu")
            self.batches = [replace(batch, characters=reader) for batch in self.batches]
        self.optimizer = AdaGrad(self.model.parameters(), 0.2, 1.0, backend=backend)
        self.step = Step(
            self.model, self.optimizer, clip_norm=0.5, seed=11, state_reset=0.4, micro_batches=micro_batches,
            cuda_graph=graphs is not None,
        )  # fmt: skip
        if graphs is not None:
            self.step.captured.capturing = lambda *given: self._unseen(graphs.capture(*given))
        self.factor = torch.ones(())
        self.model.softmax_bias.register_hook(lambda gradient: gradient * self.factor)
        self.state, self.found = None, []

    def _unseen(self, entry):
        """The entry, whose replay no version counter sees: it runs no op of torch's on a GPU."""

        def replay():
            with torch.autograd._unsafe_preserve_version_counter(tuple(self.model.parameters())):
                entry.replay()

        return entry._replace(replay=replay)

    def take(self, number, batch, rate=0.2, factor=1.0, heard="error"):
        self.optimizer.param_groups[0]["lr"] = rate
        self.factor.fill_(factor)
        versions = [parameter._version for parameter in self.model.parameters()]
        with SparseAsOnGpu(), warnings.catch_warnings():
            warnings.simplefilter(heard, PerformanceWarning)
            result = self.step(self.batches[batch], self.state, number)
        pairs = zip(self.model.parameters(), versions, strict=True)
        assert all(parameter._version > before for parameter, before in pairs)  # or kept copies would be stale
        self.state = result.state
        self.found.append([result.forward, result.backward, float(result.gradient_norm)])

    def left(self):
        """All that a step changes, and what it reported."""
        state = self.optimizer.state
        sums = [(state[p]["sum"].clone(), state[p]["step"].clone()) for p in self.model.parameters()]
        weights = {name: tensor.clone() for name, tensor in self.model.state_dict().items()}
        return torch.tensor(self.found), self.state, weights, sums, self.optimizer.skipped


def check_equal(sides):
    torch.testing.assert_close(*(side.left() for side in sides), rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("changes", [{}, {"input": "words", "micro_batches": 3}], ids=["characters", "words-parts"])
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
    assert sides[1].optimizer.skipped == 1
    # Launched: 0 has no state, 1 and 3 are the first of their shapes, 7 finds weights that others changed.
    assert [each.times for each in graphs] == [3, 1, 1]
    assert all(parameter.grad is None for parameter in sides[1].model.parameters())


@pytest.mark.skipif(not _triton.INTERPRETED, reason="Triton's interpreter is off")
def test_replayed_kernels_leave_the_bits_of_launched_ones(monkeypatch):
    """Triton's, with copies of weights in float16: an evaluation and the next replay see what a graph changed, though
    the host has launched nothing."""
    from elmo_fast.ops.char_cnn import host

    def segment_sum(rows, keys, number):
        """As the op's, whose kernels are slow to interpret."""
        places = torch.where((keys >= 0) & (keys < number), keys.long(), number)
        return rows.new_zeros(number + 1, rows.shape[1]).index_add(0, places, rows)[:number].contiguous()

    monkeypatch.setattr(host, "segment_sum", segment_sum)
    tiny = {"backend": "triton", "precision": "float16", "unroll_steps": 1, "batch_size": 2, "n_layers": 1, "dim": 4}
    tiny |= {"filters": [[1, 3], [2, 4]], "char_embedding_dim": 4, "max_characters_per_token": 4, "projection_dim": 3}
    graphs = Recorded()
    sides = Side(**tiny), Side(graphs, **tiny)
    for side in sides:
        for layer in (side.model.bilm._elmo_lstm, *side.model.bilm._elmo_lstm.children()):
            layer.backend = "reference"  # as slow
        side.state = torch.zeros(1, 2, 2, 3), torch.zeros(1, 2, 2, 4)
        for number in range(3):
            side.take(number, number, rate=0.2 / (number + 1))
        types, characters = side.batches[3].types, side.batches[3].characters
        with torch.no_grad():
            side.found.append(side.model.eval()(types, characters, side.state)[0].flatten()[:3].tolist())
    check_equal(sides)
    assert [each.times for each in graphs] == [2]
    assert {"forward", "weight_sums", "layer", "update", "update_rows", "logit_gradients"} <= set(graphs[0].names)


def test_a_step_whose_capture_fails_is_launched(monkeypatch):
    """So are all that follow; a warning gives the reason, and no copy of a weight is taken for one that was made."""

    def not_permitted(*arguments):
        weight = sides[1].model.softmax_weight
        assert _packed.rounded_copy(weight, torch.float16) is not None
        raise RuntimeError("operation not permitted when stream is capturing")

    def stepping(optimizer, *arguments):
        """Before the update, which counts up versions, a step reads the copies."""
        weight = optimizer.param_groups[0]["params"][0]
        assert torch.equal(_packed.rounded_copy(weight, torch.float16), weight.half())
        return clip_and_step(optimizer, *arguments)

    clip_and_step = training_step.clip_and_step
    monkeypatch.setattr(training_step, "clip_and_update", not_permitted)
    monkeypatch.setattr(training_step, "clip_and_step", stepping)
    sides = Side(input="words"), Side(Recorded(), input="words")
    for number in range(4):
        sides[0].take(number, number % 2)
        if number != 2:
            sides[1].take(number, number % 2)
            continue
        with pytest.warns(PerformanceWarning, match="without a CUDA graph, launch by launch: operation not permitted"):
            sides[1].take(number, 0, heard="default")
    check_equal(sides)
    weight = sides[1].model.softmax_weight
    assert torch.equal(_packed.rounded_copy(weight, torch.float16), weight.half())


def test_a_replay_is_seen_by_copies_of_weights():
    """A rounded copy that the graph wrote is up to date; another is made anew."""
    weights = [torch.randn(3), torch.randn(3)]
    copies = [_packed.rounded_copy(weight, torch.float16) for weight in weights]
    for tensor in (*weights, copies[0]):
        tensor.data.fill_(2.0)  # past the version counters, as a replay writes
    copies[0][0] = 7.0
    _packed.count_replay(weights, weights[:1])
    assert _packed.rounded_copy(weights[0], torch.float16).tolist() == [7.0, 2.0, 2.0]
    assert _packed.rounded_copy(weights[1], torch.float16).tolist() == [2.0, 2.0, 2.0]


def test_steps_that_no_graph_can_hold_say_why_once():
    model, alone = toy_model(toy_config(), toy_corpus()), Processes()
    several = Processes()
    several.distributed = True
    groups = AdaGrad(model.parameters())
    groups.add_param_group({"params": [torch.nn.Parameter(torch.ones(1))]})
    cases = [
        (AdaGrad(model.parameters()), several, "the exchange between several processes"),
        (torch.optim.AdamW(model.parameters()), alone, "adamw the host reads the gradient's norm"),
        (groups, alone, "has several groups"),
    ]
    for optimizer, processes, why in cases:
        captured = CapturedStep(model, optimizer, processes)
        with pytest.warns(PerformanceWarning, match=f"without a CUDA graph, launch by launch: .*{why}"):
            assert not captured.serves(torch.device("cuda"))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert not captured.serves(torch.device("cuda"))
