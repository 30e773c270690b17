"""The rivals of bench_gpu.py, in the same 16 bit: plain torch, to be run eagerly or compiled, and cuDNN's LSTM.

Each takes tensors or modules of one dtype and computes in it throughout.
"""

import copy
import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from elmo_fast import ops
from elmo_fast.modules import BiLM, CharacterEncoder
from elmo_fast.modules.boundaries import add_sentence_boundary_token_ids
from elmo_fast.ops import LSTMWeights

CLIP = 3.0


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


Layer = tuple[Tensor, Tensor]  # weight and bias


def encoder_weights(encoder: CharacterEncoder) -> tuple[Tensor, list[Layer], list[Layer], Layer]:
    """The encoder's own parameters, as `encode` takes them."""
    layers = encoder._convolutions, encoder._highways.layers, [encoder._projection]
    convolutions, highways, (last,) = ([(each.weight, each.bias) for each in some] for some in layers)
    return encoder._char_embedding_weights, convolutions, highways, last


def encode(ids: Tensor, table: Tensor, convolutions: list[Layer], highways: list[Layer], last: Layer) -> Tensor:
    """Characters [N, C] to vectors [N, D] as AllenNLP's _ElmoCharacterEncoder does it."""
    x = F.embedding(ids, table).transpose(1, 2)
    x = torch.cat([F.relu(F.conv1d(x, *each).max(dim=-1).values) for each in convolutions], dim=-1)
    for each in highways:
        transform, gate = F.linear(x, *each).chunk(2, dim=-1)
        gate = torch.sigmoid(gate)
        x = gate * x + (1 - gate) * F.relu(transform)
    return F.linear(x, *last)


def scalar_mix(scalars: Tensor, gamma: Tensor, *layers: Tensor) -> Tensor:
    """One mix of layers [..., D], as AllenNLP's ScalarMix."""
    weights = torch.softmax(scalars, dim=0).split(1)
    return gamma * sum(weight * layer for weight, layer in zip(weights, layers, strict=True))


class EagerBiLM:
    """AllenNLP's biLM in plain torch, elmo_fast's weights in `dtype`: sentences of one length, no carried state.

    compiled: makes a compiled function of one; encoder and cell are, and the inputs' product leaves the loop.
    """

    def __init__(self, model: BiLM, dtype: torch.dtype, compiled: Callable[..., Callable] | None = None) -> None:
        model = copy.deepcopy(model).to(dtype)
        self.encoder, lstm = encoder_weights(model._token_embedder), model._separate_lstm
        self.markers = tuple(model._token_embedder.markers)
        pairs = zip(lstm.forward_layers, lstm.backward_layers, strict=True)
        self.layers = [[each.weights for each in pair] for pair in pairs]
        self.encode = encode if compiled is None else compiled(encode)
        self.cell = lstm_cell if compiled is None else compiled(lstm_cell)
        self.hoist = compiled is not None

    def __call__(self, inputs: Tensor) -> list[Tensor]:
        """Activations of all layers, [B, T+2, 2D] each, of character ids [B, T, C]."""
        ids, _ = add_sentence_boundary_token_ids(inputs, (inputs > 0).any(dim=-1), *self.markers)
        words = self.encode(ids.flatten(0, 1), *self.encoder).unflatten(0, ids.shape[:2])
        both, activations = [words, words], [torch.cat([words, words], dim=-1)]
        for i, weights in enumerate(self.layers):
            outputs = lstm_loop(both, weights, cell=self.cell, hoist=self.hoist)
            both = [y + x if i else y for y, x in zip(outputs, both, strict=True)]
            activations.append(torch.cat(both, dim=-1))
        return activations


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


class LossProblem:
    """A loss over a sample or a tree of words: hidden states, targets by a law like the samples', a table, its bias.

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

    def fused(self, hidden: Tensor, table: Tensor, bias: Tensor, precision: str) -> Tensor:
        """Return elmo_fast's losses [N]."""
        how = {"sparse": True, "precision": precision}
        if self.op == "hierarchical_softmax":
            return ops.hierarchical_softmax(hidden, self.targets, table, bias, self.tree, **how)
        if self.op == "negative_sampling":
            return ops.negative_sampling(hidden, self.targets, table, bias, self.samples, negatives=5, **how)
        return ops.sampled_softmax(hidden, self.targets, table, bias, self.samples, self.tries, **how)

    def plain(self, hidden: Tensor, table: Tensor, bias: Tensor, core: Callable[..., Tensor]) -> Tensor:
        """Return the losses of plain torch, with sparse embeddings and written logits; `core` may be compiled."""
        if self.op == "sampled_softmax":
            return sampled_softmax(hidden, table, bias, self.ids, len(self.samples), self.tries, core)
        rows, offsets = F.embedding(self.ids, table, sparse=True), F.embedding(self.ids, bias[:, None])[..., 0]
        if self.op == "hierarchical_softmax":
            return core(hidden, rows, offsets, self.signs, self.inside)
        count = len(self.targets)
        return core(hidden, rows[:count], rows[count:], offsets, self.ids, 5 / len(self.samples))
