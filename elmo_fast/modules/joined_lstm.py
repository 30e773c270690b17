"""The LSTM of ELMoForManyLangs' encoder "lstm": each layer reads both directions of the one below."""

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from elmo_fast.errors import ElmoFastError
from elmo_fast.modules._loading import unset
from elmo_fast.modules.elmo_lstm import StatefulModule, both_ways


class JoinedLstm(StatefulModule):
    """torch.nn.LSTM in both directions, and one projection with a bias of either direction of its last layer.

        h = LSTM(x),  y = [h_forward P^T + b, h_backward P^T + b]

    It has no clips, carries no state from batch to batch, and runs in the parameters' dtype. The backward direction of
    a sentence begins at its end, not in the padding of its batch.

    Args:
        width: D, of the inputs and of each direction's outputs.
        cell_size: H.
        layers: how many.
        requires_grad: whether the parameters are trained.
        precision: "float32", since torch.nn.LSTM rounds no operands.

    Raises: ElmoFastError.

    Source: ELMoForManyLangs, modules/lstm.py.
    """

    def __init__(
        self, width: int, cell_size: int, layers: int, requires_grad: bool = False, *, precision: str = "float32"
    ) -> None:
        super().__init__()
        if precision != "float32":
            raise ElmoFastError(
                f'this model\'s LSTM is torch.nn.LSTM (encoder "lstm"), which runs in float32 alone; got {precision=!s}'
            )
        self.hidden_size, self.cell_size, self.num_layers, self.precision = width, cell_size, 1, precision
        self.encoder = nn.LSTM(width, cell_size, num_layers=layers, bidirectional=True, batch_first=True)
        self.projection = unset(nn.Linear, cell_size, width)
        self.requires_grad_(requires_grad)

    def reset_parameters(self) -> None:
        """Initializes as torch does."""
        self.encoder.reset_parameters()
        self.projection.reset_parameters()

    @property
    def stateful(self) -> bool:
        """False: no state is carried, whatever is assigned."""
        return False

    @stateful.setter
    def stateful(self, carry: bool) -> None:
        pass

    def forward(self, inputs: Tensor, mask: Tensor, *, stateful: bool | None = None) -> Tensor:
        """The outputs [1, B, T, 2D] (forward, then backward), 0 where masked; arguments as ElmoLstm's."""
        return both_ways(self.outputs(inputs, mask, stateful=stateful))

    def outputs(self, inputs: Tensor, mask: Tensor, *, stateful: bool | None = None) -> list[Tensor]:
        """What `forward` returns before the directions are put side by side: one output [2, B, T, D]."""
        batch, time = mask.shape
        if not batch:
            return [inputs.new_zeros(2, 0, time, self.hidden_size)]
        lengths = mask.long().sum(dim=1).cpu()
        packed = pack_padded_sequence(inputs, lengths, batch_first=True, enforce_sorted=False)
        hidden, _ = pad_packed_sequence(self.encoder(packed)[0], batch_first=True, total_length=time)
        projected = self.projection(hidden.unflatten(2, (2, -1)))
        return [torch.where(mask.bool()[..., None, None], projected, 0).permute(2, 0, 1, 3)]
