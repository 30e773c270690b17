"""One layer, one direction of the projected LSTM, as a module with its parameters."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from elmo_fast import ops
from elmo_fast.errors import ElmoFastError, check_counts
from elmo_fast.modules._loading import Module, check_settings, read_uncalled, skip_init
from elmo_fast.op_choices import Backend, InferencePrecision
from elmo_fast.ops import LSTMWeights, PackedWeights
from elmo_fast.ops._checks import check_clips, check_tensor


class ProjectedLSTM(Module):
    """An LSTM whose hidden state is projected, with clips on the cell and on the projection.

    See elmo_fast.ops.projected_lstm.

    Args:
        input_size: I.
        hidden_size: D, width of the projection (torch.nn.LSTM's proj_size).
        cell_size: H (torch.nn.LSTM's hidden_size).
        go_forward: runs from the first position to the last; False: from the last to the first.
        recurrent_dropout_probability: dropout on the hidden state in training, with one mask per sequence for all
            steps.
        memory_cell_clip_value: bound of |cell|; None or 0: no clip.
        state_projection_clip_value: bound of |projection|; None or 0: no clip.
        project: False omits the projection (D = H).
        initialise: False leaves the parameters uninitialized, for a caller that fills them.
        precision, backend: as in the op.

    Source: AllenNLP's `LstmCellWithProjection`. Matrices start block-orthogonal, the forget bias at 1, other biases
    at 0.
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        cell_size: int,
        go_forward: bool = True,
        recurrent_dropout_probability: float = 0.0,
        memory_cell_clip_value: float | None = None,
        state_projection_clip_value: float | None = None,
        *,
        project: bool = True,
        initialise: bool = True,
        precision: InferencePrecision = "float32",
        backend: Backend = "auto",
    ) -> None:
        super().__init__()
        check_settings(precision, backend)
        check_counts(input_size=input_size, hidden_size=hidden_size, cell_size=cell_size)
        cell, projection = memory_cell_clip_value or None, state_projection_clip_value or None
        check_clips("ProjectedLSTM", memory_cell_clip_value=cell, state_projection_clip_value=projection)
        if not project and hidden_size != cell_size:
            raise ElmoFastError(
                f"without a projection hidden_size must equal cell_size; got {hidden_size} and {cell_size}"
            )
        if not 0 <= recurrent_dropout_probability < 1:
            raise ElmoFastError(
                f"recurrent_dropout_probability must be in [0, 1); got {recurrent_dropout_probability!r}"
            )
        self.input_size, self.hidden_size, self.cell_size = input_size, hidden_size, cell_size
        self.go_forward = go_forward
        self.recurrent_dropout_probability = recurrent_dropout_probability
        self.memory_cell_clip_value = memory_cell_clip_value
        self.state_projection_clip_value = state_projection_clip_value
        self.precision, self.backend = precision, backend
        self._packed = PackedWeights()
        self.input_linearity = skip_init(nn.Linear, input_size, 4 * cell_size, bias=False)
        self.state_linearity = skip_init(nn.Linear, hidden_size, 4 * cell_size, bias=True)
        self.state_projection = skip_init(nn.Linear, cell_size, hidden_size, bias=False) if project else None
        if initialise:
            self.reset_parameters()

    @classmethod
    @torch.no_grad()
    def from_torch(cls, module: nn.LSTM, layer: int = 0, *, reverse: bool = False, **settings: Any) -> "ProjectedLSTM":
        """Return a copy of one layer and direction of torch.nn.LSTM: its hidden_size is our cell_size.

        Args:
            module: batch_first or not; the call here is always batch first.
            layer: from 0, the lowest.
            reverse: the direction that reads from the end, of a bidirectional module.
            settings: clips, dropout, precision, backend, as the constructor's.

        Raises: ElmoFastError: `module` has no such layer or direction.
        """
        if not 0 <= layer < module.num_layers or (reverse and not module.bidirectional):
            raise ElmoFastError(
                f"ProjectedLSTM.from_torch: layer and reverse must name a layer of module, which has "
                f"{module.num_layers}, bidirectional={module.bidirectional}; got {layer=}, {reverse=}"
            )
        weights = torch_weights(module, layer, reverse)
        width, project = module.proj_size or module.hidden_size, module.proj_size > 0
        own = cls(weights[0].shape[1], width, module.hidden_size, not reverse, project=project, **settings)
        for parameter, values in zip(own.to(weights[0]).weights, weights, strict=True):
            if parameter is not None and values is not None:
                parameter.copy_(values)
        return own

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Initialize each gate's matrices as orthogonal, the projection as torch.nn.Linear's, the forget bias as 1."""
        for linear in (self.input_linearity, self.state_linearity):
            for gate in linear.weight.split(self.cell_size):
                nn.init.orthogonal_(gate)
        self._reset_bias()
        if self.state_projection is not None:
            self.state_projection.reset_parameters()

    @torch.no_grad()
    def reset_parameters_glorot(self) -> None:
        """Initialize as TensorFlow's LSTMCell does: kernel [I+D, 4H] and projection [H, D] Glorot-uniform."""
        bound = (6 / (self.input_size + self.hidden_size + 4 * self.cell_size)) ** 0.5
        self.input_linearity.weight.uniform_(-bound, bound)
        self.state_linearity.weight.uniform_(-bound, bound)
        self._reset_bias()
        if self.state_projection is not None:
            bound = (6 / (self.cell_size + self.hidden_size)) ** 0.5
            self.state_projection.weight.uniform_(-bound, bound)

    def _reset_bias(self) -> None:
        self.state_linearity.bias.zero_()
        self.state_linearity.bias[self.cell_size : 2 * self.cell_size] = 1

    @property
    def weights(self) -> LSTMWeights:
        """The parameters in the form of the op."""
        of_hidden = None if self.state_projection is None else self.state_projection.weight
        return LSTMWeights(
            self.input_linearity.weight, self.state_linearity.weight, self.state_linearity.bias, of_hidden
        )

    def recurrent_mask(self, batch: int, like: Tensor) -> Tensor:
        """Return a dropout mask [B, D], scaled by 1/(1-p), for one pass."""
        p = self.recurrent_dropout_probability
        mask = torch.rand(batch, self.hidden_size, dtype=like.dtype, device=like.device) > p
        return mask.to(like.dtype) / (1 - p)

    def forward(
        self,
        inputs: Tensor,
        batch_lengths: Sequence[int] | Tensor | None = None,
        initial_state: tuple[Tensor, Tensor] | None = None,
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Run over a batch of padded sequences.

        Args:
            inputs: [B, T, I].
            batch_lengths: valid positions per row, B numbers in any order; None: all T.
            initial_state: (hidden [1, B, D], cell [1, B, H]); None: zeros.

        Returns:
            (outputs [B, T, D], 0 past each length, (hidden [1, B, D], cell [1, B, H])).
        """
        check_tensor("ProjectedLSTM", "inputs", inputs)
        lengths = None
        if batch_lengths is not None:
            lengths = torch.as_tensor(batch_lengths, dtype=torch.int64, device=inputs.device)
        read_uncalled(*self.children())
        outputs, state = run_directions([self], [inputs], lengths, initial_state, reverse=[not self.go_forward])
        return outputs[0], state


def torch_weights(module: nn.LSTM, layer: int, reverse: bool) -> LSTMWeights:
    """Return the weights of one layer and direction of torch.nn.LSTM, with one bias for the two that torch adds."""
    names = module._all_weights[layer * (1 + module.bidirectional) + reverse]
    of = {name.split("_l")[0]: getattr(module, name) for name in names}
    bias = of["bias_ih"] + of["bias_hh"] if module.bias else of["weight_hh"].new_zeros(4 * module.hidden_size)
    return LSTMWeights(of["weight_ih"], of["weight_hh"], bias, of.get("weight_hr"))


def run_directions(
    lstms: Sequence[ProjectedLSTM],
    inputs: Sequence[Tensor],
    lengths: Tensor | None,
    state: tuple[Tensor, Tensor] | None,
    *,
    reverse: Sequence[bool],
    residual: bool = False,
) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """Run elmo_fast.ops.projected_lstm of R modules of the same settings, each over its own inputs [B, T, I]."""
    first, weights, masks = lstms[0], [], []
    for lstm in lstms:
        weights.append(lstm.weights)
        if first.training and first.recurrent_dropout_probability > 0:
            masks.append(lstm.recurrent_mask(inputs[0].shape[0], inputs[0]))
    return ops.projected_lstm(
        inputs,
        weights,
        lengths,
        state,
        reverse=reverse,
        cell_clip=first.memory_cell_clip_value or None,
        projection_clip=first.state_projection_clip_value or None,
        residual=residual,
        recurrent_masks=masks or None,
        precision=first.precision,
        packed=first._packed,  # those of all directions
        backend=first.backend,
    )
