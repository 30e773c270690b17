"""Models that train side by side, one of them by CUDA graphs, which must leave the same bits."""

import math
import warnings

import torch

from elmo_fast.errors import PerformanceWarning
from elmo_fast.pretrain.language_model import make_language_model
from elmo_fast.pretrain.optimizer import AdaGrad
from elmo_fast.pretrain.processes import Processes
from tests.ops.graph_cases import DEVICE
from tests.pretrain.toy import toy_batches, toy_config, toy_corpus, toy_step


class Side:
    """A model and its training, the same for each side; captured: by graphs where possible; words: of the vocabulary,
    if not the text's."""

    def __init__(
        self, captured=False, backend="auto", make=AdaGrad, micro_batches=1, words=None, device=DEVICE, **changes
    ):  # fmt: skip
        torch.manual_seed(3)
        corpus, config = toy_corpus(), toy_config(**{"dropout": 0.4, "backend": backend} | changes)
        words = words or len(corpus.vocabulary)
        self.model = make_language_model(config, words, counts=torch.arange(words, 0, -1)).to(device)
        processes = Processes()
        # Rows of one of several processes are slices of batches, whose distinct words are not known.
        known = 0 if processes.distributed or config.model.input == "words" else micro_batches
        rows = config.optimizer.batch_size
        first, count = processes.assign_rows(rows)
        self.batches = toy_batches(config, corpus, distinct_parts=known, first_row=first, row_count=count)
        self.optimizer = make(self.model.parameters(), 0.2)
        self.optimizer.backend = backend
        if backend == "auto":  # these kernels are slow to interpret
            for each in (self.optimizer, self.model.loss, self.model.bilm.encoder):
                each.backend = "reference"
        self.step = toy_step(
            self.model, self.optimizer, rows=rows, first_row=first, clip_norm=0.5, state_reset=0.4,
            micro_batches=micro_batches, sparse=make is not torch.optim.AdamW, processes=processes,
            cuda_graph=captured,
        )  # fmt: skip
        self.state, self.found = None, []

    def take(self, number, batch, rate=0.2, diverges=False, heard="error"):
        """Take a step; diverges: from a state that is not finite, which the next step does not see; None: if at all."""
        self.optimizer.param_groups[0]["lr"] = rate
        versions, state = [parameter._version for parameter in self.model.parameters()], self.state
        if diverges:
            state, kept = ([part.clone().fill_(fill) for part in self.state] for fill in (math.nan, 0.0))
            for into, part in zip(kept, self.state, strict=True):
                into.copy_(part)
        with warnings.catch_warnings():
            warnings.simplefilter(heard, PerformanceWarning)
            warnings.filterwarnings("ignore", ".*using the slower backend")
            result = self.step(self.batches[batch], state, number)
        pairs = zip(self.model.parameters(), versions, strict=True)
        assert diverges in (None, not math.isfinite(result.gradient_norm))
        assert diverges in (None, True) or all(
            parameter._version > before for parameter, before in pairs
        )  # or copies would be stale
        assert all(parameter.grad is None for parameter in self.model.parameters())
        self.state = tuple(kept) if diverges else result.state
        self.found.append([float(each) for each in result[:3]])

    def left(self):
        """Everything that a step changes, and what it reported."""
        states = [self.optimizer.state[parameter] for parameter in self.model.parameters()]
        sums = [{name: tensor.clone() for name, tensor in state.items()} for state in states]
        weights = {name: tensor.clone() for name, tensor in self.model.state_dict().items()}
        return torch.tensor(self.found), self.state, weights, sums, getattr(self.optimizer, "skipped", None)


def check_equal(sides):
    torch.testing.assert_close(*(side.left() for side in sides), rtol=0, atol=0, equal_nan=True)
