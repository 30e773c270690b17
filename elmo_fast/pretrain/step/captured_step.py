"""Training steps replayed from CUDA graphs: the host copies a step's inputs and starts one graph."""

import itertools
import warnings
from collections.abc import Callable, Hashable

import torch
from torch import Tensor

from elmo_fast.errors import PerformanceWarning
from elmo_fast.modules.elmo_lstm import LayerStates
from elmo_fast.ops import _capture, _graphs, _packed
from elmo_fast.ops._dispatch import replays
from elmo_fast.pretrain.language_model import LanguageModel
from elmo_fast.pretrain.processes import Processes
from elmo_fast.pretrain.step.adagrad import AdaGrad
from elmo_fast.pretrain.step.step_inputs import StepInputs, filled_with, flattened

Taken = tuple[Tensor, Tensor, LayerStates]
Launched = tuple[Tensor, float | Tensor, LayerStates]
# Shapes of batches: whole ones, an epoch's last, and both without a state before.
GRAPHS = 4


class CapturedStep:
    """The graphs of one model's training steps, one for each shape of a batch.

    Each holds a whole step: forward, backward, clip and update of weights and optimizer, whose memory stays where it
    is. A shape's first step runs launch by launch, its second is captured and replayed.

    model, optimizer: that the steps change; processes: that train together; capturing: as `capture_changing`.
    """

    def __init__(
        self,
        model: LanguageModel,
        optimizer: torch.optim.Optimizer,
        processes: Processes,
        capturing: Callable[..., _capture.Entry] = _capture.capture_changing,
    ) -> None:
        self.model, self.optimizer, self.processes = model, optimizer, processes
        self.parameters = [parameter for _, parameter in model.trained()]
        self.capturing = capturing
        self.graphs = _graphs.Graphs(GRAPHS, self._captured)
        self._left: Hashable = None
        self._changes = 0
        self._told = False

    def serves(self, device: torch.device) -> bool:
        """Whether steps may be captured there now; the reason why a GPU's never are is given once."""
        if not _capture.enabled(device):
            return False
        if (why := self._why_never()) is not None and not self._told:
            self._told = True
            warnings.warn(f"training without a CUDA graph, launch by launch: {why}", PerformanceWarning, stacklevel=3)
        return why is None and replays(device, self.model.precision)

    def _why_never(self) -> str | None:
        if self.processes.distributed:
            return "a graph cannot hold the exchange between several processes"
        if not isinstance(self.optimizer, AdaGrad):
            return "with adamw the host reads the gradient's norm before it updates; adagrad needs no host for that"
        if len(self.optimizer.param_groups) > 1:
            return "a graph reads one learning rate, and the optimizer has several groups of parameters"
        return None

    def run(
        self,
        inputs: StepInputs,
        settings: Hashable,
        step: Callable[[StepInputs, Tensor], Taken],
        launched: Callable[[], Launched],
    ) -> Taken | Launched:
        """(sums of the losses [parts, 2], the gradient's norm [], the state after) of a step, replayed if it can be.

        settings: what a step depends on besides tensors and the model; step: the same of (inputs, learning rate []), on
        the device alone; launched: takes it launch by launch.
        """
        version = (_packed.generation(), self._addresses(), self._changed_by_others())
        key, function, memory, replayed = self._work(inputs, settings, step)
        taken = self.graphs.run(key, version, inputs.types.device, function, memory, replayed) or launched()
        self._left = self._versions()
        return taken

    def _work(
        self, inputs: StepInputs, settings: Hashable, step: Callable[[StepInputs, Tensor], Taken]
    ) -> tuple[Hashable, _capture.Function, Callable[[], list[Tensor]], Callable[[_capture.Entry], Taken]]:
        """What `Graphs.run` wants to know of a step."""
        leaves = flattened(inputs)
        given = [each for each in leaves if each is not None]
        shapes = tuple(None if each is None else (each.shape, each.dtype) for each in leaves)
        autocast = torch.is_autocast_enabled("cuda") and torch.get_autocast_dtype("cuda")
        places = filled_with(inputs, itertools.repeat(True))  # the function lives as long as the graph: no tensors

        def function(rate: Tensor, *tensors: Tensor) -> tuple[Tensor, ...]:
            with torch.enable_grad():
                sums, norm, (h, c) = step(filled_with(places, tensors), rate)
            return sums, norm, h, c

        def memory() -> list[Tensor]:
            return [given[0].new_zeros((), dtype=torch.float32), *map(torch.clone, given)]

        def replayed(entry: _capture.Entry) -> Taken:
            # Memory first: where there is none, the step is taken launch by launch, and must not have been taken.
            results = [torch.empty_like(output) for output in entry.outputs]
            entry.inputs[0].fill_(self.optimizer.param_groups[0]["lr"])
            torch._foreach_copy_(entry.inputs[1:], given)
            entry.replay()
            torch._foreach_copy_(results, list(entry.outputs))
            sums, norm, h, c = results
            return sums, norm, (h, c)

        return (shapes, settings, autocast, torch.backends.cuda.matmul.allow_tf32), function, memory, replayed

    def _captured(self, function: _capture.Function, inputs: list[Tensor], pool: _capture.Pool) -> _capture.Entry:
        """The graph, whose replay also does what a step does on the host."""
        self.optimizer.zero_grad(set_to_none=True)  # their memory may be all that a graph needs
        # As an update leaves them: the graph makes all kept copies anew but the rounded ones that the update writes.
        _packed.count_replay(self.parameters, self.parameters)
        try:
            entry = self.capturing(function, inputs, pool)
            trained = [parameter for parameter in self.parameters if parameter.grad is not None]
        except BaseException:
            torch.autograd.graph.increment_version(self.parameters)  # what it was to copy, it has not copied
            raise
        finally:
            self.optimizer.zero_grad(set_to_none=True)
        copied = [parameter for parameter in trained if _packed.kept_rounded(parameter) is not None]

        def replay() -> None:
            entry.replay()
            self.optimizer.count_step(trained)  # type: ignore[attr-defined]
            _packed.count_replay(trained, copied)

        return entry._replace(replay=replay)

    def _addresses(self) -> Hashable:
        """Of what a graph changes."""
        assert isinstance(self.optimizer, AdaGrad)
        both = ((parameter, self.optimizer.accumulator(parameter)) for parameter in self.parameters)
        return tuple((parameter.data_ptr(), sums.data_ptr()) for parameter, sums in both)

    def _versions(self) -> Hashable:
        return tuple((parameter.data_ptr(), parameter._version) for parameter in self.model.parameters())

    def _changed_by_others(self) -> int:
        """How often anything but a step has changed weights: a graph takes their rounded copies to be up to date."""
        self._changes += self._left != self._versions()
        return self._changes
