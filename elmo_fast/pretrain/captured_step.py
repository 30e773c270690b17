"""Gradients of training steps replayed from CUDA graphs: the host copies a step's inputs and starts one graph."""

import functools
from collections.abc import Callable, Hashable
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from elmo_fast.modules.elmo_lstm import LayerStates
from elmo_fast.ops import _graphs, _weights

# Shapes of batches: whole ones, an epoch's last, and both without a state before, each with a few padded numbers of
# distinct words. They share the memory of the largest.
GRAPHS = 16
_STEP_TAKEN_BEFORE = functools.partial(_graphs.capture, run_before=False)  # a step must not be taken twice


class CapturedGradients:
    """The graphs of the forward and backward passes of one model's training steps, one for each shape of a batch.

    A replay leaves the gradients in the parameters. What reads values on the host, or waits for other processes, runs
    after it: the exchange of gradients, the clip and the update. A shape's first step is eager, its second is captured
    and replayed.

    model, optimizer: that the steps change; gradients: the function to capture, of nested tuples of tensors: leaves
    gradients in the parameters, returns (sums of the losses [2], the state after); capturing: as `_graphs.capture`,
    without a run before; settings: returns what decides the gradients besides tensors.
    """

    def __init__(
        self,
        model: Any,
        optimizer: torch.optim.Optimizer,
        gradients: Callable[[Any], tuple[Tensor, LayerStates]],
        capturing: Callable[..., _graphs.Entry] = _STEP_TAKEN_BEFORE,
        settings: Callable[[], Hashable] = lambda: None,
    ) -> None:
        self.model, self.optimizer, self.gradients, self.capturing = model, optimizer, gradients, capturing
        self.settings = settings
        # Where the weights are: the model's own dictionaries, since it may get other parameters.
        self.slots = [(module._parameters, name) for module in model.modules() for name in module._parameters]
        self.graphs = _graphs.Graphs(GRAPHS, self._captured)
        self._left: object = None
        self._written: list[Tensor] = []
        # How often anything but a step has changed weights: a graph takes their rounded copies as current.
        self._changes = 0

    def run(self, inputs: Any, update: Callable[[], float | Tensor]) -> tuple[Tensor, LayerStates, float | Tensor]:
        """Take a step, its gradients replayed if possible; return what `gradients` and `update` return.

        inputs: of `gradients`; update: exchanges and clips the gradients and updates the weights, returns their norm.
        """
        device, weights = inputs.types.device, self._weights()
        identities = _weights.identities(weights)
        self._changes += self._left != [identities, _weights.versions(weights)]
        version = [_weights.generation(), identities, self._changes]
        with _graphs.pool_of(device).lock:  # the gradients are in memory that other graphs use
            replayed = self._replayed(inputs, version, device)
            sums, state = self.gradients(inputs) if replayed is None else replayed
            norm = update()
            if replayed is not None:
                self.optimizer.zero_grad(set_to_none=True)
        self._left = [identities, _weights.versions(weights)]
        self._written = [
            weight for weight in weights if weight.requires_grad and _weights.kept_rounded(weight) is not None
        ]
        return sums, state, norm

    def _replayed(self, inputs: Any, version: object, device: torch.device) -> tuple[Tensor, LayerStates] | None:
        """Replay `gradients`; None if it must be called instead."""
        leaves, structure = pytree.tree_flatten(inputs)
        tensors = [leaf for leaf in leaves if leaf is not None]
        specs = [(tensor.shape, tensor.dtype) for tensor in tensors]
        places = [leaf is not None for leaf in leaves]  # the function lives as long as the graph: no tensors

        def function(*memory: Tensor) -> tuple[Tensor, ...]:
            following = iter(memory)
            filled = [next(following) if place else None for place in places]
            with torch.enable_grad():
                sums, (h, c) = self.gradients(pytree.tree_unflatten(filled, structure))
            return sums, h, c

        def replayed(entry: _graphs.Entry) -> tuple[Tensor, LayerStates]:
            # Memory first: where there is none, the step is eager, and must not have been taken.
            results = [torch.empty_like(output) for output in entry.outputs]
            fill(entry.inputs)
            entry.replay()
            torch._foreach_copy_(results, list(entry.outputs))
            sums, h, c = results
            return sums, (h, c)

        def fill(memory: list[Tensor]) -> None:
            torch._foreach_copy_(memory, tensors)

        key = (tuple(specs), tuple(places), self.settings())
        return self.graphs.run(key, version, device, function, specs, fill, replayed)

    def _captured(self, function: _graphs.Function, inputs: list[Tensor], pool: _graphs.Pool) -> _graphs.Entry:
        """Capture a graph whose replay also sets `.grad`."""
        self.optimizer.zero_grad(set_to_none=True)  # their memory may be all that a graph needs
        trained = [weight for weight in self._weights() if weight.requires_grad]
        # As an update leaves them: the graph makes all cached copies again but the rounded ones that the update writes.
        _weights.count_replay(trained, self._written)
        try:
            entry = self.capturing(function, inputs, pool)
            gradients = {weight: weight.grad for weight in trained if weight.grad is not None}
        except BaseException:
            torch.autograd.graph.increment_version(trained)  # what it was to copy, it has not copied
            raise
        finally:
            self.optimizer.zero_grad(set_to_none=True)

        def replay() -> None:
            entry.replay()
            for parameter, gradient in gradients.items():
                parameter.grad = gradient

        return entry._replace(replay=replay)

    def _weights(self) -> list[Tensor]:
        return [weight for parameters, name in self.slots if (weight := parameters.get(name)) is not None]
