"""sampled_softmax: cross entropy against a shared sample of the vocabulary."""

import torch
from torch import Tensor

from elmo_fast.errors import check_choice
from elmo_fast.ops._autograd import Backward, describe, requires_grad
from elmo_fast.ops._checks import check_output_layer, check_tensor
from elmo_fast.ops._dispatch import checked, kernel, register, select
from elmo_fast.ops._precision import under_autocast
from elmo_fast.ops._table_rows import fake_of_samples, saved_of_samples, shapes_of_rows, table_gradients
from elmo_fast.ops.log_uniform_sample import CORRECTIONS, log_expected_counts
from elmo_fast.ops.sampled_softmax import reference

CHUNK_BYTES = 32 * 2**20


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
    check_tensor("sampled_softmax", "hidden", hidden)
    precision, cast, no_autocast = under_autocast(precision, hidden.device)
    hidden = cast(hidden)
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
        run = kernel(op, backend)
        return run(hidden, targets, weight, bias, samples, tries, correction, log_expected, *options)[0]


def _on(device: torch.device, tries: Tensor | int) -> Tensor:
    """Return the number of tries as [] int64 on this device, without waiting for it."""
    if isinstance(tries, Tensor):
        return tries.to(device, torch.int64, non_blocking=True)
    return torch.full((), tries, dtype=torch.int64, device=device)


describe(
    "sampled_softmax",
    fake_of_samples,
    Backward(shapes=shapes_of_rows, finish=table_gradients),
    lambda a: saved_of_samples(a, (2,)),
)
register("sampled_softmax", "native", "triton", kernels="elmo_fast.ops._vocabulary_loss_kernels")
