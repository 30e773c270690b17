"""The forward pass without gradients, replayed from a CUDA graph of its bucket of rows and steps."""

from torch import Tensor

from elmo_fast.ops import _graphs, _packed
from elmo_fast.ops.projected_lstm import host
from elmo_fast.ops.projected_lstm.host import Layer

ROWS, STEPS = (
    64,
    8,
)  # buckets: powers of two up to these, then their multiples; rows and steps too many cost next to nothing

GRAPHS = _graphs.Graphs()


def forward(
    layer: Layer,
    inputs: list[Tensor],
    weights: list[list[Tensor]],
    lengths: Tensor | None,
    state: tuple[Tensor | None, Tensor | None],
    scan: host.Scan = host.scan,
) -> tuple[Tensor, Tensor, Tensor] | None:
    """As `host.forward` without saving and masks; None when no graph could be captured (a warning said why)."""
    padded = layer._replace(batch=_graphs.bucket(layer.batch, ROWS), time=_graphs.bucket(layer.time, STEPS))
    copies = host.packed_layer(weights, layer.dtype)  # brought up to date here: a replay reads them as they are

    def run(*tensors: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        *xs, valid, h0, c0 = tensors
        return host.forward(padded, xs, weights, valid, (h0, c0), [], False, scan)[0]

    def empty() -> list[Tensor]:
        new = inputs[0].new_zeros
        xs = [new(padded.batch, padded.time, layer.width) for _ in inputs]
        sizes = (layer.size, layer.cells)
        states = [new(layer.directions, padded.batch, size) for size in sizes]
        return [*xs, new(padded.batch, dtype=host.LENGTHS), *states]

    key = (padded, scan, _packed.generation(), *(copy.data_ptr() for copy in copies))
    with GRAPHS.lock:
        return _replayed(GRAPHS.get(key, inputs[0].device, run, empty), layer, inputs, lengths, state)


def _replayed(
    entry: _graphs.Entry | None,
    layer: Layer,
    inputs: list[Tensor],
    lengths: Tensor | None,
    state: tuple[Tensor | None, Tensor | None],
) -> tuple[Tensor, Tensor, Tensor] | None:
    if entry is None:
        return None
    b, t = layer.batch, layer.time
    *xs, valid, h0, c0 = entry.inputs
    for into, x in zip(xs, inputs, strict=True):
        _graphs.write(into, x, (b, t))
    valid.zero_()
    _graphs.write(valid, valid.new_full((b,), t) if lengths is None else lengths.clamp(0, t), (b,))
    for into, held in zip((h0, c0), state, strict=True):
        if held is None:
            into.zero_()
        else:
            _graphs.write(into, held, (layer.directions, b))
    entry.replay()
    outputs, h, c = entry.outputs
    return outputs.narrow(1, 0, b).narrow(2, 0, t).clone(), h.narrow(1, 0, b).clone(), c.narrow(1, 0, b).clone()
