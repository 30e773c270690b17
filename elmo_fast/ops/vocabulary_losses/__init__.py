"""Losses over a vocabulary: full_softmax, sampled_softmax and negative_sampling, products of rows with a table."""

import torch
from torch import Tensor

from elmo_fast.errors import ElmoFastError, check_choice
from elmo_fast.ops._autograd import Backward, register_op, requires_grad
from elmo_fast.ops._checks import check_output_layer, check_same, check_shapes, check_tensor, checked
from elmo_fast.ops._dispatch import register, registered_op, select
from elmo_fast.ops._precision import under_autocast
from elmo_fast.ops._table_rows import fake_of_samples, saved_of_samples, shapes_of_rows, table_gradients
from elmo_fast.ops.log_uniform_sample import CORRECTIONS, log_expected_counts
from elmo_fast.ops.vocabulary_losses import reference

CHUNK_BYTES = 32 * 2**20


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
            return checked(op, reference.full_softmax)(hidden, targets, weight, bias, precision, chunk_bytes)
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
            run = checked(op, reference.sampled_softmax)
            return run(hidden, targets, weight, bias, samples, log_expected, sparse, chunk_bytes, precision)
        options = sparse, chunk_bytes, precision, requires_grad(hidden, weight, bias)
        tries = _on(hidden.device, tries)
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
            return checked(op, reference.negative_sampling)(*arguments)
        return registered_op(op, backend)(*arguments, requires_grad(hidden, weight, bias))[0]


def _on(device: torch.device, tries: Tensor | int) -> Tensor:
    """Return the number of tries as [] int64 on this device, without waiting for it."""
    if isinstance(tries, Tensor):
        return tries.to(device, torch.int64, non_blocking=True)
    return torch.full((), tries, dtype=torch.int64, device=device)


register_op(
    "full_softmax",
    lambda a: a.hidden.new_empty(a.hidden.shape[0]),
    Backward(),
    lambda a: [a.hidden.new_empty(a.hidden.shape[0], 2)],
)
_OF_ROWS = Backward(shapes=shapes_of_rows, finish=table_gradients)
register_op("sampled_softmax", fake_of_samples, _OF_ROWS, lambda a: saved_of_samples(a, (2,)))
register_op("negative_sampling", fake_of_samples, _OF_ROWS, lambda a: saved_of_samples(a, ()))
for _op in ("full_softmax", "sampled_softmax", "negative_sampling"):
    register(_op, "native", "triton", kernels="elmo_fast.ops.vocabulary_losses.kernels")
