"""What a training step reads, as tensors on its device: a batch, and what is drawn for it."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from elmo_fast.corpus import DistinctWords
from elmo_fast.devices import sent_together
from elmo_fast.modules.elmo_lstm import LayerStates
from elmo_fast.pretrain.language_model import LanguageModel
from elmo_fast.pretrain.step.regularization import dropout_masks, rows_to_reset


@dataclass(frozen=True)
class Words:
    """What one process reads in one step: its B rows of R, on the host.

    types: numbers of the words read, [2, B, T] int64, forward and backward, each in its reading order; targets: words
    to predict, [2, B, T] int64; filled: positions of each row that are text, [B] int64; words: how many are filled in
    all R rows; first_row: which of the R rows the first is; rows: R; characters: spells types on the model's device,
    [U] -> character ids [U, C] (`inputs.make_input_reader`); distinct: the distinct words of each part of the rows;
    empty: the model finds them.
    """

    types: Tensor
    targets: Tensor
    filled: np.ndarray[tuple[int], np.dtype[np.int64]]
    words: int
    first_row: int
    rows: int
    characters: Callable[[Tensor], Tensor]
    distinct: list[DistinctWords] = field(default_factory=list)

    def part(self, begin: int, end: int) -> "Words":
        """Some of the rows; their distinct words are not known."""
        return Words(
            types=self.types[:, begin:end],
            targets=self.targets[:, begin:end],
            filled=self.filled[begin:end],
            words=self.words,
            first_row=self.first_row + begin,
            rows=self.rows,
            characters=self.characters,
        )


class StepInputs(NamedTuple):
    """All that changes from step to step, besides the weights: a step is a function of these tensors.

    types, targets: as of `Words`; drawn: per direction, as the loss draws it; state: (h [L, 2, B, D], c [L, 2, B, H])
    before, None: zeros; fresh: rows whose state is reset, [B] bool, None: none; lengths: filled positions of each row,
    [B] int64, None: all T; kept: of dropout (`dropout_masks`), None: everything; distinct: as of `Words`.
    """

    types: Tensor
    targets: Tensor
    drawn: list[Any]
    state: LayerStates | None
    fresh: Tensor | None
    lengths: Tensor | None
    kept: Tensor | None
    distinct: list[DistinctWords]

    def part(self, number: int, parts: int) -> "StepInputs":
        """Of one of equal parts of the rows; the words drawn are shared by all."""
        if parts == 1:
            return self
        count = self.types.shape[1] // parts
        rows = slice(number * count, (number + 1) * count)
        return self._replace(
            distinct=self.distinct[number : number + 1],
            types=self.types[:, rows],
            targets=self.targets[:, rows],
            state=None if self.state is None else (self.state[0][:, :, rows], self.state[1][:, :, rows]),
            fresh=None if self.fresh is None else self.fresh[rows],
            lengths=None if self.lengths is None else self.lengths[rows],
            kept=None if self.kept is None else self.kept[:, :, rows],
        )


def draw_inputs(
    words: Words, state: LayerStates | None, number: int, model: LanguageModel, seed: int, state_reset: float
) -> StepInputs:
    """The inputs of step `number`, of which samples, masks and resets are functions.

    What is known on the host is sent to the model's device together; nothing waits for it. Words are drawn on the host
    (0.25 ms for 8,192 of 793,471), while a GPU works.

    state: of these rows before it; seed: of the run; state_reset: chance that a row starts from zeros.
    """
    _, rows, steps = words.types.shape
    device, lstm, dropout = next(model.parameters()).device, model.options.lstm, model.options.dropout
    fresh = lengths = kept = None
    if state is not None and state_reset:
        mine = slice(words.first_row, words.first_row + rows)
        fresh = torch.from_numpy(rows_to_reset(state_reset, seed, number, words.rows)[mine])
    if words.words < words.rows * steps:  # of all rows: every process computes the step in the same way
        lengths = torch.from_numpy(words.filled)
    drawn = [model.loss.draw(seed, 2 * number + direction, torch.device("cpu")) for direction in range(2)]
    host = StepInputs(words.types, words.targets, drawn, None, fresh, lengths, None, words.distinct)
    known = [each for each in flattened(host) if each is not None]
    inputs: StepInputs = filled_with(host, sent_together(known, device))
    if dropout:
        shape = (lstm.n_layers, rows, steps, lstm.projection_dim)
        kept = dropout_masks(dropout, seed, number, words.first_row, shape, device)
    return inputs._replace(state=state, kept=kept)


def flattened(inputs: Any) -> list[Tensor | None]:
    """The tensors of nested tuples and lists, in order, and None where one is absent."""
    if isinstance(inputs, tuple | list):
        return [each for part in inputs for each in flattened(part)]
    return [inputs]


def filled_with(inputs: Any, others: Iterable[Any]) -> Any:
    """Nested tuples and lists like `inputs`, with others in the places of its tensors, in their order."""
    following = iter(others)

    def fill(part: Any) -> Any:
        if isinstance(part, tuple | list):
            made = [fill(each) for each in part]
            return part._make(made) if hasattr(part, "_make") else type(part)(made)
        return None if part is None else next(following)

    return fill(inputs)
