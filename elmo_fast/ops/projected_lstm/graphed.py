"""The forward pass without gradients, replayed from a CUDA graph of its bucket of rows and steps."""

import weakref
from typing import Any

from torch import Tensor

from elmo_fast.ops import _graphs, _packed
from elmo_fast.ops._capture import Entry
from elmo_fast.ops.projected_lstm import host

# Buckets: powers of two up to these, then their multiples; rows and steps too many cost next to nothing.
ROWS, STEPS = 64, 8
WEIGHTS = ("weight_ih", "weight_hh", "bias", "weight_hr")
GRAPHS = _graphs.Graphs()


def forward(a: Any) -> tuple[Tensor, Tensor, Tensor] | None:
    """As `host.forward` without saving and masks; None where no graph serves the call (`Graphs.run`)."""
    layer, weights = host.layer_of(a), {name: getattr(a, name) for name in WEIGHTS}
    nothing: dict[str, Any] = {name: [] for name in ("inputs", *WEIGHTS)} | {"lengths": None, "h0": None, "c0": None}
    kept = a._replace(**nothing)  # no tensor of one call, and no parameter: a graph keeps no deleted model
    owners = {name: [weakref.ref(each) for each in weights[name]] for name in WEIGHTS}
    padded = layer._replace(batch=_graphs.bucket(layer.batch, ROWS), time=_graphs.bucket(layer.time, STEPS))
    copies = host.packed_layer(a, layer.dtype)  # brought up to date here: a replay reads them as they are

    def run(*tensors: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        *xs, valid, h0, c0 = tensors
        alive = {name: [each() for each in of] for name, of in owners.items()}
        assert copies  # kept with the graph that reads them
        return host.forward(kept._replace(inputs=xs, lengths=valid, h0=h0, c0=c0, **alive))[0]

    def empty() -> list[Tensor]:
        new = a.inputs[0].new_zeros
        xs = [new(padded.batch, padded.time, layer.width) for _ in a.inputs]
        states = [new(layer.directions, padded.batch, size) for size in (layer.size, layer.cells)]
        return [*xs, new(padded.batch, dtype=host.LENGTHS), *states]

    def replayed(entry: Entry) -> tuple[Tensor, Tensor, Tensor]:
        return _replayed(entry, layer, a)

    key = (padded, *(copy.data_ptr() for copy in copies))
    parameters = [each for of in weights.values() for each in of]
    return GRAPHS.run(key, _packed.generation(), a.inputs[0].device, run, empty, replayed, parameters)


def _replayed(entry: Entry, layer: host.Layer, a: Any) -> tuple[Tensor, Tensor, Tensor]:
    b, t = layer.batch, layer.time
    *xs, valid, h0, c0 = entry.inputs
    for into, x in zip(xs, a.inputs, strict=True):
        _graphs.write(into, x, (b, t))
    valid.zero_()
    _graphs.write(valid, valid.new_full((b,), t) if a.lengths is None else a.lengths.clamp(0, t), (b,))
    for into, held in ((h0, a.h0), (c0, a.c0)):
        if held is None:
            into.zero_()
        else:
            _graphs.write(into, held, (layer.directions, b))
    entry.replay()
    outputs, h, c = entry.outputs
    return outputs.narrow(1, 0, b).narrow(2, 0, t).clone(), h.narrow(1, 0, b).clone(), c.narrow(1, 0, b).clone()
