"""Training steps replayed from CUDA graphs: the host copies a step's inputs and starts one graph."""

import functools
import itertools
from collections.abc import Callable, Hashable

import torch
from torch import Tensor

from elmo_fast.modules.elmo_lstm import LayerStates
from elmo_fast.ops import _graphs, _weights
from elmo_fast.pretrain.language_model import LanguageModel
from elmo_fast.pretrain.step.adagrad import AdaGrad
from elmo_fast.pretrain.step.step_inputs import StepInputs, filled_with, flattened

# (sums of the losses [parts, 2], the gradient's norm [], the state after) of a step.
Taken = tuple[Tensor, float | Tensor, LayerStates]
# What a graph holds of it: the same or, without the norm, its gradients alone.
Held = tuple[Tensor, LayerStates] | tuple[Tensor, Tensor, LayerStates]
# Shapes of batches: whole ones, an epoch's last, and both without a state before, each with a few padded numbers of
# distinct words. They share the memory of the largest.
GRAPHS = 16
_STEP_TAKEN_BEFORE = functools.partial(_graphs.capture, run_before=False)  # a step must not be taken twice


class CapturedGradients:
    """The graphs of the forward and backward passes of one model's training steps, one for each shape of a batch.

    A replay leaves the gradients in the parameters. What reads values on the host, or waits for other processes, is
    launched after it: the exchange of gradients, the clip and the update. A shape's first step runs launch by launch,
    its second is captured and replayed.

    model, optimizer: that the steps change; capturing: as `_graphs.capture`, without a run before.
    """

    def __init__(
        self,
        model: LanguageModel,
        optimizer: torch.optim.Optimizer,
        capturing: Callable[..., _graphs.Entry] = _STEP_TAKEN_BEFORE,
    ) -> None:
        self.model, self.optimizer = model, optimizer
        self.parameters: list[Tensor] = [parameter for _, parameter in model.trained()]
        self.capturing = capturing
        self.graphs = _graphs.Graphs(GRAPHS, self._captured)
        self._left: Hashable = None
        self._written: list[Tensor] = []
        self._changes = 0

    def serves(self, device: torch.device) -> bool:
        """Whether steps may be captured there now."""
        return _graphs.enabled(device)

    def run(
        self,
        inputs: StepInputs,
        settings: Hashable,
        step: Callable[[StepInputs, Tensor], Held],
        rest: Callable[[Held], Taken],
        launched: Callable[[], Taken],
    ) -> Taken:
        """A step, replayed if it can be.

        settings: what a step depends on besides tensors and the model; step: of (inputs, learning rate []), what is
        captured, on the device alone; rest: of what `step` gives, what is launched after each replay; launched: takes
        the step launch by launch.
        """
        device = inputs.types.device
        version = (_weights.generation(), self._addresses(), self._changed_by_others())
        key, function, memory, replayed = self._work(inputs, settings, step)
        with _graphs.pool_of(device).lock:  # the gradients are in memory that other graphs use
            held = self.graphs.run(key, version, device, function, memory, replayed)
            taken = None if held is None else rest(held)
            if taken is not None:
                self.optimizer.zero_grad(set_to_none=True)
        taken = launched() if taken is None else taken
        self._left = self._versions()
        self._written = [parameter for parameter in self.parameters if _weights.kept_rounded(parameter) is not None]
        return taken

    def _work(
        self, inputs: StepInputs, settings: Hashable, step: Callable[[StepInputs, Tensor], Held]
    ) -> tuple[Hashable, _graphs.Function, Callable[[], list[Tensor]], Callable[[_graphs.Entry], Held]]:
        """What `Graphs.run` wants to know of a step."""
        leaves = flattened(inputs)
        given = [each for each in leaves if each is not None]
        shapes = tuple(None if each is None else (each.shape, each.dtype) for each in leaves)
        autocast = torch.is_autocast_enabled("cuda") and torch.get_autocast_dtype("cuda")
        places = filled_with(inputs, itertools.repeat(True))  # the function lives as long as the graph: no tensors

        def function(rate: Tensor, *tensors: Tensor) -> tuple[Tensor, ...]:
            with torch.enable_grad():
                *others, (h, c) = step(filled_with(places, tensors), rate)
            return *others, h, c

        def memory() -> list[Tensor]:
            return [given[0].new_zeros((), dtype=torch.float32), *map(torch.clone, given)]

        def replayed(entry: _graphs.Entry) -> Held:
            # Memory first: where there is none, the step is taken launch by launch, and must not have been taken.
            results = [torch.empty_like(output) for output in entry.outputs]
            entry.inputs[0].fill_(self.optimizer.param_groups[0]["lr"])
            torch._foreach_copy_(entry.inputs[1:], given)
            entry.replay()
            torch._foreach_copy_(results, list(entry.outputs))
            sums, *norm, h, c = results
            return (sums, norm[0], (h, c)) if norm else (sums, (h, c))

        return (shapes, settings, autocast, torch.backends.cuda.matmul.allow_tf32), function, memory, replayed

    def _captured(self, function: _graphs.Function, inputs: list[Tensor], pool: _graphs.Pool) -> _graphs.Entry:
        """The graph, whose replay also does what a step does on the host."""
        self.optimizer.zero_grad(set_to_none=True)  # their memory may be all that a graph needs
        # As an update leaves them: the graph makes all kept copies anew but the rounded ones that the update writes.
        _weights.count_replay(self.parameters, self._written)
        try:
            entry = self.capturing(function, inputs, pool)
            gradients = {parameter: parameter.grad for parameter in self.parameters if parameter.grad is not None}
        except BaseException:
            torch.autograd.graph.increment_version(self.parameters)  # what it was to copy, it has not copied
            raise
        finally:
            self.optimizer.zero_grad(set_to_none=True)
        return entry._replace(replay=self._replay(entry, gradients))

    def _replay(self, entry: _graphs.Entry, gradients: dict[Tensor, Tensor]) -> Callable[[], None]:
        """What replays the graph and leaves the gradients that it makes, which are these tensors, in the parameters."""

        def replay() -> None:
            entry.replay()
            for parameter, gradient in gradients.items():
                parameter.grad = gradient

        return replay

    def _addresses(self) -> Hashable:
        """Of what a graph reads or changes, besides its inputs."""
        return tuple(parameter.data_ptr() for parameter in self.parameters)

    def _versions(self) -> Hashable:
        return tuple((parameter.data_ptr(), parameter._version) for parameter in self.model.parameters())

    def _changed_by_others(self) -> int:
        """How often anything but a step has changed weights: a graph takes their rounded copies to be up to date."""
        self._changes += self._left != self._versions()
        return self._changes


class CapturedStep(CapturedGradients):
    """As `CapturedGradients`, of whole steps of AdaGrad: weights and sums keep their memory, and a graph holds the clip
    and the update of them too."""

    def _replay(self, entry: _graphs.Entry, gradients: dict[Tensor, Tensor]) -> Callable[[], None]:
        """What replays the graph, and counts the step that it takes."""
        trained = list(gradients)
        copied = [parameter for parameter in trained if _weights.kept_rounded(parameter) is not None]

        def replay() -> None:
            entry.replay()
            self.optimizer.count_step(trained)  # type: ignore[attr-defined]
            _weights.count_replay(trained, copied)

        return replay

    def _addresses(self) -> Hashable:
        """Of what a graph changes."""
        assert isinstance(self.optimizer, AdaGrad)
        sums = (self.optimizer.accumulator(parameter).data_ptr() for parameter in self.parameters)
        return super()._addresses(), tuple(sums)
