"""negative_sampling: a logistic regression of the target and each noise word."""

from torch import Tensor

from elmo_fast.errors import ElmoFastError
from elmo_fast.ops._autograd import Backward, describe, requires_grad
from elmo_fast.ops._checks import check_output_layer, check_same, check_shapes, check_tensor
from elmo_fast.ops._dispatch import checked, kernel, register, select
from elmo_fast.ops._precision import under_autocast
from elmo_fast.ops._table_rows import fake_of_samples, saved_of_samples, shapes_of_rows, table_gradients
from elmo_fast.ops.negative_sampling import reference

CHUNK_BYTES = 32 * 2**20


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
    check_tensor("negative_sampling", "hidden", hidden)
    precision, cast, no_autocast = under_autocast(precision, hidden.device)
    hidden = cast(hidden)
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
        return kernel(op, backend)(*arguments, requires_grad(hidden, weight, bias))[0]


describe(
    "negative_sampling",
    fake_of_samples,
    Backward(shapes=shapes_of_rows, finish=table_gradients),
    lambda a: saved_of_samples(a, ()),
)
register("negative_sampling", "native", "triton", kernels="elmo_fast.ops._vocabulary_loss_kernels")
