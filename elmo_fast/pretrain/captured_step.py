"""Training steps replayed from CUDA graphs: the host copies what changes in one copy, and launches once."""

from collections.abc import Callable, Hashable
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from elmo_fast._runtime.devices import pack_together, parts_of
from elmo_fast.modules.elmo_lstm import LayerStates
from elmo_fast.ops import _graphs

# Shapes of batches: whole ones and an epoch's last, each with a few padded numbers of distinct words. They share the
# memory of the largest.
GRAPHS = 16
Outcome = tuple[Tensor, Tensor, Tensor]
"""Numbers to report, and the state after: h and c."""


def _packed(inputs: Any, device: torch.device) -> tuple[Tensor, Hashable, Callable[[Tensor], Any]]:
    """Return a nested structure's tensors, on the host, in one block of bytes; their shapes and dtypes; and a function.

    The function views a copy of the bytes as the structure, and holds no tensor. None stays None.
    """
    leaves, structure = pytree.tree_flatten(inputs)
    tensors = [leaf for leaf in leaves if leaf is not None]
    specs, is_tensor = [(tensor.shape, tensor.dtype) for tensor in tensors], [leaf is not None for leaf in leaves]

    def opened(memory: Tensor) -> Any:
        parts = iter(parts_of(memory, specs))
        return pytree.tree_unflatten([next(parts) if each else None for each in is_tensor], structure)

    return pack_together(tensors, pinned=device.type == "cuda"), (*specs, *is_tensor), opened


def sent_inputs(inputs: Any, device: torch.device) -> Any:
    """Return a nested structure of the host's tensors on a device: to a GPU by one copy, for which nothing waits."""
    if device.type == "cpu":
        return inputs
    packed, _, opened = _packed(inputs, device)
    return opened(packed.to(device, non_blocking=True))


class CapturedStep:
    """The graphs of one model's training steps, one for each shape of a batch.

    A shape's first step is eager, its second is captured and replayed. What the function yields to the host, such as an
    exchange with other processes, runs between the graphs of its pieces. Weights, the optimizer's sums and the state
    between steps are read and written where they are.

    model, optimizer: that the steps change; launches: the function to capture, (inputs, state) -> pieces that return an
    `Outcome`.
    """

    def __init__(
        self,
        model: Any,
        optimizer: torch.optim.Optimizer,
        launches: Callable[[Any, LayerStates], _graphs.Pieces],
    ) -> None:
        self.model, self.optimizer, self.launches = model, optimizer, launches
        self.weights, self.buffers = list(model.parameters()), list(model.buffers())
        self.graphs = _graphs.Graphs(GRAPHS, self._captured)
        # The state between steps, in memory that all graphs read and write.
        self.carried: LayerStates | None = None

    def run(self, inputs: Any, state: LayerStates, device: torch.device) -> Outcome:
        """Take a step, replayed if possible; inputs: of `launches`, on the host."""
        specs = [(each.shape, each.dtype) for each in state]
        if self.carried is None or specs != [(each.shape, each.dtype) for each in self.carried]:
            self.carried = state[0].new_zeros(state[0].shape), state[1].new_zeros(state[1].shape)
        carried, (packed, key, opened) = self.carried, _packed(inputs, device)

        def function(memory: Tensor) -> _graphs.Pieces:
            numbers, *after = yield from _graphs.pieces_of(self.launches, opened(memory), carried)
            for into, new in zip(carried, after, strict=True):
                into.copy_(new)
            return (numbers,)

        def fill(memory: list[Tensor]) -> None:
            memory[0].copy_(packed, non_blocking=True)

        def ready(entry: _graphs.Entry) -> Callable[[], Outcome]:
            # Memory first: where there is none, the step is eager, and must not have been taken.
            numbers = torch.empty_like(entry.outputs[0])
            for into, each in zip(carried, state, strict=True):
                if each is not into:  # else a graph has left it where graphs read it
                    into.copy_(each)
            fill(entry.inputs)

            def replay() -> Outcome:
                entry.replay()
                numbers.copy_(entry.outputs[0])
                return numbers, *carried

            return replay

        with _graphs.pool_of(device).lock:  # what the host does between pieces reads memory that other graphs write
            specs = [(packed.shape, packed.dtype)]
            replay = self.graphs.run(key, self._places(), device, function, specs, fill, ready)
            if replay is not None:
                return replay()
            on_device = opened(packed.to(device, non_blocking=True))
            return _graphs.run_pieces(self.launches, on_device, state)  # type: ignore[return-value]

    def _places(self) -> list[tuple[int, torch.dtype, int]]:
        """Return where graphs read and write, and which state of frozen weights, of which they may read copies."""
        # AdaGrad's update alone is in a graph.
        sums = [state["sum"] for state in self.optimizer.state.values() if "sum" in state]
        weights = [(each, -1 if each.requires_grad else each._version) for each in (*self.weights, *self.buffers)]
        others = [(each, -1) for each in (*sums, *(self.carried or ()))]
        return [(each.data_ptr(), each.dtype, version) for each, version in (*weights, *others)]

    def _captured(self, function: _graphs.Function, inputs: list[Tensor], pool: _graphs.Pool) -> _graphs.Entry:
        self.optimizer.zero_grad(set_to_none=True)  # their memory may be all that a graph needs
        try:
            entry = _graphs.capture(function, inputs, pool, run_before=False)  # a step must not be taken twice
        finally:
            self.optimizer.zero_grad(set_to_none=True)
        trained = [weight for weight in self.weights if weight.requires_grad]

        def replay() -> None:
            entry.replay()
            torch.autograd.graph.increment_version(trained)

        return entry._replace(replay=replay)
