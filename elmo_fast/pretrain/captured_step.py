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


class _Packed:
    """Tensors of a nested structure, on the host, in one block of bytes; None stays None."""

    def __init__(self, inputs: Any, *, pinned: bool) -> None:
        leaves, self.structure = pytree.tree_flatten(inputs)
        tensors = [leaf for leaf in leaves if leaf is not None]
        self.specs = tuple((tensor.shape, tensor.dtype) for tensor in tensors)
        self.is_tensor = tuple(leaf is not None for leaf in leaves)
        self.bytes = pack_together(tensors, pinned=pinned)

    @property
    def opened(self) -> Callable[[Tensor], Any]:
        """Return the function that views a copy of the bytes as the structure; it holds no tensor."""
        specs, is_tensor, structure = self.specs, self.is_tensor, self.structure

        def inputs_in(memory: Tensor) -> Any:
            parts = iter(parts_of(memory, specs))
            return pytree.tree_unflatten([next(parts) if each else None for each in is_tensor], structure)

        return inputs_in


def sent_inputs(inputs: Any, device: torch.device) -> Any:
    """Return a nested structure of the host's tensors on a device: to a GPU by one copy, for which nothing waits."""
    if device.type == "cpu":
        return inputs
    packed = _Packed(inputs, pinned=True)
    return packed.opened(packed.bytes.to(device, non_blocking=True))


class CapturedStep:
    """The graphs of one model's training steps, one for each shape of a batch.

    A shape's first step is eager, its second is captured and replayed. What the function yields to the host, such as an
    exchange with other processes, runs between the graphs of its pieces. Weights, the optimizer's sums and the state
    between steps are read and written where they are.

    model, optimizer: that the steps change; launches: the function to capture, (inputs, state) -> pieces that return an
    `Outcome`; settings: returns what decides a step besides tensors.
    """

    def __init__(
        self,
        model: Any,
        optimizer: torch.optim.Optimizer,
        launches: Callable[[Any, LayerStates], _graphs.Pieces],
        settings: Callable[[], Hashable] = lambda: None,
    ) -> None:
        self.model, self.optimizer, self.launches, self.settings = model, optimizer, launches, settings
        # Where the weights are: the model's own dictionaries, since it may get other parameters.
        self.slots = [(module._parameters, name) for module in model.modules() for name in module._parameters]
        self.buffers = list(model.buffers())
        self.graphs = _graphs.Graphs(GRAPHS, self._captured)
        # The state between steps, in memory that all graphs read and write.
        self.carried: LayerStates | None = None
        # How often anything but a step has changed a tensor, or taken another one: graphs are of those before.
        self._changes = 0
        self._left = self._read()

    def run(self, inputs: Any, state: LayerStates, device: torch.device) -> Outcome:
        """Take a step, replayed if possible; inputs: of `launches`, on the host."""
        now = self._read()
        specs = [(each.shape, each.dtype) for each in state]
        moved = self.carried is None or specs != [(each.shape, each.dtype) for each in self.carried]
        if moved:
            self.carried = state[0].new_zeros(state[0].shape), state[1].new_zeros(state[1].shape)
        if moved or now != self._left:
            self._changes += 1  # drops all graphs
        packed = _Packed(inputs, pinned=device.type == "cuda")
        with _graphs.pool_of(device).lock:  # what the host does between pieces reads memory that other graphs write
            if (outcome := self._replayed(packed, state, device)) is not None:
                now.count_writes()  # a replay changes nothing else
                self._left = now
                return outcome
            on_device = packed.opened(packed.bytes.to(device, non_blocking=True))
            launched = _graphs.run_pieces(self.launches, on_device, state)
        self._left = self._read()
        return launched  # type: ignore[return-value]

    def _read(self) -> _graphs.TensorsRead:
        weights = [*self._weights(), *self.buffers]
        states = [self.optimizer.state.get(weight, {}) for weight in weights]
        sums = [each for state in states for each in state.values() if isinstance(each, Tensor) and each.dim()]
        skipped = getattr(self.optimizer, "skipped", None)
        return _graphs.TensorsRead([*weights, *sums, *([] if skipped is None else [skipped])], weights)

    def _replayed(self, packed: _Packed, state: LayerStates, device: torch.device) -> Outcome | None:
        """Replay a step; None if it must be launched instead, of which nothing has been done."""
        opened = packed.opened

        def function(memory: Tensor) -> _graphs.Pieces:
            assert self.carried is not None
            numbers, *after = yield from _graphs.pieces_of(self.launches, opened(memory), self.carried)
            for into, new in zip(self.carried, after, strict=True):
                into.copy_(new)
            return (numbers,)

        def fill(memory: list[Tensor]) -> None:
            memory[0].copy_(packed.bytes, non_blocking=True)

        def ready(entry: _graphs.Entry) -> Callable[[], Outcome]:
            # Memory first: where there is none, the step is eager, and must not have been taken.
            numbers = torch.empty_like(entry.outputs[0])
            self._carry(state)
            fill(entry.inputs)

            def replay() -> Outcome:
                entry.replay()
                numbers.copy_(entry.outputs[0])
                assert self.carried is not None
                return numbers, *self.carried

            return replay

        key = (packed.specs, packed.is_tensor, self.settings())
        specs = [(packed.bytes.shape, packed.bytes.dtype)]
        replay = self.graphs.run(key, self._changes, device, function, specs, fill, ready)
        return None if replay is None else replay()

    def _carry(self, state: LayerStates) -> None:
        """Write the state before a step to where graphs read it, unless a graph has left it there."""
        assert self.carried is not None
        for into, each in zip(self.carried, state, strict=True):
            if each is not into:
                into.copy_(each)

    def _captured(self, function: _graphs.Function, inputs: list[Tensor], pool: _graphs.Pool) -> _graphs.Entry:
        self.optimizer.zero_grad(set_to_none=True)  # their memory may be all that a graph needs
        try:
            entry = _graphs.capture(function, inputs, pool, run_before=False)  # a step must not be taken twice
        finally:
            self.optimizer.zero_grad(set_to_none=True)
        trained = [weight for weight in self._weights() if weight.requires_grad]

        def replay() -> None:
            entry.replay()
            torch.autograd.graph.increment_version(trained)

        return entry._replace(replay=replay)

    def _weights(self) -> list[Tensor]:
        return [weight for parameters, name in self.slots if (weight := parameters.get(name)) is not None]
