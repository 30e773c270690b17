"""A biLM's whole forward pass without gradients, replayed from a CUDA graph.

A graph serves a rounded number of sentences and words: surplus ones are empty, and cost almost nothing.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from elmo_fast.modules.elmo_lstm import ElmoLstm
from elmo_fast.ops import _graphs, _triton, _weights, backend_for

Captured = tuple[Tensor, Tensor, Tensor, Tensor]
SENTENCES, WORDS = 64, 8  # numbers are rounded up to powers of two up to these, then to their multiples
CAPTURED = 16


def rounded_up(n: int, step: int) -> int:
    """Round n up to a power of two or, above `step`, to a multiple of it."""
    return 1 << max(0, n - 1).bit_length() if n <= step else -(-n // step) * step


class GraphReplay:
    """Graphs of one BiLM; a copy or a pickle of it has none."""

    def __init__(self, capturing: Callable[..., _graphs.Entry] = _graphs.capture) -> None:
        self.graphs = _graphs.Graphs(CAPTURED, capturing)

    def __reduce__(self) -> tuple[type["GraphReplay"], tuple[()]]:
        return GraphReplay, ()

    def serves(self, model: nn.Module, lstm: ElmoLstm, inputs: Tensor) -> bool:
        """Return whether this call can be replayed: if asked for, on a GPU, without gradients and without dropout."""
        dropout = model.training and any(layer.recurrent_dropout_probability > 0 for layer in lstm.forward_layers)
        needs_gradients = torch.is_grad_enabled() and any(p.requires_grad for p in model.parameters())
        return (
            bool(model.cuda_graphs)
            and _graphs.enabled(inputs.device)
            and not (dropout or needs_gradients)
            and backend_for("projected_lstm", lstm.backend) in ("auto", "triton")
            and _triton.unsupported(inputs.device, torch.float32, lstm.precision) is None
            and inputs.numel() > 0
        )

    def run(
        self, model: nn.Module, lstm: ElmoLstm, whole: Callable[..., Captured], inputs: Tensor, carry: bool
    ) -> tuple[Tensor, Tensor] | None:
        """Return (activations [L+1, B, T+2, 2D], mask [B, T+2]) of ids [B, T, C]; None if no graph serves the call.

        whole: (ids, h, c) -> (activations, mask, h, c), which is captured; model: whose parameters it uses; lstm:
        carries the state; carry: whether to start from the carried state and update it.
        """
        if not self.serves(model, lstm, inputs):
            return None
        batch, time, slots = inputs.shape
        rows, words = rounded_up(batch, SENTENCES), rounded_up(time, WORDS)
        weight = lstm.forward_layers[0].input_linearity.weight
        sizes = (lstm.hidden_size, lstm.cell_size)

        def empty() -> list[Tensor]:
            states = [weight.new_zeros(lstm.num_layers, 2, rows, size) for size in sizes]
            return [inputs.new_zeros(rows, words, slots), *states]

        def replayed(entry: _graphs.Entry) -> tuple[Tensor, Tensor]:
            state = lstm._initial(weight.new_empty(batch, 0)) if carry else None
            ids, *states = entry.inputs
            ids.zero_()[:batch, :time] = inputs
            for into, memory in zip(states, state or (None, None), strict=True):
                if memory is None:
                    into.zero_()
                else:
                    into[:, :, :batch] = memory
            entry.replay()
            activations, mask, h, c = entry.outputs
            if carry:
                lstm._carry((h[:, :, :batch].clone(), c[:, :, :batch].clone()))
            return activations[:, :batch, : time + 2].clone(), mask[:batch, : time + 2].clone()

        versions = tuple((p.data_ptr(), 0 if p.is_inference() else p._version) for p in model.parameters())
        autocast = torch.is_autocast_enabled(inputs.device.type) and torch.get_autocast_dtype(inputs.device.type)
        key = (rows, words, slots, inputs.dtype, lstm.precision, autocast)
        with lstm.turn(carry):
            return self.graphs.run(key, (_weights.generation(), versions), inputs.device, whole, empty, replayed)
