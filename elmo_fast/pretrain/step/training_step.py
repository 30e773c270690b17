"""One step of training: both losses, their gradient, the exchange with other processes, the clip, the update."""

import functools
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from elmo_fast.modules.elmo_lstm import LayerStates
from elmo_fast.ops._table_rows import stays_sparse
from elmo_fast.pretrain.language_model import LanguageModel, trained_embedding
from elmo_fast.pretrain.processes import Processes
from elmo_fast.pretrain.step.adagrad import AdaGrad, clip_and_step, clip_and_update
from elmo_fast.pretrain.step.captured_step import CapturedGradients, CapturedStep, Held, Taken
from elmo_fast.pretrain.step.gradient_exchange import GradientExchange
from elmo_fast.pretrain.step.regularization import RowDropout, reset_rows
from elmo_fast.pretrain.step.step_inputs import StepInputs, Words, draw_inputs


class StepResult(NamedTuple):
    """forward, backward: mean loss per word of all rows, nats; gradient_norm: before the clip; state: after it.

    On a GPU the losses and gradient_norm are [] tensors: reading one waits for the step.
    """

    forward: float | Tensor
    backward: float | Tensor
    gradient_norm: float | Tensor
    state: LayerStates


class Step:
    """Updates a model once per call.

        loss_n = the model's loss of every filled position of all R rows, both directions
        gradient of  ½ Σ loss_n / R,  clipped at a global norm, then the optimizer's step

    which is bilm-tf's gradient of T times the mean loss wherever all positions are filled.

    model, optimizer: updated in place; clip_norm: largest norm of all gradients together; seed: of samples, dropout and
    resets; state_reset: chance that a row starts the step from zeros; micro_batches: parts of the rows that are
    computed one after the other; sparse: the gradients of the tables (softmax,
    word vectors) as the rows used (the same numbers); processes: the processes that train together; cuda_graph: whether
    steps on a GPU are replayed from CUDA graphs where they can be (`CapturedGradients`; the same numbers, but that
    gradients of more than two processes may be added in another order; none are left in the parameters).

    Source: bilm-tf, bilm/training.py.
    """

    def __init__(
        self,
        model: LanguageModel,
        optimizer: torch.optim.Optimizer,
        *,
        clip_norm: float,
        seed: int = 0,
        state_reset: float = 0.0,
        micro_batches: int = 1,
        sparse: bool = True,
        processes: Processes | None = None,
        cuda_graph: bool = True,
    ) -> None:
        self.model, self.optimizer = model, optimizer
        self.clip_norm, self.seed, self.state_reset = clip_norm, seed, state_reset
        self.processes = Processes() if processes is None else processes
        self.sparse, self.embedding = sparse, trained_embedding(model)
        # Tables whose gradients have the same rows.
        self.tables: list[list[nn.Parameter]] = [list(model.loss.parameters())]
        if self.embedding is not None:
            self.tables.append([self.embedding])
        self.captured = self._capturing() if cuda_graph else None
        self.exchange = GradientExchange(
            model.streams, self.tables, self.processes, micro_batches, overlapped=self.captured is None
        )

    def _capturing(self) -> CapturedGradients | None:
        """Return what replays steps; None where one of several processes cannot, as all exchange gradients alike."""
        device = next(self.model.parameters()).device
        if not self.processes.distributed:
            whole = isinstance(self.optimizer, AdaGrad) and len(self.optimizer.param_groups) == 1
            return (CapturedStep if whole else CapturedGradients)(self.model, self.optimizer)
        captured = CapturedGradients(self.model, self.optimizer)
        return None if self.processes.max_(int(not captured.serves(device))) else captured

    def __call__(self, words: Words, state: LayerStates | None, number: int) -> StepResult:
        """Takes step `number` (it selects samples and masks); state: of these rows before it, None for zeros."""
        self.model.train()
        inputs = draw_inputs(words, state, number, self.model, self.seed, self.state_reset)
        reading = words.rows, words.characters
        launched = functools.partial(self._launched, *reading, inputs)
        if self.captured is not None and self.captured.serves(inputs.types.device):
            settings = (*reading, self.exchange.parts, self.clip_norm)
            held = functools.partial(self._on_device, *reading)
            sums, norm, after = self.captured.run(inputs, settings, held, self._rest, launched)
        else:
            sums, norm, after = launched()
        means = self.exchange.total(sums) / words.words
        forward, backward = means if means.is_cuda else means.tolist()
        return StepResult(forward, backward, norm, after)

    def _launched(self, rows: int, characters: Callable[[Tensor], Tensor], inputs: StepInputs) -> Taken:
        """The sums of both directions' losses of each part, [parts, 2], the gradient's norm and the state after, launch
        by launch."""
        return self._rest(self._gradients(rows, characters, inputs))

    def _on_device(self, rows: int, characters: Callable[[Tensor], Tensor], inputs: StepInputs, rate: Tensor) -> Held:
        """`_launched`, or its part before `_rest`, as a function of tensors alone, which does nothing on the host that
        a replay would leave out."""
        sums, state = self._gradients(rows, characters, inputs)
        if not isinstance(self.captured, CapturedStep):
            return sums, state
        assert isinstance(self.optimizer, AdaGrad)
        return sums, clip_and_update(self.optimizer, self.model.parameters(), self.clip_norm, rate, self.tables), state

    def _rest(self, held: Held) -> Taken:
        """What is left of a step: exchange of the gradients, clip and update, where a graph does not hold them."""
        if len(held) == 3:
            return held
        sums, state = held
        self.exchange.finish()
        return sums, clip_and_step(self.optimizer, self.model.parameters(), self.clip_norm, self.tables), state

    def _gradients(
        self, rows: int, characters: Callable[[Tensor], Tensor], inputs: StepInputs
    ) -> tuple[Tensor, LayerStates]:
        """Leaves the gradients of all parts in the parameters; the sums of both directions' losses of each part,
        [parts, 2], and the state after."""
        self.optimizer.zero_grad(set_to_none=True)
        if inputs.state is not None and inputs.fresh is not None:
            inputs = inputs._replace(state=reset_rows(inputs.state, inputs.fresh))
        sums, states, parts = [], [], self.exchange.parts
        self._choose_sparse(inputs.types[0].numel() // parts)
        for i in range(parts):
            part = inputs.part(i, parts)
            with self.exchange.part(i):
                losses, after = self._losses(part, characters)
                losses.backward(losses.new_full(losses.shape, 0.5 * self.exchange.factor / rows))
            sums.append(losses.detach().double())
            states.append(after)
        h, c = states[0] if parts == 1 else (torch.cat(column, dim=2) for column in zip(*states, strict=True))
        return sums[0][None] if parts == 1 else torch.stack(sums), (h, c)

    def _choose_sparse(self, positions: int) -> None:
        """Make the gradients of the tables rows or dense; positions: of a part and direction.

        A table and its bias are chosen together, by shapes alone, so that all processes and replays agree.
        """
        loss, both = self.model.loss, 2 * self.exchange.parts
        loss.sparse = self.sparse and stays_sparse(both * loss.gradient_rows(positions), *loss.parameters())
        if self.embedding is not None:
            self.model.bilm.encoder.sparse = self.sparse and stays_sparse(both * positions, self.embedding)

    def _losses(self, inputs: StepInputs, characters: Callable[[Tensor], Tensor]) -> tuple[Tensor, LayerStates]:
        """The sums of both directions' losses, [2], and the state after."""
        lengths, dropout = inputs.lengths, self.model.options.dropout
        drop = RowDropout(inputs.kept, dropout) if inputs.kept is not None and dropout else None
        distinct = inputs.distinct[0] if inputs.distinct else None
        hidden, state = self.exchange.streams(inputs.types, characters, inputs.state, lengths, drop, distinct)
        directions = zip(hidden.flatten(1, 2), inputs.targets.flatten(1), inputs.drawn, strict=True)
        losses = [self.model.loss.training_losses(*each) for each in directions]
        if lengths is not None:
            text = (torch.arange(inputs.types.shape[2], device=lengths.device) < lengths[:, None]).flatten()
            losses = [loss.where(text, 0) for loss in losses]
        return torch.stack([loss.sum() for loss in losses]), state
