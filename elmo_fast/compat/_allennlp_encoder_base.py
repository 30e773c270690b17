"""AllenNLP's `_EncoderBase`: running torch's RNNs over batches sorted by length, with a carried state."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pack_padded_sequence

from elmo_fast.modules.elmo_lstm import StatefulModule

States = tuple[Tensor, ...]


def get_lengths_from_binary_sequence_mask(mask: Tensor) -> Tensor:
    """The number of true positions of each row, [B] int64."""
    return mask.long().sum(dim=-1)


def sort_batch_by_length(tensor: Tensor, sequence_lengths: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(tensor, lengths) sorted by decreasing length, the indices that undo and that make the order, [B] each."""
    lengths, order = sequence_lengths.sort(descending=True, stable=True)
    return tensor.index_select(0, order), lengths, order.argsort(), order


class _EncoderBase(StatefulModule):
    """Base of AllenNLP's recurrent encoders; states are [layers * directions, B, size].

    stateful: whether each row starts from the final state of the same row in the previous batch.
    """

    def sort_and_run_forward(
        self, module: Callable[..., Any], inputs: Tensor, mask: Tensor, hidden_state: Tensor | States | None = None
    ) -> tuple[Any, Any, Tensor]:
        """Runs `module(packed sequence, state)` on the rows that are not empty, longest first.

        Args:
            inputs: [B, T, I].
            mask: [B, T].
            hidden_state: the initial state if not stateful.

        Returns:
            (output, final state, indices that restore the order of the batch after the empty rows are appended).
        """
        with self.turn(self.stateful):
            lengths = get_lengths_from_binary_sequence_mask(mask)
            filled = int((lengths > 0).sum())
            rows, lengths, restoration, order = sort_batch_by_length(inputs, lengths)
            packed = pack_padded_sequence(rows[:filled], lengths[:filled].cpu(), batch_first=True)
            if self.stateful:
                initial = self._get_initial_states(len(mask), filled, order)
            else:
                initial = None if hidden_state is None else _selected(hidden_state, order, filled)
            output, final = module(packed, initial)
            return output, final, restoration

    def _get_initial_states(self, batch_size: int, num_valid: int, sorting_indices: Tensor) -> Tensor | States | None:
        """The carried state of B rows, sorted, without the empty ones; new rows are added as zeros."""
        if self._states is None:
            return None
        missing = batch_size - self._states[0].shape[1]
        if missing > 0:
            self._states = tuple(
                torch.cat([s, s.new_zeros(s.shape[0], missing, s.shape[2])], dim=1) for s in self._states
            )
        states = tuple(s[:, :batch_size] for s in self._states)
        return _selected(states[0] if len(states) == 1 else states, sorting_indices, num_valid)

    def _update_states(self, final_states: Any, restoration_indices: Tensor) -> None:
        """Keeps the final state (sorted, empty rows at the end as zeros), detached; zeros keep the old one."""
        new = [state.index_select(1, restoration_indices).detach() for state in final_states]
        if self._states is not None:
            new = [_updated(old, state) for old, state in zip(self._states, new, strict=True)]
        self._states = tuple(new)


def _updated(old: Tensor, new: Tensor) -> Tensor:
    unused = (new[0].sum(dim=-1) == 0)[None, :, None]
    rows = new.shape[1]
    return torch.cat([torch.where(unused, old[:, :rows], new), old[:, rows:]], dim=1)


def _selected(states: Tensor | States, order: Tensor, rows: int) -> Tensor | States:
    """The first `rows` rows of the states in that order, contiguous for cuDNN."""
    if isinstance(states, Tensor):
        return states.index_select(1, order)[:, :rows].contiguous()
    return tuple(state.index_select(1, order)[:, :rows].contiguous() for state in states)
