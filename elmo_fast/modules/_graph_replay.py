"""A biLM's whole forward pass without gradients, replayed from a CUDA graph.

A graph serves a rounded number of sentences and words: surplus ones are empty.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from elmo_fast.modules._loading import has_hooks
from elmo_fast.modules.elmo_lstm import ElmoLstm, LayerStates
from elmo_fast.ops import _graphs, _triton, backend_for

Captured = tuple[Tensor, Tensor, LayerStates]
ROWS, WORDS = 64, 4  # numbers are rounded up to powers of two up to these, then to their multiples
CAPTURED = 64  # their inputs and results share one memory


def padded_rows(rows: int) -> int:
    """Return the sentences of the graph that serves so many."""
    return _power_of_two(rows) if rows <= ROWS else -(-rows // ROWS) * ROWS


def padded_words(words: int) -> int:
    """Return the words of a sentence of the graph that serves so many.

    Batches cut by this number have few sizes: about twenty in a corpus.
    """
    if words <= WORDS:
        return _power_of_two(words)
    step = max(WORDS, _power_of_two(words) // 8)
    return -(-words // step) * step


def _power_of_two(n: int) -> int:
    return 1 << max(0, n - 1).bit_length()


def _tensors(model: nn.Module) -> list[Tensor] | None:
    """Return all tensors that a pass reads; None if a hook or a parametrization runs in it, which may read others."""
    tensors: list[Tensor] = []
    for module in model.modules():
        if module is not model and (has_hooks(module) or "parametrizations" in module._modules):
            return None
        tensors += [tensor for tensor in module._parameters.values() if tensor is not None]
        tensors += [tensor for tensor in module._buffers.values() if tensor is not None]
    return tensors


def replay(
    graphs: _graphs.Graphs,
    model: nn.Module,
    lstm: ElmoLstm,
    whole: Callable[[Tensor, LayerStates | None, Tensor | None, Tensor | None], Captured],
    inputs: Tensor,
    carry: bool,
    distinct: Tensor | None = None,
) -> tuple[Tensor, Tensor] | None:
    """Return (activations [L+1, B, T+2, 2D], mask [B, T+2]) of ids [B, T, C]; None if no graph serves the call.

    graphs: of `whole`: (inputs, state, out, distinct) -> (activations, which are `out`, mask, state), which is
    captured; model: whose tensors and settings it uses; lstm: carries the state; carry: whether to start from the
    carried state and update it; distinct: ids [U, C] of the distinct words, whose numbers [B, T+2] are then the inputs.
    """
    if not (model.cuda_graphs and isinstance(inputs, Tensor) and inputs.dim() > 1 and inputs.numel() > 0):
        return None
    if (
        not _graphs.enabled(inputs.device)
        or (model.training and any(layer.recurrent_dropout_probability > 0 for layer in lstm.forward_layers))
        or backend_for("projected_lstm", lstm.backend) not in ("auto", "triton")
        or _triton.unsupported(inputs.device, torch.float32, lstm.precision) is not None
    ):
        return None
    tensors = _tensors(model)
    if tensors is None or (torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)):
        return None
    batch, length, *slots = inputs.shape
    markers = 0 if distinct is None else 2
    time = length - markers
    rows, words = padded_rows(batch), padded_words(time)
    weight = lstm.forward_layers[0].input_linearity.weight
    shape = (lstm.num_layers + 1, rows, words + 2, 2 * lstm.hidden_size)
    specs: list[_graphs.Spec] = [((rows, words + markers, *slots), inputs.dtype), (shape, weight.dtype)]
    if carry:
        sizes = (lstm.hidden_size, lstm.cell_size)
        specs += [((lstm.num_layers, 2, rows, size), weight.dtype) for size in sizes]
    if distinct is not None:
        specs.append(((_power_of_two(len(distinct)), distinct.shape[1]), distinct.dtype))

    def function(ids: Tensor, out: Tensor, *memory: Tensor) -> tuple[Tensor, ...]:
        before = (memory[0], memory[1]) if carry else None
        activations, mask, state = whole(ids, before, out, None if distinct is None else memory[-1])
        return (activations, mask, *state) if carry else (activations, mask)

    def fill(memory: list[Tensor]) -> None:
        ids, _, *states = memory
        ids.zero_()[:batch, :length] = inputs
        if distinct is not None:
            states.pop().zero_()[: len(distinct)] = distinct
        before = lstm.initial_state(weight.new_empty(batch, 0)) if carry else None
        for into, state in zip(states, before or (None, None), strict=bool(states)):
            if state is None:
                into.zero_()
            else:
                into[:, :, :batch] = state

    def replayed(entry: _graphs.Entry) -> tuple[Tensor, Tensor]:
        fill(entry.inputs)
        entry.replay()
        activations, mask, *state = entry.outputs
        if carry:
            lstm.carry_state((state[0][:, :, :batch].clone(), state[1][:, :, :batch].clone()))
        return activations[:, :batch, : time + 2].clone(), mask[:batch, : time + 2].clone()

    key = (*specs, carry, str(model.arithmetic), lstm.settings)
    with lstm.turn(carry):
        return graphs.run(key, _graphs.TensorsRead(tensors), inputs.device, function, specs, fill, replayed)
