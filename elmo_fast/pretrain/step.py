"""One step of training: both losses, their gradient, its exchange with other processes, the clip, the update."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from elmo_fast.corpus.streams import DistinctWords, StreamBatch
from elmo_fast.modules.elmo_lstm import LayerStates
from elmo_fast.modules.word_encoder import WordEncoder
from elmo_fast.ops import _graphs
from elmo_fast.ops._sampling import dropout_factors
from elmo_fast.ops._table_rows import coalesced_at_once, stays_sparse
from elmo_fast.pretrain.captured_step import CapturedStep, sent_inputs
from elmo_fast.pretrain.exchange import Exchange, Table
from elmo_fast.pretrain.language_model import LanguageModel
from elmo_fast.pretrain.optimizer import AdaGrad, clip_and_step, clip_and_update
from elmo_fast.pretrain.processes import Processes


class StepResult(NamedTuple):
    """forward, backward: mean loss per word of all rows, nats; gradient_norm: before the clip; state: after it.

    On a GPU the losses and gradient_norm are [] tensors: reading one waits for the step. The state may be in memory
    that the next step writes.
    """

    forward: float | Tensor
    backward: float | Tensor
    gradient_norm: float | Tensor
    state: LayerStates


class StepInputs(NamedTuple):
    """All that changes from step to step, besides weights and state: a step is a function of these tensors.

    types, targets, distinct: as of `StreamBatch`; lengths: filled positions of each row, [B] int64, None: all T; words:
    filled positions of all R rows, [] float64; fresh: rows whose state is reset, [B] bool, None: never any; offsets: of
    both directions' samples, [2] int64: 2 · step and 2 · step + 1; samples: per direction, as the loss samples them,
    where it cannot on the model's device; rates: learning rate of each group of the optimizer, [G] float32 or float64.
    """

    types: Tensor
    targets: Tensor
    distinct: list[DistinctWords]
    lengths: Tensor | None
    words: Tensor
    fresh: Tensor | None
    offsets: Tensor
    samples: list[Any]
    rates: Tensor

    def part(self, number: int, parts: int) -> tuple["StepInputs", slice]:
        """Return one of equal parts of the rows, and which they are; all parts share the sampled words."""
        count = self.types.shape[1] // parts
        rows = slice(number * count, (number + 1) * count)
        part = self._replace(
            distinct=self.distinct[number : number + 1],
            types=self.types[:, rows],
            targets=self.targets[:, rows],
            lengths=None if self.lengths is None else self.lengths[rows],
        )
        return part, rows


class Step:
    """Updates a model once per call.

        loss_n = the model's loss of every filled position of all R rows, both directions
        gradient of  ½ Σ loss_n / R,  clipped at a global norm, then the optimizer's step

    which is bilm-tf's gradient of T times the mean loss wherever all positions are filled. No gradient is left in the
    parameters.

    model, optimizer: updated in place; characters: spells types on the model's device (`make_input_reader`); rows: R,
    of all processes; first_row: number of this process's first row; clip_norm: largest norm of all gradients together;
    seed: of samples, dropout and resets; state_reset: chance that a row starts the step from zeros; micro_batches:
    parts of the rows that are computed one after the other; sparse: the gradients of the tables (softmax, word vectors)
    as the rows used (the same numbers), on several GPUs for AdaGrad alone; processes: the processes that train
    together; cuda_graph: whether a step on a GPU is replayed from CUDA graphs where possible (the same numbers). These
    and the model's settings, such as its dropout, stay as they are.

    AdaGrad's update is launched with the gradients, so that a graph holds both; of others the host reads the norm.

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
        self.embedding: Tensor | None = encoder.get_parameter("weight") if is_table else None
        # The parameters of each table, whose gradients have the same rows and are exchanged row by row.
        self.tables: list[list[Tensor]] = [list(model.loss.parameters())]
        self.tables += [] if self.embedding is None else [[self.embedding]]
        self.draws_on_device = model.loss.draws_on(self.parameters[0].device)
        self.captured = CapturedStep(model, optimizer, self._launches) if cuda_graph else None
        self._dense = self._dense_by_readiness()
        self._flat: dict[object, Tensor] = {}  # the sums of dense gradients
        self._norm = 0.0  # where the host reads it

    def __call__(self, batch: StreamBatch, state: LayerStates | None, number: int) -> StepResult:
        """Take step `number` (it selects samples and what is dropped); state: of these rows before it, None for zeros.

        The state may be that of the step before, and its memory is then written.
        """
        if not self.model.training:
            self.model.train()
        inputs, device = self._inputs(batch, number), self.parameters[0].device
        if state is None:
            lstm, rows, new = self.model.options.lstm, batch.types.shape[1], self.parameters[0].new_zeros
            state = new(lstm.n_layers, 2, rows, lstm.projection_dim), new(lstm.n_layers, 2, rows, lstm.dim)
        if self.captured is not None and _graphs.enabled(device):
            numbers, h, c = self.captured.run(inputs, state, device)
        else:
            numbers, h, c = _graphs.run_pieces(self._launches, sent_inputs(inputs, device), state)
        forward, backward, *norm = numbers if numbers.is_cuda else numbers.tolist()
        if isinstance(self.optimizer, AdaGrad):
            self.optimizer.count_step()
        return StepResult(forward, backward, norm[0] if norm else self._norm, (h, c))

    def _inputs(self, batch: StreamBatch, number: int) -> StepInputs:
        """Return the inputs of step `number`, on the host."""
        _, rows, steps = batch.types.shape
        fresh = lengths = None
        if self.state_reset:
            own = slice(self.first_row, self.first_row + rows)
            fresh = torch.from_numpy(rows_to_reset(self.state_reset, self.seed, number, self.rows)[own])
        if batch.words < self.rows * steps:  # of all rows: every process computes the step in the same way
            lengths = torch.from_numpy(batch.filled)
        samples = self.samples(number) if batch.samples is None else batch.samples
        kind = torch.promote_types(self.parameters[0].dtype, torch.float32)
        rates = torch.tensor([group["lr"] for group in self.optimizer.param_groups], dtype=kind, device="cpu")
        words = torch.tensor(batch.words, dtype=torch.float64, device="cpu")
        offsets = torch.tensor([2 * number, 2 * number + 1], device="cpu")
        return StepInputs(batch.types, batch.targets, batch.distinct, lengths, words, fresh, offsets, samples, rates)

    def samples(self, number: int) -> list[Any]:
        """Return what the loss samples on the host for step `number`: nothing if it can on the model's device.

        A loader calls it ahead of the step (`Stream`), which samples itself only for a batch without samples.
        """
        if self.draws_on_device:
            return []
        return [self.model.loss.draw(self.seed, offset, torch.device("cpu")) for offset in (2 * number, 2 * number + 1)]

    def _launches(self, inputs: StepInputs, state: LayerStates) -> _graphs.Pieces:
        """Take a step: a function of tensors, which CUDA graphs can hold; yields what only the host can do.

        Returns both directions' mean losses [2], with AdaGrad followed by the gradient's norm, and the state after.
        """
        self.optimizer.zero_grad(set_to_none=True)
        if inputs.fresh is not None:
            h, c = (each.masked_fill(inputs.fresh[:, None], 0) for each in state)
            state = h, c
        at_once = coalesced_at_once(inputs.types.device)
        parts, exchange = self.micro_batches, Exchange(self.processes, self._flat, at_once)
        self._choose_sparse(inputs.types[0].numel() // parts)
        if not inputs.samples:
            offsets = inputs.offsets.split(1)
            samples = [self.model.loss.draw(self.seed, offset, inputs.types.device) for offset in offsets]
            inputs = inputs._replace(samples=samples)
        dropout, sums, states = self._dropout(inputs), [], []
        for number in range(parts):
            part, rows = inputs.part(number, parts)
            factors = None if dropout is None else dropout[:, :, rows]
            is_cut = self.processes.distributed and number == parts - 1
            drop = LayerInputs(factors, self.model.options.lstm.n_layers, is_cut)
            with torch.enable_grad():
                before = state[0][:, :, rows], state[1][:, :, rows]
                losses, after = self._losses(part, before, drop)
                losses.backward(losses.new_full(losses.shape, 0.5 / self.rows))
            sums.append(losses.detach().double())
            states.append(after)
        total = sum(sums[1:], sums[0])
        for stage, dense in enumerate(self._dense):
            if cut := drop.cuts.pop(len(self._dense) - 1 - stage, None):
                yield from exchange.start()
                with torch.enable_grad():
                    torch.autograd.backward([x for x, _ in cut], [leaf.grad for _, leaf in cut])
            tables = self._tables_of_stage(stage, inputs.types.shape[2])
            yield from exchange.add(dense, tables, [] if stage else [total])
        yield from exchange.start(wait=True)
        h, c = states[0] if parts == 1 else (torch.cat(column, dim=2) for column in zip(*states, strict=True))
        means = total / inputs.words
        if isinstance(self.optimizer, AdaGrad):
            norm = clip_and_update(self.optimizer, self.parameters, self.clip_norm, self.tables, inputs.rates)
            self.optimizer.zero_grad(set_to_none=True)
            return torch.cat([means, norm.to(means)[None]]), h, c
        gradients = [(parameter, parameter.grad) for parameter in self.parameters if parameter.grad is not None]

        def update() -> None:
            for parameter, gradient in gradients:
                parameter.grad = gradient
            self._norm = clip_and_step(self.optimizer, self.parameters, self.clip_norm)
            self.optimizer.zero_grad(set_to_none=True)

        yield update
        return means, h, c

    def _dropout(self, inputs: StepInputs) -> Tensor | None:
        """Return by what dropout multiplies the inputs of L layers and the result, [L + 1, 2, B, T, D]; None for none.

        What a row drops depends on its number among all rows. CPU and GPU drop different elements.
        """
        options, (_, rows, steps), offset = self.model.options, inputs.types.shape, inputs.offsets[:1]
        if not options.dropout:
            return None
        layers, width = options.lstm.n_layers + 1, options.lstm.projection_dim
        factors_of = cpu_dropout_factors if offset.device.type == "cpu" else dropout_factors
        factors = factors_of(options.dropout, self.seed, offset, self.first_row, (2 * layers, rows, steps * width))
        return factors.view(layers, 2, rows, steps, width)

    def _losses(self, inputs: StepInputs, state: LayerStates, drop: "LayerInputs") -> tuple[Tensor, LayerStates]:
        """Return the sums of both directions' losses, [2], and the state after."""
        distinct, lengths = inputs.distinct[0] if inputs.distinct else None, inputs.lengths
        hidden, state = self.model(inputs.types, self.characters, state, lengths, drop, distinct)
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

    def _dense_by_readiness(self) -> list[list[Tensor]]:
        """Return the parameters with dense gradients, as a backward pass is done with them.

        Layers from the top down, then all others, which are the encoder's.
        """
        lstm = self.model.bilm.separate_lstm
        layers: list[list[Tensor]] = [
            [*forward.parameters(), *backward.parameters()]
            for forward, backward in zip(lstm.forward_layers, lstm.backward_layers, strict=True)
        ]
        apart = {id(each) for some in [*layers, *self.tables] for each in some}
        return [*layers[::-1], [each for each in self.parameters if id(each) not in apart]]

    def _tables_of_stage(self, stage: int, steps: int) -> list[Table]:
        """Return the tables that are ready after a stage of the backward pass; steps: T."""
        loss, tables, positions = self.model.loss, [], self.rows * steps
        if stage == 0:
            tables = [Table(self.tables[0], 2 * loss.gradient_rows(positions))]
        if stage == len(self._dense) - 1 and self.embedding is not None:
            tables.append(Table([self.embedding], 2 * positions))
        return tables


class LayerInputs:
    """What a training step does to the inputs of layers: dropout and, where asked for, cuts of the backward pass.

    factors: of dropout, as of `Step._dropout`; layers: L; cut: whether the backward pass stops at the input of each
    layer, so that what is above may be exchanged before it goes on.

    cuts: of each layer, its inputs before the cut and the leaves after it, whose gradients the pass goes on with.
    """

    def __init__(self, factors: Tensor | None, layers: int, cut: bool) -> None:
        self.factors, self.layers, self.cut = factors, layers, cut
        self.cuts: dict[int, list[tuple[Tensor, Tensor]]] = {}

    def __call__(self, x: Tensor, layer: int, direction: int) -> Tensor:
        """Return what a layer's direction reads in place of x [B, T, D]; layer L is the loss."""
        if self.factors is not None:
            x = x * self.factors[layer, direction].to(x.dtype)
        if not self.cut or layer == self.layers or not x.requires_grad:
            return x
        leaf = x.detach().requires_grad_()
        self.cuts.setdefault(layer, []).append((x, leaf))
        return leaf


BLOCK = 32  # rows that share a generator on the CPU: few unused numbers if a process has fewer rows


def cpu_dropout_factors(
    probability: float, seed: int, offset: Tensor, first_row: int, shape: tuple[int, int, int]
) -> Tensor:
    """Sample as `dropout_factors`, but by torch's generators, the fastest on a CPU: one for each BLOCK of all rows."""
    planes, rows, width = shape
    masks = []
    for block in range(first_row // BLOCK, -(-(first_row + rows) // BLOCK)):
        number = int(np.random.SeedSequence((seed, int(offset) // 2, block)).generate_state(1)[0])
        mask = torch.empty(planes, BLOCK, width, dtype=torch.uint8, device="cpu")
        masks.append(mask.bernoulli_(1 - probability, generator=torch.Generator().manual_seed(number)))
    skipped = first_row % BLOCK
    return torch.cat(masks, dim=1)[:, skipped : skipped + rows] * (1 / (1 - probability))


# Of state resets, next to the keys of dropout's draws, (seed, step, block).
_RESET_KEY = (0, 1)


def rows_to_reset(probability: float, seed: int, step: int, rows: int) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Sample which of all R rows start step `step` from a zero state, as evaluation and embedding do: [rows]."""
    return np.random.default_rng((seed, step, *_RESET_KEY)).random(rows) < probability
