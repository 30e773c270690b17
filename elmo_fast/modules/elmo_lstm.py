"""The stacked bidirectional LSTMs of ELMo and ELMoForManyLangs, and the state carried from batch to batch."""

import contextlib
import threading
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from elmo_fast.errors import ElmoFastError, check_counts
from elmo_fast.modules._loading import Module, read_uncalled, skip_init
from elmo_fast.modules.projected_lstm import ProjectedLSTM, run_directions
from elmo_fast.op_choices import Backend, InferencePrecision
from elmo_fast.ops._checks import check_tensor

LayerStates = tuple[Tensor, Tensor]
"""(h [L, R, B, D], c [L, R, B, H])"""

Drop = Callable[[Tensor, int, int], Tensor]
"""Dropout of x [B, T, D], the input of a layer (0 .. L-1) or the result (L), of a direction (0, 1)."""


class StateLock:
    """The lock of the thread that runs a stateful module; a second thread is refused. A copy is unlocked."""

    def __init__(self) -> None:
        self._lock = threading.RLock()

    def __reduce__(self) -> tuple[type["StateLock"], tuple[()]]:
        return StateLock, ()

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            raise ElmoFastError(
                "two threads used one stateful module at once, and it has one state to carry from batch to batch; make "
                "the module with stateful=False, or give each thread one of its own"
            )

    def __exit__(self, *error: object) -> None:
        self._lock.release()


def both_ways(outputs: list[Tensor]) -> Tensor:
    """L layers' outputs [2, B, T, D] as [L, B, T, 2D]: forward, then backward."""
    return torch.stack([layer.permute(1, 2, 0, 3) for layer in outputs]).flatten(3)


def separate(stacked: Tensor) -> list[Tensor]:
    """Return the tensors of a stack, which may be changed in place: autograd forbids that for those of unbind."""
    return [stacked[k] for k in range(len(stacked))]


def _of_all_layers(name: str, doc: str) -> Any:
    """Return a property of an ElmoLstm that is the first layer's setting `name`, and sets that of all layers."""

    def set_all(lstm: "ElmoLstm", value: str) -> None:
        for layer in lstm.children():
            setattr(layer, name, value)

    return property(lambda lstm: getattr(lstm.forward_layers[0], name), set_all, doc=doc)


class ElmoLstm(Module):
    """L layers of two independent projected LSTMs, one per direction, with a residual from the second layer on.

    The states between calls, [L, B, 2D] and [L, B, 2H], are in the tuple `_states`, which state_dict leaves out.

    Args:
        input_size: I of the first layer.
        hidden_size: D, of each direction.
        cell_size: H.
        num_layers: L.
        requires_grad: whether the parameters are trained.
        recurrent_dropout_probability, memory_cell_clip_value, state_projection_clip_value: as ProjectedLSTM's.
        stateful: whether each row of a batch starts from the final state of the same row in the previous batch.
        use_skip_connections: whether layers after the first add their input to their output (never to their state).
        project: False leaves the projections out (D = H).
        initialise: False leaves the parameters uninitialized, for a caller that fills them.
        precision, backend: as elmo_fast.ops.projected_lstm's.

    Source: AllenNLP's `ElmoLstm`; Peters et al. 2018, section 3.4.
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        cell_size: int,
        num_layers: int,
        requires_grad: bool = False,
        recurrent_dropout_probability: float = 0.0,
        memory_cell_clip_value: float | None = None,
        state_projection_clip_value: float | None = None,
        *,
        stateful: bool = True,
        use_skip_connections: bool = True,
        project: bool = True,
        initialise: bool = True,
        precision: InferencePrecision = "float32",
        backend: Backend = "auto",
    ) -> None:
        super().__init__()
        check_counts(num_layers=num_layers)
        self.stateful = stateful
        self._states: tuple[Tensor, ...] | None = None
        self._state_lock = StateLock()
        self.input_size, self.hidden_size, self.cell_size = input_size, hidden_size, cell_size
        self.num_layers = num_layers
        self.requires_grad = requires_grad
        self.use_skip_connections = use_skip_connections
        self.memory_cell_clip_value = memory_cell_clip_value
        self.state_projection_clip_value = state_projection_clip_value
        for layer in range(num_layers):
            for direction in ("forward", "backward"):
                lstm = ProjectedLSTM(
                    hidden_size if layer else input_size,
                    hidden_size,
                    cell_size,
                    direction == "forward",
                    recurrent_dropout_probability,
                    memory_cell_clip_value,
                    state_projection_clip_value,
                    project=project,
                    initialise=initialise,
                    precision=precision,
                    backend=backend,
                )
                self.add_module(f"{direction}_layer_{layer}", lstm)
        self.requires_grad_(requires_grad)

    precision = _of_all_layers("precision", "Precision of the layers; setting it sets all of theirs.")
    backend = _of_all_layers("backend", "Backend of the layers; setting it sets all of theirs.")

    @property
    def settings(self) -> tuple[Any, ...]:
        """What decides the numbers of the layers besides their tensors."""
        names = "memory_cell_clip_value", "state_projection_clip_value", "precision", "backend"
        return self.use_skip_connections, *(getattr(layer, name) for layer in self.children() for name in names)

    @property
    def forward_layers(self) -> list[ProjectedLSTM]:
        """The forward direction's layers, the lowest first."""
        return [self._modules[f"forward_layer_{i}"] for i in range(self.num_layers)]  # type: ignore[misc]

    @property
    def backward_layers(self) -> list[ProjectedLSTM]:
        """The backward direction's layers, the lowest first."""
        return [self._modules[f"backward_layer_{i}"] for i in range(self.num_layers)]  # type: ignore[misc]

    def reset_parameters(self) -> None:
        """Initialize as bilm-tf does: Glorot-uniform matrices, forget bias 1."""
        for layer in [*self.forward_layers, *self.backward_layers]:
            layer.reset_parameters_glorot()

    def forward(self, inputs: Tensor, mask: Tensor, *, stateful: bool | None = None) -> Tensor:
        """Return the outputs of every layer, [L, B, T, 2D] (forward, then backward), 0 where masked.

        Args:
            inputs: [B, T, I].
            mask: valid positions, [B, T] bool or number; each row's first ones.
            stateful: overrides the module's setting for this call; None: no override.

        Raises: ElmoFastError: a stateful module that is exported or in use by another thread.
        """
        if not (isinstance(inputs, Tensor) and isinstance(mask, Tensor)):
            check_tensor("ElmoLstm", "inputs", inputs)
            check_tensor("ElmoLstm", "mask", mask)
        lengths, carry = mask.long().sum(dim=1), self.stateful if stateful is None else stateful
        with self.turn(carry):
            state = self.initial_state(inputs) if carry else None
            outputs, state = self.run_layers(inputs, inputs, lengths, state)
            if carry:
                self.carry_state(state)
        return both_ways(outputs)

    def run_layers(
        self,
        forward_inputs: Tensor,
        backward_inputs: Tensor,
        lengths: Tensor | None,
        state: LayerStates | None,
        *,
        reverse: tuple[bool, bool] = (False, True),
        drop: Drop | None = None,
    ) -> tuple[list[Tensor], LayerStates]:
        """Run both directions, each over its own inputs [B, T, I]; the state is passed in and returned, not carried.

        Args:
            lengths: [B] int64; None: all T.
            state: the initial state; None: zeros.
            reverse: which direction reads its inputs from the end; bilm-tf's backward model reads a reversed stream
                forwards.
            drop: dropout of the inputs of every layer; the residual adds the dropped input (Peters' bilm-tf,
                training.py).

        Returns:
            (L outputs [2, B, T, D], state after each row's last valid step).
        """
        both, outputs, hs, cs = [forward_inputs, backward_inputs], [], [], []
        layers: list[Any] = list(self._modules.values())  # forward_layer_0, backward_layer_0, forward_layer_1, ...
        read_uncalled(*layers)
        for i, pair in enumerate(zip(layers[::2], layers[1::2], strict=True)):
            if drop is not None:
                both = [drop(x, i, direction) for direction, x in enumerate(both)]
            before = None if state is None else (state[0][i], state[1][i])
            residual = i > 0 and self.use_skip_connections
            output, (h, c) = run_directions(pair, both, lengths, before, reverse=reverse, residual=residual)
            both = list(output.unbind(0))  # its gradient is one stack; of two selections, zeros and sums
            outputs.append(output)
            hs.append(h)
            cs.append(c)
        return outputs, (torch.stack(hs), torch.stack(cs))

    def initial_state(self, inputs: Tensor) -> LayerStates | None:
        """Return the carried state for a batch of B rows: its first B rows, and zeros for new rows.

        It has the device and dtype of the inputs, wherever the module was when it was carried.
        """
        if self._states is None:
            return None
        batch, states = inputs.shape[0], []
        for state in self._states:
            state = state[:, :batch].to(inputs)
            if not torch.compiler.is_compiling() and state.is_inference() and not torch.is_inference_mode_enabled():
                state = state.clone()  # autograd refuses to save what inference mode made
            layers, rows, width = state.shape
            if rows < batch:
                state = torch.cat([state, state.new_zeros(layers, batch - rows, width)], dim=1)
            states.append(state.unflatten(2, (2, -1)).transpose(1, 2).contiguous())
        return states[0], states[1]

    def carry_state(self, state: LayerStates) -> None:
        """Keep the final state, detached.

        Rows beyond this batch keep theirs. A row without a word keeps its initial state. Tensors on meta have no values
        to carry.
        """
        if state[0].is_meta:
            return
        new = [each.detach().transpose(1, 2).flatten(2) for each in state]
        rows = new[0].shape[1]
        if self._states is not None and self._states[0].shape[1] > rows:
            new = [torch.cat([n, old[:, rows:].to(n)], dim=1) for n, old in zip(new, self._states, strict=True)]
        self._states = tuple(new)

    def turn(self, carry: bool) -> contextlib.AbstractContextManager[None]:
        """Return the context of a call; if it carries state, one thread at a time may enter, and no exported program.

        Raises: ElmoFastError.
        """
        if carry and not torch.compiler.is_compiling() and torch._C._current_graph_task_id() != -1:
            raise ElmoFastError(
                "a stateful module was called within a backward pass (by torch.utils.checkpoint, for example), which "
                "would start from the state after this batch and carry it on twice; make it with stateful=False"
            )
        if carry and (torch.compiler.is_exporting() or torch.jit.is_tracing()):
            raise ElmoFastError(
                "an exported program cannot carry the state from batch to batch; make the module with stateful=False"
            )
        return self._state_lock if carry and not torch.compiler.is_compiling() else contextlib.nullcontext()

    def reset_states(self, mask: Tensor | None = None) -> None:
        """Forget the state of all rows, or of those that `mask` [B] marks."""
        with self.turn(self.stateful):
            if mask is None or self._states is None:
                self._states = None
            else:
                self._states = tuple(
                    state.masked_fill(mask.bool().view(1, state.shape[1], 1), 0) for state in self._states
                )


class JoinedLstm(Module):
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

    stateful = False
    backend: Backend = "auto"

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
        self.projection = skip_init(nn.Linear, cell_size, width)
        self.requires_grad_(requires_grad)

    def reset_parameters(self) -> None:
        """Initialize as torch does."""
        self.encoder.reset_parameters()
        self.projection.reset_parameters()

    def reset_states(self) -> None:
        """Do nothing: no state is carried."""

    def forward(self, inputs: Tensor, mask: Tensor, *, stateful: bool | None = None) -> Tensor:
        """Return the outputs [1, B, T, 2D] (forward, then backward), 0 where masked; arguments as ElmoLstm's."""
        check_tensor("ElmoLstm", "inputs", inputs)
        check_tensor("ElmoLstm", "mask", mask)
        batch, time = mask.shape
        if not batch:
            return inputs.new_zeros(1, 0, time, 2 * self.hidden_size)
        lengths = mask.long().sum(dim=1).cpu()
        packed = pack_padded_sequence(inputs, lengths, batch_first=True, enforce_sorted=False)
        hidden, _ = pad_packed_sequence(self.encoder(packed)[0], batch_first=True, total_length=time)
        projected = self.projection(hidden.unflatten(2, (2, -1)))
        return torch.where(mask.bool()[..., None, None], projected, 0).flatten(2)[None]
