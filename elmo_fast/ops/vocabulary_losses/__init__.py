"""Losses over a vocabulary: full_softmax, sampled_softmax and negative_sampling, products of rows with a table."""

import functools
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid
from torch.utils.checkpoint import checkpoint

from elmo_fast.errors import ElmoFastError, check_choice
from elmo_fast.ops._autograd import register_op, requires_grad
from elmo_fast.ops._checks import check_output_layer, check_same, check_shapes, check_tensor, checked
from elmo_fast.ops._dispatch import register, registered_op, select
from elmo_fast.ops._precision import rounded, under_autocast
from elmo_fast.ops._table_rows import table_gradients, table_rows
from elmo_fast.ops.log_uniform_sample import CORRECTIONS, log_expected_counts

CHUNK_BYTES = 32 * 2**20
ROWS = 1024  # of a block of the definition


def full_softmax(
    hidden: Tensor,
    targets: Tensor,
    weight: Tensor,
    bias: Tensor,
    *,
    chunk_bytes: int = CHUNK_BYTES,
    precision: str = "float32",
    backend: str = "auto",
) -> Tensor:
    """Compute the cross entropy of each row over all V words, by a log-sum-exp over blocks of words.

        loss_n = ln(sum_v exp(h_n · w_v + b_v)) - (h_n · w_t + b_t)            t = targets_n

    At most `chunk_bytes` of logits exist at a time; the backward pass computes them again, block by block. On a GPU the
    forward pass writes no logits, and `chunk_bytes` bounds the rounded copy of a part of the table.

    Args:
        hidden: h, [N, D]
        targets: [N] int64, words of the table
        weight: the softmax table w, [V, D]
        bias: b, [V]
        chunk_bytes: bound for the logits, bytes (Triton: at least one tile of them)
        precision: dtype to which hidden and table are rounded for the products; under torch.autocast "float32" means
            autocast's dtype
        backend: "auto", "native", "triton" or "reference"

    Returns:
        losses: [N], dtype of hidden, nats; exp of their mean is the perplexity

    Raises:
        ElmoFastError: shapes, dtypes or devices that do not fit; a target outside the table (on a GPU, where values
            are not validated, its loss is NaN instead).

    Source: Milakov and Gimelshein 2018, Online normalizer calculation for softmax.
    """
    op = "full_softmax"
    check_tensor(op, "hidden", hidden)
    precision, (hidden,), no_autocast = under_autocast(precision, hidden.device, hidden)
    check_output_layer(op, hidden, targets, weight, bias, chunk_bytes)
    backend = select(op, backend, hidden.device, hidden.dtype, precision)
    with no_autocast:
        if backend == "reference":
            return checked(op, _full_reference)(hidden, targets, weight, bias, precision, chunk_bytes)
        save = requires_grad(hidden, weight, bias)
        return registered_op(op, backend)(hidden, targets, weight, bias, precision, chunk_bytes, save)[0]


def sampled_softmax(
    hidden: Tensor,
    targets: Tensor,
    weight: Tensor,
    bias: Tensor,
    samples: Tensor,
    tries: Tensor | int,
    *,
    correction: str = "tensorflow",
    sparse: bool = False,
    chunk_bytes: int = CHUNK_BYTES,
    precision: str = "float32",
    backend: str = "auto",
) -> Tensor:
    """Compute the cross entropy of each row against its target and S sampled words.

    Logits are corrected for how often each word is sampled:

        l_n  = h_n · w_t + b_t - ln Q(t)            t = targets_n
        l_ns = h_n · w_s + b_s - ln Q(s)            s in samples, left out where s = t (an accidental hit)
        loss_n = ln(exp(l_n) + sum_s exp(l_ns)) - l_n

    Q is `expected_counts`. AllenNLP sets accidental hits to -10000 instead of leaving them out, which gives the same
    loss while l_n > -9800. At most `chunk_bytes` of logits exist at a time. If all fit, the CPU keeps them for the
    backward pass; otherwise, and on a GPU always, they are computed again. Gradients go to hidden, weight and bias.

    Args:
        hidden: h, [N, D]
        targets: [N] int64, words of the table
        weight: the softmax table w, [V, D]
        bias: b, [V]
        samples: distinct words, [S] int64, as from `log_uniform_sample`
        tries: number of tries the sample took, [] int64 or int
        correction: origin of the expected counts: "tensorflow" (bilm-tf), "allennlp" (2.x) or "allennlp-0.9"
        sparse: gradients of weight and bias as sparse COO tensors of the words used. On the CPU they are coalesced
            (indices sorted and distinct; see `coalesced` for what autograd makes of the flag). On a GPU they are not,
            because merging would wait for the device: the words come in the order targets, samples, with repetitions.
            Nor are they in a graph of torch.compile
        chunk_bytes: bound for the logits, bytes (Triton: for their gradients; at least one tile of rows)
        precision: dtype to which hidden and the table's rows are rounded for the products; under torch.autocast
            "float32" means autocast's dtype
        backend: "auto", "native", "triton" or "reference"

    Returns:
        losses: [N], dtype of hidden, nats

    Raises:
        ElmoFastError: shapes, dtypes or devices that do not fit; a word outside the table (on a GPU, where values are
            not validated, such a target has loss NaN instead, and such a sample makes every loss NaN).

    Source: Jean et al. 2015, section 3; tf.nn.sampled_softmax_loss (num_true=1, remove_accidental_hits=True).
    """
    op = "sampled_softmax"
    check_tensor(op, "hidden", hidden)
    precision, (hidden,), no_autocast = under_autocast(precision, hidden.device, hidden)
    check_output_layer(op, hidden, targets, weight, bias, chunk_bytes, samples=samples)
    check_choice(f"{op}: correction", correction, CORRECTIONS)
    backend = select(op, backend, hidden.device, hidden.dtype, precision)
    log_expected = None
    if backend != "triton":  # whose kernel computes it of the words that it looks up
        with torch.no_grad():
            ids = torch.cat([targets, samples])
            expected = log_expected_counts(ids, tries, len(samples), len(weight), correction=correction)
            log_expected = expected.to(bias.dtype)
    with no_autocast:
        if backend == "reference":
            table = weight, bias, samples, log_expected, sparse, chunk_bytes, precision
            return checked(op, _of_samples)(_sampled_losses, hidden, targets, *table)
        options = sparse, chunk_bytes, precision, requires_grad(hidden, weight, bias)
        if not isinstance(tries, Tensor):
            tries = torch.full((), tries, dtype=torch.int64, device=hidden.device)
        tries = tries.to(hidden.device, torch.int64, non_blocking=True)
        run = registered_op(op, backend)
        return run(hidden, targets, weight, bias, samples, tries, correction, log_expected, *options)[0]


def negative_sampling(
    hidden: Tensor,
    targets: Tensor,
    weight: Tensor,
    bias: Tensor,
    samples: Tensor,
    *,
    log_noise: Tensor | None = None,
    negatives: float | None = None,
    sparse: bool = False,
    chunk_bytes: int = CHUNK_BYTES,
    precision: str = "float32",
    backend: str = "auto",
) -> Tensor:
    """Compute the logistic loss of telling each row's target from S sampled words, which all rows share.

        s_nk   = h_n · w_k + b_k                                     (with log_noise: ... - ln(K P_k))
        loss_n = -ln σ(s_nt) - K/S sum_{k in samples, k ≠ t} ln σ(-s_nk)            t = targets_n

    word2vec samples K words for each row. Here all rows share one sample of S words, in one matrix product; the mean
    over the sample times K (`negatives`) has the same expectation. Samples equal to the target are left out, as in
    word2vec. At the optimum s is nearly ln(p(k | h) / P_k) - ln K (Levy and Goldberg 2014), which is not a logit of a
    softmax.

    With `log_noise` this is noise-contrastive estimation: at the optimum h · w + b is ln p(k | h), so `full_softmax` of
    the same table gives a perplexity. Samples equal to the target then count, as that estimate requires.

    Args:
        hidden: h, [N, D]
        targets: [N] int64, words of the table
        weight: the output table w, [V, D]
        bias: b, [V]; zeros for word2vec's own objective
        samples: [S] int64, sampled with replacement, as from `alias_sample`; a word sampled twice counts twice
        log_noise: ln P, [V], dtype of hidden, with P the distribution of the samples; None: word2vec's objective
        negatives: K, the weight of the sample as a number of words per target, above 0; None: S
        sparse: gradients of weight and bias as sparse COO tensors of the words used, as for `sampled_softmax`
        chunk_bytes: bound for the scores, bytes (Triton: for their gradients; at least one tile of rows)
        precision: dtype to which hidden and the table's rows are rounded for the products; under torch.autocast
            "float32" means autocast's dtype
        backend: "auto", "native", "triton" or "reference"

    Returns:
        losses: [N], dtype of hidden, nats

    Raises:
        ElmoFastError: shapes, dtypes or devices that do not fit; a word outside the table (on a GPU, where values are
            not validated, such a target has loss NaN instead, and such a sample makes every loss NaN).

    Source: Mikolov et al. 2013b, Distributed representations of words and phrases, eq. 4; Mnih and Teh 2012, A fast and
    simple algorithm for training neural probabilistic language models (noise contrastive estimation).
    """
    op = "negative_sampling"
    check_tensor(op, "hidden", hidden)
    precision, (hidden,), no_autocast = under_autocast(precision, hidden.device, hidden)
    check_output_layer(op, hidden, targets, weight, bias, chunk_bytes, samples=samples)
    if log_noise is not None:
        check_shapes(op, ("log_noise", log_noise, "V"), V=weight.shape[0])
        check_same(op, "hidden and log_noise", [hidden, log_noise])
    negatives = float(len(samples) if negatives is None else negatives)
    if not 0 < negatives < float("inf"):
        raise ElmoFastError(f"{op}: negatives must be above 0 and finite; got {negatives}")
    backend = select(op, backend, hidden.device, hidden.dtype, precision)
    log_noise = None if log_noise is None else log_noise.detach()
    arguments = hidden, targets, weight, bias, samples, log_noise, negatives, sparse, chunk_bytes, precision
    with no_autocast:
        if backend == "reference":
            law = None if log_noise is None else log_noise[torch.cat([targets, samples])] + math.log(negatives)
            losses = functools.partial(_negative_losses, share=negatives / len(samples), hits=law is not None)
            table = weight, bias, samples, law, sparse, chunk_bytes, precision
            return checked(op, _of_samples)(losses, hidden, targets, *table)
        return registered_op(op, backend)(*arguments, requires_grad(hidden, weight, bias))[0]


def _block(hidden: Tensor, weight: Tensor, bias: Tensor, true: Tensor) -> Tensor:
    # Logits less the target's: the log-sum-exp is then the loss itself, with no difference of large sums left to take.
    logits = torch.addmm(bias, hidden, weight.t()).sub_(true.unsqueeze(1))
    # If all logits are -infinity, so is logsumexp, but its gradient is NaN: here it is the loss's times zero.
    none = logits.isneginf().all(1)
    finite = torch.where(none.unsqueeze(1), logits.nan_to_num(), logits)
    return torch.logsumexp(finite, dim=1) + torch.where(none, -torch.inf, 0.0)


def _full_losses(hidden: Tensor, targets: Tensor, weight: Tensor, bias: Tensor, words: int) -> Tensor:
    true = (hidden * weight.index_select(0, targets)).sum(1) + bias.index_select(0, targets)
    finite, infinite = true.where(true.isfinite(), 0), true.where(~true.isfinite(), 0)
    sums = []
    for i in range(0, weight.shape[0], words):
        block = (hidden, weight[i : i + words], bias[i : i + words], finite)
        sums.append(checkpoint(_block, *block, use_reentrant=False) if torch.is_grad_enabled() else _block(*block))
    total = torch.logsumexp(torch.stack(sums), dim=0)
    # NaN from an infinite logit, as in torch.nn.functional.cross_entropy; infinity if the target's is -infinity.
    return total * torch.where(total.isposinf(), torch.nan, 1.0) - infinite


def _full_reference(
    hidden: Tensor, targets: Tensor, weight: Tensor, bias: Tensor, precision: str, chunk_bytes: int
) -> Tensor:
    """Compute full_softmax in plain torch, by blocks of rows and words: the definition."""
    hidden, weight = rounded(hidden, precision), rounded(weight, precision)
    words = max(1, chunk_bytes // (hidden.element_size() * max(1, min(ROWS, hidden.shape[0]))))
    parts = [
        _full_losses(hidden[i : i + ROWS], targets[i : i + ROWS], weight, bias, words)
        for i in range(0, max(1, hidden.shape[0]), ROWS)
    ]
    return torch.cat(parts)


def _of_samples(
    losses: Callable[..., Tensor],
    hidden: Tensor,
    targets: Tensor,
    weight: Tensor,
    bias: Tensor,
    samples: Tensor,
    law: Tensor | None,
    sparse: bool,
    chunk_bytes: int,
    precision: str,
) -> Tensor:
    """Compute a loss over a sample in plain torch, in chunks of hidden's rows: the definition.

    losses: (hidden, targets' rows, samples' rows, offsets, ids), the last two of the targets, then of the samples;
    law: what is subtracted from the biases, [N + S]. The scores of a chunk take at most `chunk_bytes`, or one row. If
    there are several chunks, the backward pass computes the scores again.
    """
    ids, hidden, count = torch.cat([targets, samples]), rounded(hidden, precision), hidden.shape[0]
    offsets = table_rows(bias, ids, sparse)
    if law is not None:
        offsets = offsets - law
    rows = rounded(table_rows(weight, ids, sparse), precision)
    step = max(1, min(count, chunk_bytes // (len(samples) * hidden.element_size())))
    results = []
    for i in range(0, max(count, 1), step):
        part = slice(i, min(i + step, count))
        offsets_here, ids_here = (torch.cat([each[:count][part], each[count:]]) for each in (offsets, ids))
        chunk = (hidden[part], rows[:count][part], rows[count:], offsets_here, ids_here)
        results.append(losses(*chunk) if count <= step else checkpoint(losses, *chunk, use_reentrant=False))
    return torch.cat(results)


def _sampled_losses(hidden: Tensor, true_rows: Tensor, sample_rows: Tensor, offsets: Tensor, ids: Tensor) -> Tensor:
    count = hidden.shape[0]
    true = (hidden * true_rows).sum(1) + offsets[:count]
    sampled = hidden @ sample_rows.t() + offsets[count:]
    sampled = sampled.masked_fill(ids[:count, None] == ids[None, count:], -torch.inf)
    return -torch.log_softmax(torch.cat([true[:, None], sampled], 1), 1)[:, 0]


def _negative_losses(
    hidden: Tensor, true_rows: Tensor, sample_rows: Tensor, offsets: Tensor, ids: Tensor, share: float, hits: bool
) -> Tensor:
    count = hidden.shape[0]
    true = (hidden * true_rows).sum(1) + offsets[:count]
    others = logsigmoid(-(hidden @ sample_rows.t() + offsets[count:]))
    if not hits:
        others = others.masked_fill(ids[:count, None] == ids[None, count:], 0.0)
    return -logsigmoid(true) - share * others.sum(1)


def _fake_of_samples(a: Any) -> tuple[Tensor, Tensor]:
    """Allocate losses [N] and words [N + S] of a loss over a sample."""
    count = a.hidden.shape[0]
    return a.hidden.new_empty(count), a.targets.new_empty(count + a.samples.shape[0])


def _saved_of_samples(a: Any, numbers: tuple[int, ...]) -> list[Tensor]:
    """Allocate what C++ saves of such a loss: `numbers` for each row, [N, S] if that fits, the words' rows and offsets.

    [N, S] fits into `chunk_bytes`, or is one row.
    """
    (count, width), samples, new = a.hidden.shape, a.samples.shape[0], a.hidden.new_empty
    fits = count <= 1 or count * samples * a.hidden.element_size() <= a.chunk_bytes
    words = count + samples
    return [new(count, *numbers), new(count if fits else 0, samples), new(words, width), new(words)]


register_op(
    "full_softmax",
    lambda a: a.hidden.new_empty(a.hidden.shape[0]),
    lambda a: [a.hidden.new_empty(a.hidden.shape[0], 2)],
    products=lambda a: len(a.hidden) * a.weight.numel(),
)


def _products(a: Any) -> int:
    """Return the products of each row with the target's and the samples' rows."""
    samples = len(a.samples) if hasattr(a, "samples") else len(a.ids) - len(a.hidden)
    return a.hidden.numel() * (1 + samples)


# The backward ops compute gradients of the rows of the words `ids`.
for _op, _numbers in (("sampled_softmax", (2,)), ("negative_sampling", ())):
    register_op(
        _op, _fake_of_samples, functools.partial(_saved_of_samples, numbers=_numbers), _products,
        shapes=lambda a: {"weight": (len(a.ids), a.hidden.shape[1]), "bias": a.ids.shape},
        finish=lambda a, rows, needed: table_gradients(a, a.ids, rows, needed),
    )  # fmt: skip
for _op in ("full_softmax", "sampled_softmax", "negative_sampling"):
    register(_op, "native", "triton", kernels="elmo_fast.ops.vocabulary_losses.kernels")
