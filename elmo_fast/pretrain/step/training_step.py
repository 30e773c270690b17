"""One step of training: both losses, their gradient, the exchange with other processes, the clip, the update."""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from elmo_fast.modules.elmo_lstm import LayerStates
from elmo_fast.pretrain.data.inputs import trained_embedding
from elmo_fast.pretrain.language_model import LanguageModel
from elmo_fast.pretrain.processes import Processes
from elmo_fast.pretrain.step.adagrad import clip_and_step
from elmo_fast.pretrain.step.gradient_exchange import average_gradients, wrap_in_ddp
from elmo_fast.pretrain.step.regularization import RowDropout, reset_rows


@dataclass(frozen=True)
class Words:
    """What one process reads in one step: its B rows of R.

    types: numbers of the words read, [2, B, T] int64, forward and backward, each in its reading order; targets: words
    to predict, [2, B, T] int64; filled: positions of each row that are text, [B] int64, on the CPU; words: how many
    are filled in all R rows; first_row: which of the R rows the first is; rows: R; characters: spells types,
    [U] -> character ids [U, C] (`inputs.make_input_reader`).
    """

    types: Tensor
    targets: Tensor
    filled: np.ndarray[tuple[int], np.dtype[np.int64]]
    words: int
    first_row: int
    rows: int
    characters: Callable[[Tensor], Tensor]

    def part(self, begin: int, end: int) -> "Words":
        """Some of the rows."""
        return replace(
            self,
            types=self.types[:, begin:end],
            targets=self.targets[:, begin:end],
            filled=self.filled[begin:end],
            first_row=self.first_row + begin,
        )


class StepResult(NamedTuple):
    """forward, backward: mean loss per word of all rows, nats; gradient_norm: before the clip; state: after it.

    On a GPU the losses and gradient_norm are [] tensors: reading one waits for the step.
    """

    forward: float | Tensor
    backward: float | Tensor
    gradient_norm: float | Tensor
    state: LayerStates


class Step:
    """Updates a model once per call.

        loss_n = the model's loss of every filled position of all R rows, both directions
        gradient of  ½ Σ loss_n / R,  clipped at a global norm, then the optimizer's step

    which is bilm-tf's gradient of T times the mean loss wherever all positions are filled.

    model, optimizer: updated in place; clip_norm: largest norm of all gradients together; seed: of samples, dropout and
    resets; state_reset: chance that a row starts the step from zeros; micro_batches: parts of the rows that are
    computed one after the other; sparse: the gradients of the tables (softmax, word vectors) as the rows used (the same
    numbers); processes: the processes that train together.

    Source: bilm-tf, bilm/training.py.
    """

    def __init__(
        self,
        model: LanguageModel,
        optimizer: torch.optim.Optimizer,
        *,
        clip_norm: float,
        seed: int = 0,
        state_reset: float = 0.0,
        micro_batches: int = 1,
        sparse: bool = True,
        processes: Processes | None = None,
    ) -> None:
        self.model, self.optimizer = model, optimizer
        self.clip_norm, self.seed, self.state_reset, self.micro_batches = clip_norm, seed, state_reset, micro_batches
        self.processes = Processes() if processes is None else processes
        embedding = trained_embedding(model)
        # Tables whose gradients have the same rows.
        self.tables: list[list[nn.Parameter]] = [list(model.loss.parameters())]
        model.loss.sparse = sparse
        if embedding is not None:
            model.bilm.encoder.sparse = sparse
            self.tables.append([embedding])
        self.streams = wrap_in_ddp(model.streams, self.processes, [] if embedding is None else [embedding])

    def __call__(self, words: Words, state: LayerStates | None, number: int) -> StepResult:
        """Takes step `number` (it selects samples and masks); state: of these rows before it, None for zeros."""
        state = reset_rows(state, self.state_reset, self.seed, number, words.first_row, words.rows)
        self.model.train()
        self.optimizer.zero_grad(set_to_none=True)
        device = words.types.device
        offsets = [2 * number + direction for direction in range(2)]
        drawn = [self.model.loss.draw(self.seed, offset, device) for offset in offsets]
        sums = torch.zeros(2, dtype=torch.float64, device=device)
        states, no_sync = [], getattr(self.streams, "no_sync", contextlib.nullcontext)
        for part, held, last in self._parts(words, state):
            with contextlib.nullcontext() if last else no_sync():
                losses, after = self._losses(part, held, number, drawn)
                # The mean over processes of this, which the exchange makes, is the sum over all rows.
                (0.5 * self.processes.size / words.rows * losses.sum()).backward()
            sums += losses.detach()
            states.append(after)
        for table in self.tables:
            average_gradients(table, self.processes)
        norm = clip_and_step(self.optimizer, self.model.parameters(), self.clip_norm)
        means = self.processes.sum_(sums) / words.words
        forward, backward = means if means.is_cuda else means.tolist()
        h, c = (torch.cat(column, dim=2) for column in zip(*states, strict=True))
        return StepResult(forward, backward, norm, (h, c))

    def _parts(self, words: Words, state: LayerStates | None) -> Iterator[tuple[Words, LayerStates | None, bool]]:
        count = words.types.shape[1] // self.micro_batches
        for i in range(self.micro_batches):
            rows = slice(i * count, (i + 1) * count)
            held = None if state is None else (state[0][:, :, rows], state[1][:, :, rows])
            yield words.part(rows.start, rows.stop), held, i == self.micro_batches - 1

    def _losses(
        self, words: Words, state: LayerStates | None, number: int, drawn: list[Any]
    ) -> tuple[Tensor, LayerStates]:
        """The sums of both directions' losses, [2], and the state after."""
        _, rows, steps = words.types.shape
        device, lstm = words.types.device, self.model.options.lstm
        lengths = None if (words.filled == steps).all() else torch.from_numpy(words.filled).to(device)
        drop = None
        if self.model.options.dropout:
            shape = (lstm.n_layers, rows, steps, lstm.projection_dim)
            drop = RowDropout(self.model.options.dropout, self.seed, number, words.first_row, shape, device)
        hidden, state = self.streams(words.types, words.characters, state, lengths, drop)
        directions = zip(hidden.flatten(1, 2), words.targets.flatten(1), drawn, strict=True)
        losses = [self.model.loss.training_losses(*each) for each in directions]
        if lengths is not None:
            text = (torch.arange(steps, device=device) < lengths[:, None]).flatten()
            losses = [loss.where(text, 0) for loss in losses]
        return torch.stack([loss.sum() for loss in losses]), state
