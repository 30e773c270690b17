"""Models that train side by side, one of them by a stand-in for CUDA graphs, which must leave the same bits."""

import math
import sys
import warnings

import torch

from elmo_fast import ops
from elmo_fast.corpus import streams
from elmo_fast.errors import PerformanceWarning
from elmo_fast.ops import _dropout, _graphs, _table_rows
from elmo_fast.ops._checks import check_values
from elmo_fast.pretrain import dropout, exchange
from elmo_fast.pretrain.language_model import make_language_model
from elmo_fast.pretrain.optimizer import AdaGrad
from elmo_fast.pretrain.processes import Processes
from tests.ops.recorded_graph import SparseAsOnGpu
from tests.pretrain.toy import toy_batches, toy_config, toy_corpus, toy_step


def pretend(monkeypatch):
    """Steps of the CPU may be captured, which reads no value as a GPU reads none; no test finds another's graphs."""
    monkeypatch.setattr(_graphs, "enabled", lambda device: True)
    monkeypatch.setattr(streams, "PADDED_TO", 16)
    for module in (_table_rows, exchange):
        monkeypatch.setattr(module, "coalesced_at_once", lambda device: False)
    monkeypatch.setattr(dropout, "samples_by_generator", lambda device: False)
    monkeypatch.setattr(_dropout, "has_kernel", lambda device: False)  # slow to interpret
    actual = [module for name, module in sys.modules.items() if name.startswith("elmo_fast.")]
    for module in actual:
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
    """A model and its training, the same for each side; graphs: the recorded ones, None to launch; words: of the
    vocabulary, if not the text's."""

    def __init__(self, graphs=None, backend="reference", make=AdaGrad, micro_batches=1, words=None, **changes):
        torch.manual_seed(3)
        corpus, config = toy_corpus(), toy_config(**{"dropout": 0.4, "backend": backend} | changes)
        words = words or len(corpus.vocabulary)
        self.model = make_language_model(config, words, counts=torch.arange(words, 0, -1))
        processes = Processes()
        # Rows of one of several processes are slices of batches, whose distinct words are not known.
        known = 0 if processes.distributed or config.model.input == "words" else micro_batches
        rows = config.optimizer.batch_size
        first, count = processes.assign_rows(rows)
        self.batches = toy_batches(config, corpus, distinct_parts=known, first_row=first, row_count=count)
        self.model.bilm.encoder._waits_for_nothing = True
        self.optimizer = make(self.model.parameters(), 0.2)
        self.optimizer.backend = backend
        self.step = toy_step(
            self.model, self.optimizer, rows=rows, first_row=first, clip_norm=0.5, state_reset=0.4,
            micro_batches=micro_batches, sparse=make is not torch.optim.AdamW, processes=processes,
            cuda_graph=graphs is not None,
        )  # fmt: skip
        if self.step.captured is not None:
            self.step.captured.capturing = lambda *arguments: self._unseen(graphs.capture(*arguments))
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
        left_out = not math.isfinite(result.gradient_norm)
        assert left_out or all(parameter._version > before for parameter, before in pairs)  # or copies would be stale
        assert all(parameter.grad is None for parameter in self.model.parameters())
        self.state = result.state
        self.found.append([result.forward, result.backward, float(result.gradient_norm)])

    def left(self):
        """Everything that a step changes, and what it reported."""
        states = [self.optimizer.state[parameter] for parameter in self.model.parameters()]
        sums = [{name: tensor.clone() for name, tensor in state.items()} for state in states]
        weights = {name: tensor.clone() for name, tensor in self.model.state_dict().items()}
        return torch.tensor(self.found), self.state, weights, sums, getattr(self.optimizer, "skipped", None)


def check_equal(sides):
    torch.testing.assert_close(*(side.left() for side in sides), rtol=0, atol=0, equal_nan=True)
