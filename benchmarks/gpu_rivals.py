"""Problems of bench_gpu.py and its rivals in the same 16 bit: plain torch, eager or compiled, cuDNN, other libraries.

A rival takes tensors or modules of one dtype and computes in it throughout.
"""

import copy
import functools
import importlib
import math
import pathlib
from collections.abc import Callable, Iterator, Sequence

import h5py
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.inputs import Text, words_of_step
from elmo_fast import BiLM, CharacterEncoder, batch_to_ids, ops
from elmo_fast.modules.boundaries import add_sentence_boundary_token_ids
from elmo_fast.ops import LSTMWeights
from elmo_fast.pretrain.config import ModelConfig
from elmo_fast.pretrain.language_model import LanguageModel, options_of
from elmo_fast.pretrain.optimizer import AdaGrad
from elmo_fast.pretrain.step import Step

TOY = {"filters": [[1, 4], [2, 8]], "char_embedding_dim": 16, "n_highway": 1, "dim": 16, "projection_dim": 8}
CLIP = 3.0
Compile = Callable[[Callable[..., Tensor]], Callable[..., Tensor]]


def options(quick: bool, words: int, samples: int | None = None, dropout: float = 0.0):
    """Return the options of the original architecture, or of a toy."""
    model = ModelConfig(**(TOY if quick else {}), dropout=dropout)
    return options_of(model, words, n_negative_samples_batch=samples)


def spread(encoder: CharacterEncoder) -> None:
    """Widen the filters: features that differ between words, as in trained models."""
    with torch.no_grad():
        for convolution in encoder._convolutions:
            convolution.weight.mul_(5)


def lstm_cell(gates: Tensor, h: Tensor, c: Tensor, w_hh: Tensor, w_hr: Tensor) -> tuple[Tensor, Tensor]:
    """One step of the projected cell with both clips, from the inputs' half of the gates: (h, c)."""
    i, f, g, o = (gates + h @ w_hh.t()).chunk(4, dim=-1)
    c = (torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)).clamp(-CLIP, CLIP)
    return ((torch.sigmoid(o) * torch.tanh(c)) @ w_hr.t()).clamp(-CLIP, CLIP), c


def lstm_loop(
    inputs: Sequence[Tensor],
    weights: Sequence[LSTMWeights],
    *,
    reverse: Sequence[bool] = (False, True),
    cell: Callable[..., tuple[Tensor, Tensor]] = lstm_cell,
    hoist: bool = False,
) -> Tensor:
    """Directions one after the other, a cell per step, as AllenNLP runs it: [R, B, T, D].

    hoist: the inputs' product of all steps at once before the loop; AllenNLP makes it step by step.
    """
    outputs = []
    for x, w, backwards in zip(inputs, weights, reverse, strict=True):
        steps = [None] * x.shape[1]
        whole = F.linear(x, w.weight_ih, w.bias) if hoist else None
        h, c = x.new_zeros(x.shape[0], w.weight_hr.shape[0]), x.new_zeros(x.shape[0], w.weight_hr.shape[1])
        for t in reversed(range(x.shape[1])) if backwards else range(x.shape[1]):
            gates = F.linear(x[:, t], w.weight_ih, w.bias) if whole is None else whole[:, t]
            h, c = cell(gates, h, c, w.weight_hh, w.weight_hr)
            steps[t] = h
        outputs.append(torch.stack(steps, dim=1))
    return torch.stack(outputs)


def lstm_layers(
    both: list[Tensor], layers: Sequence[Sequence[LSTMWeights]], drop: Callable[[Tensor], Tensor] = lambda x: x, **how
) -> Iterator[list[Tensor]]:
    """Yield both directions of each layer; from the second layer on its (dropped) input is added. how: of lstm_loop."""
    for i, weights in enumerate(layers):
        both = [drop(x) for x in both]
        both = [y + x if i else y for y, x in zip(lstm_loop(both, weights, **how), both, strict=True)]
        yield both


def cudnn_lstm(weights: Sequence[LSTMWeights], dtype: torch.dtype, train: bool) -> nn.LSTM:
    """torch.nn.LSTM(proj_size) of both directions. It has no clips."""
    size, cells = weights[0].weight_hr.shape
    lstm = nn.LSTM(
        weights[0].weight_ih.shape[1], cells, proj_size=size, batch_first=True, bidirectional=True,
        device=weights[0].bias.device, dtype=dtype,
    )  # fmt: skip
    with torch.no_grad():
        for each, suffix in zip(weights, ("", "_reverse"), strict=True):
            for name, value in zip(("weight_ih", "weight_hh", "bias_ih", "weight_hr"), each, strict=True):
                getattr(lstm, f"{name}_l0{suffix}").copy_(value)
            getattr(lstm, f"bias_hh_l0{suffix}").zero_()
    return lstm.requires_grad_(train)


def lstm_weights(lstm: nn.Module) -> list[list[LSTMWeights]]:
    """The weights of both directions of each layer."""
    pairs = zip(lstm.forward_layers, lstm.backward_layers, strict=True)
    return [[each.weights for each in pair] for pair in pairs]


Layer = tuple[Tensor, Tensor]  # weight and bias


def encoder_weights(encoder: CharacterEncoder) -> tuple[Tensor, list[Layer], list[Layer], Layer]:
    """The encoder's own parameters, as `encode` takes them."""
    layers = encoder._convolutions, encoder._highways._layers, [encoder._projection]
    convolutions, highways, (last,) = ([(each.weight, each.bias) for each in some] for some in layers)
    return encoder._char_embedding_weights, convolutions, highways, last


def char_cnn(ids: Tensor, table: Tensor, convolutions: list[Layer]) -> Tensor:
    """Characters [N, C] to features [N, W]."""
    x = F.embedding(ids, table).transpose(1, 2)
    return torch.cat([F.relu(F.conv1d(x, *each).max(dim=-1).values) for each in convolutions], dim=-1)


def highway(x: Tensor, highways: list[Layer], last: Layer) -> Tensor:
    """Features [N, W] to vectors [N, D]."""
    for each in highways:
        transform, gate = F.linear(x, *each).chunk(2, dim=-1)
        gate = torch.sigmoid(gate)
        x = gate * x + (1 - gate) * F.relu(transform)
    return F.linear(x, *last)


def encode(ids: Tensor, table: Tensor, convolutions: list[Layer], highways: list[Layer], last: Layer) -> Tensor:
    """Characters [N, C] to vectors [N, D] as AllenNLP's _ElmoCharacterEncoder does it."""
    return highway(char_cnn(ids, table, convolutions), highways, last)


def scalar_mix(scalars: Tensor, gamma: Tensor, *layers: Tensor) -> Tensor:
    """One mix of layers [..., D], as AllenNLP's ScalarMix."""
    weights = torch.softmax(scalars, dim=0).split(1)
    return gamma * sum(weight * layer for weight, layer in zip(weights, layers, strict=True))


class EagerBiLM:
    """AllenNLP's biLM in plain torch, elmo_fast's weights in `dtype`: sentences of one length, no carried state.

    compiled: makes a compiled function of one; encoder and cell are, and the inputs' product leaves the loop.
    """

    def __init__(self, model: BiLM, dtype: torch.dtype, compiled: Compile | None = None) -> None:
        model = copy.deepcopy(model).to(dtype)
        self.encoder, self.layers = encoder_weights(model.encoder), lstm_weights(model.separate_lstm)
        self.markers = tuple(model.encoder.markers)
        self.encode = encode if compiled is None else compiled(encode)
        self.cell = lstm_cell if compiled is None else compiled(lstm_cell)
        self.hoist = compiled is not None

    def __call__(self, inputs: Tensor) -> list[Tensor]:
        """Activations of all layers, [B, T+2, 2D] each, of character ids [B, T, C]."""
        ids, _ = add_sentence_boundary_token_ids(inputs, (inputs > 0).any(dim=-1), *self.markers)
        words = self.encode(ids.flatten(0, 1), *self.encoder).unflatten(0, ids.shape[:2])
        layers = lstm_layers([words, words], self.layers, cell=self.cell, hoist=self.hoist)
        return [torch.cat(both, dim=-1) for both in ([words, words], *layers)]

    def embed_file(self, sentences: list[list[str]], path: pathlib.Path, rows: int) -> None:
        """Write the average of all layers as AllenNLP's embed_file does, `rows` sentences of one length at a time."""
        device = next(iter(self.encoder)).device
        with h5py.File(path, "w") as file:
            for first in range(0, len(sentences), rows):
                layers = self(batch_to_ids(sentences[first : first + rows]).to(device))
                average = torch.stack(layers).mean(dim=0)[:, 1:-1].float().cpu().numpy()
                for index, vectors in enumerate(average, first):
                    file.create_dataset(str(index), data=vectors)


def sampled_losses(hidden: Tensor, true_rows: Tensor, rows: Tensor, offsets: Tensor, ids: Tensor) -> Tensor:
    """Sampled softmax with its logits written out: losses [N]; `ids` and `offsets` of the targets, then the samples."""
    count = hidden.shape[0]
    true = (hidden * true_rows).sum(dim=1) + offsets[:count]
    others = hidden @ rows.t() + offsets[count:]
    others = others.masked_fill(ids[:count, None] == ids[None, count:], -10000.0)
    logits = torch.cat([true[:, None], others], dim=1)
    return -torch.log_softmax(logits.to(torch.promote_types(logits.dtype, torch.float32)), dim=1)[:, 0]


def negative_losses(
    hidden: Tensor, true_rows: Tensor, rows: Tensor, offsets: Tensor, ids: Tensor, share: float
) -> Tensor:
    """Negative sampling with its scores written out: as `sampled_losses`, each sample times `share`."""
    count = hidden.shape[0]
    true = (hidden * true_rows).sum(dim=1) + offsets[:count]
    others = F.logsigmoid(-(hidden @ rows.t() + offsets[count:]))
    others = others.masked_fill(ids[:count, None] == ids[None, count:], 0.0)
    return -F.logsigmoid(true) - share * others.sum(1)


def path_losses(hidden: Tensor, rows: Tensor, offsets: Tensor, signs: Tensor, inside: Tensor) -> Tensor:
    """Cross entropy along paths of nodes, rows [N, steps, D] and what lies inside the path: losses [N]."""
    scores = torch.bmm(rows, hidden[:, :, None])[:, :, 0] + offsets
    return -F.logsigmoid(signs * scores).masked_fill(~inside, 0.0).sum(1)


def sampled_softmax(
    hidden: Tensor, table: Tensor, bias: Tensor, ids: Tensor, samples: int, tries: Tensor, core=sampled_losses
) -> Tensor:
    """Sampled softmax with a sparse embedding; `ids` of the targets of hidden states, then of the samples."""
    count = len(hidden)
    rows, offsets = F.embedding(ids, table, sparse=True), F.embedding(ids, bias[:, None])[..., 0]
    expected = ops.log_expected_counts(ids, tries, samples, len(table)).to(bias.dtype)
    return core(hidden, rows[:count], rows[count:], offsets - expected, ids)


def full_losses(hidden: Tensor, table: Tensor, bias: Tensor, targets: Tensor) -> Tensor:
    """Cross entropy over all words with its logits written out: losses [N]."""
    logits = F.linear(hidden, table, bias)
    return F.cross_entropy(logits.to(torch.promote_types(logits.dtype, torch.float32)), targets, reduction="none")


def liger_losses(hidden: Tensor, table: Tensor, bias: Tensor, targets: Tensor) -> Tensor:
    """Liger's fused linear cross entropy, which computes the gradients in the forward pass: the mean loss."""
    liger = importlib.import_module("liger_kernel.transformers")
    return liger.LigerFusedLinearCrossEntropyLoss()(table, hidden, targets, bias)


def cut_losses(hidden: Tensor, table: Tensor, bias: Tensor, targets: Tensor) -> Tensor:
    """Cut cross-entropy as its default has it, which leaves out small gradients: the mean loss."""
    cut = importlib.import_module("cut_cross_entropy")
    return cut.linear_cross_entropy(hidden, table, targets, bias)


def torch_losses(hidden: Tensor, table: Tensor, bias: Tensor, targets: Tensor) -> Tensor:
    """torch's own fused linear cross entropy, from 2.13 on: the mean loss."""
    return F.linear_cross_entropy(hidden, table, targets, linear_bias=bias)


LIBRARIES = {"Liger": liger_losses, "cut-cross-entropy": cut_losses, "linear_cross_entropy (torch)": torch_losses}


class LossProblem:
    """A loss over all words, a sample or a tree: hidden states, targets by a law like the samples', a table, its bias.

    All sides have the same samples, and return the gradient of the rows of the table that were used.
    """

    def __init__(self, op: str, device: torch.device, rows: int, words: int, samples: int, size: int) -> None:
        generator = torch.Generator(device).manual_seed(0)
        entries = words - 1 if op == "hierarchical_softmax" else words
        hidden = torch.randn(rows, size, device=device, generator=generator)
        table = torch.randn(entries, size, device=device, generator=generator) * size**-0.5
        self.op, self.tensors = op, (hidden, table, torch.randn(entries, device=device, generator=generator))
        log = torch.rand(rows, device=device, generator=generator, dtype=torch.float64) * math.log(words + 1)
        self.targets = (log.exp().long() - 1).clamp(0, words - 1)
        if op == "full_softmax":
            self.core = full_losses
            return
        counts = 10**7 // torch.arange(1, words + 1)  # by rank, as Zipf's law has it
        if op == "hierarchical_softmax":
            self.core, self.tree = path_losses, ops.huffman_tree(counts).to(device)
            begin, end = self.tree.first[self.targets, None], self.tree.first[self.targets + 1, None]
            steps = begin + torch.arange(self.tree.longest, device=device)
            self.inside, steps = steps < end, torch.minimum(steps, end - 1)  # paths padded by their own last step
            self.ids, self.signs = self.tree.nodes[steps], 1 - 2 * self.tree.codes[steps].long()
            return
        if op == "negative_sampling":
            self.core, law = negative_losses, ops.alias_table(counts, power=0.75)
            self.samples = ops.alias_sample(samples // 8 + 1, law, seed=1, device=device)
        else:
            self.core = sampled_losses
            self.samples, self.tries = (t.to(device) for t in ops.log_uniform_sample(samples, words, seed=1))
        self.ids = torch.cat([self.targets, self.samples])

    def fused(self, hidden: Tensor, table: Tensor, bias: Tensor, **how: str) -> Tensor:
        """Return elmo_fast's losses [N]. how: precision, backend."""
        if self.op == "full_softmax":
            return ops.full_softmax(hidden, self.targets, table, bias, **how)
        how = {"sparse": True, **how}
        if self.op == "hierarchical_softmax":
            return ops.hierarchical_softmax(hidden, self.targets, table, bias, self.tree, **how)
        if self.op == "negative_sampling":
            return ops.negative_sampling(hidden, self.targets, table, bias, self.samples, negatives=5, **how)
        return ops.sampled_softmax(hidden, self.targets, table, bias, self.samples, self.tries, **how)

    def plain(self, hidden: Tensor, table: Tensor, bias: Tensor, core: Callable[..., Tensor]) -> Tensor:
        """Return the losses of plain torch, with sparse embeddings and written logits; `core` may be compiled."""
        if self.op == "full_softmax":
            return core(hidden, table, bias, self.targets)
        if self.op == "sampled_softmax":
            return sampled_softmax(hidden, table, bias, self.ids, len(self.samples), self.tries, core)
        rows, offsets = F.embedding(self.ids, table, sparse=True), F.embedding(self.ids, bias[:, None])[..., 0]
        if self.op == "hierarchical_softmax":
            return core(hidden, rows, offsets, self.signs, self.inside)
        count = len(self.targets)
        return core(hidden, rows[:count], rows[count:], offsets, self.ids, 5 / len(self.samples))


class TrainStep:
    """The words of both directions of one step, and the weights of a fixed seed; a word's id is its rank."""

    def __init__(
        self, device: torch.device, quick: bool, text: Text, rows: int, steps: int, words: int, dropout: float
    ) -> None:
        self.dropout, self.device, self.quick, self.words, self.steps = dropout, device, quick, words, steps
        self.samples = 10 if quick else 8192
        running, count = [word for sentence in text.sentences for word in sentence], rows * steps
        running = [running[i % len(running)] for i in range(2 * count)]
        ranks = {word: i % words for i, word in enumerate(dict.fromkeys(running))}
        self.batch, self.characters = words_of_step(running[:count], running[count:], ranks, rows, device)

    def model(self, **how) -> LanguageModel:
        torch.manual_seed(0)
        with torch.device(self.device):  # a table of 793,471 words takes seconds on a CPU
            model = LanguageModel(options(self.quick, self.words, self.samples, self.dropout), **how)
        spread(model.bilm.encoder)
        return model.to(self.device)

    def fused(self, precision: str, carried: bool = True) -> Callable[[], Tensor]:
        """Return a step of elmo_fast: the losses of both directions.

        carried: whether a step starts from the state after the one before.
        """
        model = self.model(precision=precision)
        rows, state, count = self.batch.types.shape[1], None, 0
        update = Step(model, AdaGrad(model.parameters()), self.characters, rows=rows, clip_norm=10.0)

        def step():
            nonlocal state, count
            result = update(self.batch, state, count)
            state, count = result.state if carried else None, count + 1
            return torch.stack([torch.as_tensor(loss) for loss in (result.forward, result.backward)])

        return step

    def eager(self, precision: str, compiled: Compile | None = None) -> Callable[[], Tensor]:
        """Return a step of plain torch: autocast, sparse embeddings, torch's own AdaGrad, no carried state.

        precision: "float64" too. compiled: as in EagerBiLM; the loss of the samples is compiled too.
        """
        functions = {}
        if compiled is not None:
            functions = {"encode": compiled(encode), "core": compiled(sampled_losses)}
            functions |= {"cell": compiled(lstm_cell), "hoist": True}
        model = self.model(backend="reference").to(torch.float64 if precision == "float64" else torch.float32)
        dense = [p for name, p in model.named_parameters() if name != "loss.softmax_w"]
        how = {"lr": 0.2, "initial_accumulator_value": 1.0, "eps": 0.0}
        optimizers = torch.optim.Adagrad(dense, foreach=True, **how), torch.optim.Adagrad([model.softmax_weight], **how)
        count = 0

        def step():
            nonlocal count
            model.zero_grad(set_to_none=True)
            losses = torch.stack(self.losses(model, count, getattr(torch, precision), **functions))
            (0.5 * losses.sum() * self.steps).backward()
            gradients = [p.grad.coalesce().values() if p.grad.is_sparse else p.grad for p in model.parameters()]
            torch.nn.utils.clip_grads_with_norm_(
                model.parameters(), 10.0, torch.nn.utils.get_total_norm(gradients), foreach=False
            )
            for optimizer in optimizers:
                optimizer.step()
            count += 1
            return losses.detach()

        return step

    def losses(
        self, model: LanguageModel, draw: int, dtype: torch.dtype, encode=encode, core=sampled_losses, **lstm_options
    ) -> tuple[Tensor, ...]:
        """Return the mean loss per direction in plain torch; products in bfloat16 by autocast, or all in `dtype`."""
        device = self.device
        weights, layers = encoder_weights(model.bilm.encoder), lstm_weights(model.bilm.lstm)
        with torch.autocast(device.type, torch.bfloat16, enabled=dtype == torch.bfloat16):
            both = [
                encode(self.characters(ids.flatten().to(device)), *weights).unflatten(0, (-1, self.steps))
                for ids in self.batch.types
            ]
            drop = functools.partial(F.dropout, p=self.dropout)
            *_, both = lstm_layers(both, layers, drop, reverse=(False, False), **lstm_options)
            return tuple(
                self.loss(model, drop(hidden), targets.to(device), core, offset=2 * draw + way)
                for way, (hidden, targets) in enumerate(zip(both, self.batch.targets, strict=True))
            )

    def loss(self, model: LanguageModel, hidden: Tensor, targets: Tensor, core: Callable, *, offset: int) -> Tensor:
        """Return the mean sampled-softmax loss of one direction."""
        sampled, tries = ops.log_uniform_sample(self.samples, self.words, seed=0, offset=offset)
        ids, hidden = torch.cat([targets.flatten(), sampled.to(self.device)]), hidden.flatten(0, 1)
        table = model.softmax_weight, model.softmax_bias
        return sampled_softmax(hidden, *table, ids, self.samples, tries.to(self.device), core).mean()

    def truth(self) -> list[Tensor]:
        """Return `first_losses` in float64."""
        return first_losses(self.eager("float64"))


def first_losses(step: Callable[[], Tensor]) -> list[Tensor]:
    """Return both losses of the first step, and how much they differ after two updates; elmo_fast replays the last."""
    first, _, last = (step().double().cpu() for _ in range(3))
    return [first, last - first]
