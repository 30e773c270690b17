"""The rivals of bench_gpu.py, in the same 16 bit: plain torch, to be run eagerly or compiled, and cuDNN's LSTM.

Each takes tensors of one dtype and computes in it throughout.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.op_calls import differentiated
from elmo_fast import ops
from elmo_fast.modules import BiLM, CharacterEncoder
from elmo_fast.modules.boundaries import add_sentence_boundary_token_ids
from elmo_fast.ops import LSTMWeights

CLIP = 3.0
Cell = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]


def in_dtype(weights: Any, dtype: torch.dtype) -> Any:
    """The same struct with leaves of its own in `dtype`."""

    def leaf(each: Any) -> Any:
        if isinstance(each, list):
            return [leaf(one) for one in each]
        return None if each is None else each.detach().to(dtype).requires_grad_(each.requires_grad)

    return type(weights)(*map(leaf, weights))


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
    cell: Cell = lstm_cell,
    hoist: bool = False,
) -> Tensor:
    """Directions one after the other, a cell per step, as AllenNLP runs it: [R, B, T, D].

    hoist: the inputs' product of all steps at once before the loop; AllenNLP makes it step by step.
    """
    outputs = []
    for x, w, backwards in zip(inputs, weights, reverse, strict=True):
        assert w.weight_hr is not None
        steps: list[Tensor | None] = [None] * x.shape[1]
        whole = F.linear(x, w.weight_ih, w.bias) if hoist else None
        h, c = x.new_zeros(x.shape[0], w.weight_hr.shape[0]), x.new_zeros(x.shape[0], w.weight_hr.shape[1])
        for t in reversed(range(x.shape[1])) if backwards else range(x.shape[1]):
            gates = F.linear(x[:, t], w.weight_ih, w.bias) if whole is None else whole[:, t]
            h, c = cell(gates, h, c, w.weight_hh, w.weight_hr)
            steps[t] = h
        outputs.append(torch.stack(steps, dim=1))  # type: ignore[arg-type]
    return torch.stack(outputs)


def cudnn_lstm(weights: Sequence[LSTMWeights], dtype: torch.dtype) -> nn.LSTM:
    """torch.nn.LSTM(proj_size) of both directions. It has no clips."""
    first = weights[0]
    assert first.weight_hr is not None
    size, cells = first.weight_hr.shape
    lstm = nn.LSTM(
        first.weight_ih.shape[1], cells, proj_size=size, batch_first=True, bidirectional=True,
        device=first.bias.device, dtype=dtype,
    )  # fmt: skip
    with torch.no_grad():
        for each, suffix in zip(weights, ("", "_reverse"), strict=True):
            for name, value in zip(("weight_ih", "weight_hh", "bias_ih", "weight_hr"), each, strict=True):
                getattr(lstm, f"{name}_l0{suffix}").copy_(value)
            getattr(lstm, f"bias_hh_l0{suffix}").zero_()
    return lstm.requires_grad_(first.weight_ih.requires_grad)


class EncoderWeights(NamedTuple):
    """Of a CharacterEncoder, as `encode` takes them."""

    embedding: Tensor
    convolutions: list[Tensor]
    biases: list[Tensor]
    highways: list[Tensor]
    highway_biases: list[Tensor]
    projection: Tensor
    projection_bias: Tensor

    @classmethod
    def of(cls, tokens: CharacterEncoder) -> "EncoderWeights":
        """The encoder's own parameters."""
        convolutions, highways, last = tokens._convolutions, tokens._highways.layers, tokens._projection
        assert last is not None
        (kernels, biases), (gates, gate_biases) = (
            ([each.weight for each in some], [each.bias for each in some]) for some in (convolutions, highways)
        )
        table = tokens._char_embedding_weights
        return cls(table, kernels, biases, gates, gate_biases, last.weight, last.bias)  # type: ignore[arg-type]


def convolve(ids: Tensor, w: EncoderWeights) -> Tensor:
    """Characters [N, C] to features [N, F]."""
    x = F.embedding(ids, w.embedding).transpose(1, 2)
    features = [F.relu(F.conv1d(x, k, b).max(dim=-1).values) for k, b in zip(w.convolutions, w.biases, strict=True)]
    return torch.cat(features, dim=-1)


def highways(x: Tensor, w: EncoderWeights) -> Tensor:
    """Features [N, F] to vectors [N, D]."""
    for weight, bias in zip(w.highways, w.highway_biases, strict=True):
        transform, gate = F.linear(x, weight, bias).chunk(2, dim=-1)
        gate = torch.sigmoid(gate)
        x = gate * x + (1 - gate) * F.relu(transform)
    return F.linear(x, w.projection, w.projection_bias)


def encode(ids: Tensor, w: EncoderWeights) -> Tensor:
    """Characters [N, C] to vectors [N, D] as AllenNLP's _ElmoCharacterEncoder does it."""
    return highways(convolve(ids, w), w)


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


def scalar_mix(layers: Sequence[Tensor], scalars: Tensor, gamma: Tensor) -> Tensor:
    """One mix of layers [..., D], as AllenNLP's ScalarMix."""
    weights = torch.softmax(scalars, dim=0).split(1)
    return gamma * sum(weight * layer for weight, layer in zip(weights, layers, strict=True))


class EagerBiLM:
    """AllenNLP's biLM in plain torch, elmo_fast's weights in `dtype`: sentences of one length, no carried state.

    compiled: makes a compiled function of one; encoder and cell are, and the inputs' product leaves the loop.
    """

    def __init__(self, model: BiLM, dtype: torch.dtype, compiled: Callable[..., Any] | None = None) -> None:
        self.encoder = in_dtype(EncoderWeights.of(model._token_embedder), dtype)
        lstm = model._separate_lstm
        pairs = zip(lstm.forward_layers, lstm.backward_layers, strict=True)
        self.layers = [[in_dtype(each.weights, dtype) for each in pair] for pair in pairs]
        self.markers = tuple(model._token_embedder.markers)
        self.encode = encode if compiled is None else compiled(encode)
        self.cell = lstm_cell if compiled is None else compiled(lstm_cell)
        self.hoist = compiled is not None

    def __call__(self, inputs: Tensor) -> list[Tensor]:
        """Activations of all layers, [B, T+2, 2D] each, of character ids [B, T, C]."""
        ids, _ = add_sentence_boundary_token_ids(inputs, (inputs > 0).any(dim=-1), *self.markers)
        words = self.encode(ids.flatten(0, 1), self.encoder).unflatten(0, ids.shape[:2])
        both, activations = [words, words], [torch.cat([words, words], dim=-1)]
        for i, weights in enumerate(self.layers):
            outputs = lstm_loop(both, weights, cell=self.cell, hoist=self.hoist)
            both = [y + x if i else y for y, x in zip(outputs, both, strict=True)]
            activations.append(torch.cat(both, dim=-1))
        return activations


class LossProblem:
    """A loss over a sample or a tree of words: hidden states, targets by a law like the samples', a table, its bias.

    All sides have the same samples, and return the gradient of the rows of the table that were used.
    """

    def __init__(self, op: str, device: torch.device, rows: int, words: int, samples: int, size: int) -> None:
        generator = torch.Generator(device).manual_seed(0)
        entries = words - 1 if op == "hierarchical_softmax" else words
        self.op, self.device = op, device
        self.hidden = torch.randn(rows, size, device=device, generator=generator)
        self.table = torch.randn(entries, size, device=device, generator=generator) * size**-0.5
        self.bias = torch.randn(entries, device=device, generator=generator)
        log = torch.rand(rows, device=device, generator=generator, dtype=torch.float64) * math.log(words + 1)
        self.targets = (log.exp().long() - 1).clamp(0, words - 1)
        counts = 10**7 // torch.arange(1, words + 1)  # by rank, as Zipf's law has it
        if op == "hierarchical_softmax":
            self.core, self.tree = path_losses, ops.huffman_tree(counts).to(device)
            begin, end = self.tree.first[self.targets, None], self.tree.first[self.targets + 1, None]
            steps = begin + torch.arange(self.tree.longest, device=device)
            self.inside, steps = steps < end, torch.minimum(steps, end - 1)  # paths padded by their own last step
            self.ids, self.signs = self.tree.nodes[steps], 1 - 2 * self.tree.codes[steps].long()
        elif op == "negative_sampling":
            self.core = negative_losses
            self.samples = ops.alias_sample(
                samples // 8 + 1, ops.alias_table(counts, power=0.75), seed=1, device=device
            )
            self.ids = torch.cat([self.targets, self.samples])
        else:
            self.core = sampled_losses
            self.samples, self.tries = (t.to(device) for t in ops.log_uniform_sample(samples, words, seed=1))
            self.ids = torch.cat([self.targets, self.samples])

    def loss(self, hidden: Tensor, table: Tensor, bias: Tensor, **how: Any) -> Tensor:
        """Return elmo_fast's losses [N]."""
        if self.op == "hierarchical_softmax":
            return ops.hierarchical_softmax(hidden, self.targets, table, bias, self.tree, **how)
        if self.op == "negative_sampling":
            return ops.negative_sampling(hidden, self.targets, table, bias, self.samples, negatives=5, **how)
        return ops.sampled_softmax(hidden, self.targets, table, bias, self.samples, self.tries, **how)

    def plain_loss(self, hidden: Tensor, table: Tensor, bias: Tensor, core: Callable[..., Tensor]) -> Tensor:
        """Return the losses of plain torch, with sparse embeddings and written logits; `core` may be compiled."""
        rows, offsets = F.embedding(self.ids, table, sparse=True), F.embedding(self.ids, bias[:, None])[..., 0]
        if self.op == "hierarchical_softmax":
            return core(hidden, rows, offsets, self.signs, self.inside)
        count = len(self.targets)
        if self.op == "negative_sampling":
            return core(hidden, rows[:count], rows[count:], offsets, self.ids, 5 / len(self.samples))
        expected = ops.log_expected_counts(self.ids, self.tries, len(self.samples), len(table)).to(table.dtype)
        return core(hidden, rows[:count], rows[count:], offsets - expected, self.ids)

    def _call(self, loss: Callable[..., Tensor], dtype: torch.dtype) -> tuple[Callable[[], Any], Callable[[Any], Any]]:
        leaves = [t.detach().to(dtype).requires_grad_() for t in (self.hidden, self.table, self.bias)]

        def read(result: Any) -> dict[str, Tensor]:
            losses, (hidden, table, _) = result
            rows = table.coalesce().values()
            return {"losses": losses.detach().double(), "d hidden": hidden.double(), "d rows": rows.double()}

        return differentiated(lambda: loss(*leaves), leaves), read

    def ours(self, precision: str) -> tuple[Callable[[], Any], Callable[[Any], Any]]:
        """Return the call of elmo_fast, and a function that names its results."""
        return self._call(lambda *leaves: self.loss(*leaves, sparse=True, precision=precision), torch.float32)

    def plain(self, dtype: torch.dtype, core: Callable[..., Tensor]) -> tuple[Callable[[], Any], Callable[[Any], Any]]:
        """Return the call of plain torch, and a function that names its results."""
        return self._call(lambda *leaves: self.plain_loss(*leaves, core), dtype)
