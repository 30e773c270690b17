"""One step of training: both losses, their gradient, its exchange with other processes, the clip, the update."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from elmo_fast.corpus import DistinctWords, StreamBatch
from elmo_fast.devices import sent_together
from elmo_fast.modules import WordEncoder
from elmo_fast.modules.elmo_lstm import LayerStates
from elmo_fast.ops import _graphs
from elmo_fast.ops._table_rows import stays_sparse
from elmo_fast.pretrain.captured_step import CapturedGradients
from elmo_fast.pretrain.language_model import LanguageModel
from elmo_fast.pretrain.optimizer import clip_and_step
from elmo_fast.pretrain.processes import Processes


class StepResult(NamedTuple):
    """forward, backward: mean loss per word of all rows, nats; gradient_norm: before the clip; state: after it.

    On a GPU the losses and gradient_norm are [] tensors: reading one waits for the step.
    """

    forward: float | Tensor
    backward: float | Tensor
    gradient_norm: float | Tensor
    state: LayerStates


class StepInputs(NamedTuple):
    """All that changes from step to step, besides the weights: a step is a function of these tensors.

    types, targets: as of `StreamBatch`, on the model's device; samples: per direction, as the loss samples it; state:
    (h [L, 2, B, D], c [L, 2, B, H]) before, None: zeros; fresh: rows whose state is reset, [B] bool, None: none;
    lengths: filled positions of each row, [B] int64, None: all T; mask: dropout's (`dropout_masks`), None: no dropout;
    distinct: as of `StreamBatch`.
    """

    types: Tensor
    targets: Tensor
    samples: list[Any]
    state: LayerStates | None
    fresh: Tensor | None
    lengths: Tensor | None
    mask: Tensor | None
    distinct: list[DistinctWords]

    def part(self, number: int, parts: int) -> "StepInputs":
        """Return one of equal parts of the rows; all parts share the sampled words."""
        if parts == 1:
            return self
        count = self.types.shape[1] // parts
        rows = slice(number * count, (number + 1) * count)
        return self._replace(
            distinct=self.distinct[number : number + 1],
            types=self.types[:, rows],
            targets=self.targets[:, rows],
            state=None if self.state is None else (self.state[0][:, :, rows], self.state[1][:, :, rows]),
            lengths=None if self.lengths is None else self.lengths[rows],
            mask=None if self.mask is None else self.mask[:, :, rows],
        )


class Step:
    """Updates a model once per call.

        loss_n = the model's loss of every filled position of all R rows, both directions
        gradient of  ½ Σ loss_n / R,  clipped at a global norm, then the optimizer's step

    which is bilm-tf's gradient of T times the mean loss wherever all positions are filled.

    model, optimizer: updated in place; characters: spells types on the model's device (`make_input_reader`); rows: R,
    of all processes; first_row: number of this process's first row; clip_norm: largest norm of all gradients together;
    seed: of samples, dropout and resets; state_reset: chance that a row starts the step from zeros; micro_batches:
    parts of the rows that are computed one after the other; sparse: the gradients of the tables (softmax, word vectors)
    as the rows used (the same numbers); processes: the processes that train together; cuda_graph: whether gradients on
    a GPU come from replayed CUDA graphs where possible (the same numbers; none are left in the parameters).

    Source: bilm-tf, bilm/training.py.
    """

    def __init__(
        self,
        model: LanguageModel,
        optimizer: torch.optim.Optimizer,
        characters: Callable[[Tensor], Tensor],
        *,
        rows: int,
        first_row: int = 0,
        clip_norm: float,
        seed: int = 0,
        state_reset: float = 0.0,
        micro_batches: int = 1,
        sparse: bool = True,
        processes: Processes | None = None,
        cuda_graph: bool = True,
    ) -> None:
        self.model, self.optimizer, self.characters = model, optimizer, characters
        self.rows, self.first_row, self.micro_batches = rows, first_row, micro_batches
        self.clip_norm, self.seed, self.state_reset, self.sparse = clip_norm, seed, state_reset, sparse
        self.processes = Processes() if processes is None else processes
        self.parameters = list(model.parameters())  # collecting them takes the host a millisecond
        encoder = model.bilm.encoder
        is_table = isinstance(encoder, WordEncoder) and encoder.weight.requires_grad
        self.embedding = encoder.get_parameter("weight") if is_table else None  # exchanged row by row
        # Tables whose gradients have the same rows.
        self.tables: list[list[nn.Parameter]] = [list(model.loss.parameters())]
        if self.embedding is not None:
            self.tables.append([self.embedding])
        settings = lambda: (model.bilm.arithmetic, model.training, model.options.dropout)  # noqa: E731
        self.captured = None
        if cuda_graph:
            self.captured = CapturedGradients(model, optimizer, self._gradients, settings=settings)
        self.samples_ahead = self.parameters[0].device.type != "cpu"
        self._thread = ThreadPoolExecutor(1, "elmo_fast-samples")
        self._next: tuple[int, Future[list[Any]]] | None = None

    def __call__(self, batch: StreamBatch, state: LayerStates | None, number: int) -> StepResult:
        """Take step `number` (it selects samples and masks); state: of these rows before it, None for zeros."""
        if not self.model.training:
            self.model.train()
        inputs = self._inputs(batch, state, number)
        if self.captured is not None and _graphs.enabled(inputs.types.device):
            sums, after, norm = self.captured.run(inputs, self._update)
        else:
            sums, after = self._gradients(inputs)
            norm = self._update()
        means = self.processes.sum_(sums) / batch.words
        forward, backward = means if means.is_cuda else means.tolist()
        return StepResult(forward, backward, norm, after)

    def _inputs(self, batch: StreamBatch, state: LayerStates | None, number: int) -> StepInputs:
        """Sample what step `number` needs, and send what is known on the host together; nothing waits for it."""
        _, rows, steps = batch.types.shape
        options, device = self.model.options, self.parameters[0].device
        fresh = lengths = mask = None
        if state is not None and self.state_reset:
            own = slice(self.first_row, self.first_row + rows)
            fresh = torch.from_numpy(rows_to_reset(self.state_reset, self.seed, number, self.rows)[own])
        if batch.words < self.rows * steps:  # of all rows: every process computes the step in the same way
            lengths = torch.from_numpy(batch.filled)
        host = StepInputs(batch.types, batch.targets, self._samples(number), None, fresh, lengths, None, batch.distinct)
        sent = iter(sent_together([leaf for leaf in pytree.tree_leaves(host) if leaf is not None], device))
        inputs: StepInputs = pytree.tree_map_only(Tensor, lambda _: next(sent), host)
        if options.dropout:
            shape = (options.lstm.n_layers, rows, steps, options.lstm.projection_dim)
            mask = dropout_masks(options.dropout, self.seed, number, self.first_row, shape, device)
        return inputs._replace(state=state, mask=mask)

    def _samples(self, number: int) -> list[Any]:
        """Return the words that step `number` samples, per direction, on the host.

        For a GPU, a thread samples those of the next step meanwhile: 8,192 distinct ones take 0.25 ms of 793,471 words,
        but milliseconds of 10,000.
        """

        def sample(step: int) -> list[Any]:
            cpu = torch.device("cpu")
            return [self.model.loss.draw(self.seed, 2 * step + direction, cpu) for direction in range(2)]

        samples = self._next[1].result() if self._next and self._next[0] == number else sample(number)
        self._next = (number + 1, self._thread.submit(sample, number + 1)) if self.samples_ahead else None
        return samples

    def _gradients(self, inputs: StepInputs) -> tuple[Tensor, LayerStates]:
        """Leave the gradients of all parts in the parameters.

        Return both directions' summed losses, [2], and the state after. A function of tensors alone, which a CUDA graph
        can hold.
        """
        self.optimizer.zero_grad(set_to_none=True)
        if inputs.state is not None and inputs.fresh is not None:
            inputs = inputs._replace(state=reset_rows(inputs.state, inputs.fresh))
        sums, states, parts = [], [], self.micro_batches
        self._choose_sparse(inputs.types[0].numel() // parts)
        for number in range(parts):
            losses, after = self._losses(inputs.part(number, parts))
            losses.backward(losses.new_full(losses.shape, 0.5 / self.rows))
            sums.append(losses.detach().double())
            states.append(after)
        h, c = states[0] if parts == 1 else (torch.cat(column, dim=2) for column in zip(*states, strict=True))
        return sum(sums[1:], sums[0]), (h, c)

    def _losses(self, inputs: StepInputs) -> tuple[Tensor, LayerStates]:
        """Return the sums of both directions' losses, [2], and the state after."""
        lengths, dropout = inputs.lengths, self.model.options.dropout
        drop = RowDropout(inputs.mask, dropout) if inputs.mask is not None and dropout else None
        distinct = inputs.distinct[0] if inputs.distinct else None
        hidden, state = self.model(inputs.types, self.characters, inputs.state, lengths, drop, distinct)
        directions = zip(hidden.flatten(1, 2), inputs.targets.flatten(1), inputs.samples, strict=True)
        losses = [self.model.loss.training_losses(*each) for each in directions]
        if lengths is not None:
            text = (torch.arange(inputs.types.shape[2], device=lengths.device) < lengths[:, None]).flatten()
            losses = [loss.where(text, 0) for loss in losses]
        return torch.stack(losses).sum(1), state  # torch's sum to one number depends on the number of threads

    def _choose_sparse(self, positions: int) -> None:
        """Make the gradients of the tables rows or dense; positions: of a part and direction.

        A table and its bias are chosen together, by shapes alone, so that all processes and replays agree.
        """
        loss, both = self.model.loss, 2 * self.micro_batches
        loss.sparse = self.sparse and stays_sparse(both * loss.gradient_rows(positions), *loss.parameters())
        if self.embedding is not None:
            self.model.bilm.encoder.sparse = self.sparse and stays_sparse(both * positions, self.embedding)

    def _update(self) -> float | Tensor:
        """Exchange the gradients, clip, update; return the gradient's norm before the clip."""
        self.processes.sum_gradients(self.parameters, self.tables)
        return clip_and_step(self.optimizer, self.parameters, self.clip_norm, self.tables)


# Rows that share a draw: few draws on a GPU, and few unused numbers if a process has fewer rows.
BLOCK = 32
# Of state resets, next to the keys of dropout's draws, (seed, step, block).
_RESET_KEY = (0, 1)


def dropout_masks(
    probability: float,
    seed: int,
    step: int,
    first_row: int,
    shape: tuple[int, int, int, int],
    device: torch.device | str = "cpu",
) -> Tensor:
    """Sample which elements of a batch's rows stay, a function of the arguments: [L + 1, 2, B, T, D] uint8, 1 or 0.

    probability: p of dropping one, 0 < p < 1; seed, step: of the run; first_row: number of the batch's first row among
    all rows; shape: (L, B, T, D) with L the LSTM layers: masks of L inputs and one result of both directions; device:
    where the activations are (CPU and GPU sample different masks).
    """
    layers, rows, steps, width = shape
    masks = []
    for block in range(first_row // BLOCK, -(-(first_row + rows) // BLOCK)):
        number = int(np.random.SeedSequence((seed, step, block)).generate_state(1)[0])
        generator = torch.Generator(device).manual_seed(number)
        mask = torch.empty(layers + 1, 2, BLOCK, steps, width, dtype=torch.uint8, device=device)
        masks.append(mask.bernoulli_(1 - probability, generator=generator))
    skipped = first_row % BLOCK
    return torch.cat(masks, dim=2)[:, :, skipped : skipped + rows]


class RowDropout:
    """Drops what `mask` marks with 0 (`dropout_masks`) and scales the rest by 1 / (1 - p), p being `probability`."""

    def __init__(self, mask: Tensor, probability: float) -> None:
        self.mask, self.scale = mask, 1 / (1 - probability)
        self._factors: Tensor | None = None

    def __call__(self, x: Tensor, layer: int, direction: int) -> Tensor:
        """Return x [B, T, D], the input of a layer or (layer L) the result, after dropout."""
        if self._factors is None or self._factors.dtype != x.dtype:
            one_launch = torch.result_type(self.mask, self.scale) == x.dtype
            self._factors = (self.mask if one_launch else self.mask.to(x.dtype)) * self.scale  # of all layers
        return x * self._factors[layer, direction]


def rows_to_reset(probability: float, seed: int, step: int, rows: int) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Sample which of all R rows start step `step` from a zero state, as evaluation and embedding do: [rows]."""
    return np.random.default_rng((seed, step, *_RESET_KEY)).random(rows) < probability


def reset_rows(state: LayerStates, fresh: Tensor) -> LayerStates:
    """Return the state (h [L, 2, B, D], c [L, 2, B, H]), zero in the rows that `fresh` [B] bool marks."""
    h, c = (each.masked_fill(fresh[:, None], 0) for each in state)
    return h, c
