"""log_uniform_sample: distinct word ids from the log-uniform (Zipf) distribution, and how often each is expected."""

import math

import numpy as np
import torch
from torch import Tensor

from elmo_fast.errors import ElmoFastError, check_choice
from elmo_fast.ops._autograd import register_op
from elmo_fast.ops._checks import check_dtype, described
from elmo_fast.ops._dispatch import register, registered_op, select
from elmo_fast.ops._sampling import CORRECTIONS, MAX_TRIES, check_key, drawn_to, uniforms

CPU = torch.device("cpu")


def log_uniform_sample(
    num_samples: int,
    num_words: int,
    *,
    seed: int,
    offset: int | Tensor = 0,
    device: torch.device | str | None = None,
    backend: str = "auto",
) -> tuple[Tensor, Tensor]:
    """Sample S distinct word ids from the log-uniform distribution, and count the tries that this takes.

        id = (floor(exp(U * ln(V + 1))) - 1) mod V,    P(id = k) = ln((k + 2) / (k + 1)) / ln(V + 1)

    Ids come in the order sampled. An id that repeats an earlier one is sampled again, and every sample counts as a try.
    U are 53-bit numbers of the counter-based generator Philox4x32-10: key `seed`, counter (block, `offset`), so that
    equal (seed, offset) give equal ids on every backend and different offsets give independent samples; use a new
    offset for each. The words must be sorted by falling frequency.

    The expected number of tries grows as S nears V: for S = V it is about V·ln(V)². More than 2^31 - 2 are an error; a
    GPU, which the host does not wait for, then returns tries = -1, and with it every expected count, and the loss, is
    NaN.

    On a GPU nothing waits, and the op may be captured in a CUDA graph; for new samples at each replay, pass offset as a
    tensor on that GPU, which the graph or its user advances in place.

    Args:
        num_samples: S, 1 to V
        num_words: V, below 2^31
        seed: 0 to 2^63 - 1
        offset: 0 to 2^63 - 1, or a tensor holding one, [] or [1] int64 (not validated on a GPU)
        device: device of the returned ids and tries; None: the CPU. On a CUDA device "triton" samples there; if that
            cannot serve, they are sampled on the CPU and copied, with a PerformanceWarning
        backend: "auto", "native", "triton" or "reference"

    Returns:
        ids: [S] int64
        tries: [] int64

    Raises:
        ElmoFastError: an argument out of its range, or a tensor on a device that could only be read by waiting for it.

    Source: tf.random.log_uniform_candidate_sampler(unique=True); Salmon et al. 2011, Parallel random numbers: as easy
    as 1, 2, 3 (Philox).
    """
    if not 1 <= num_words < 2**31:
        raise ElmoFastError(f"log_uniform_sample: num_words must be from 1 to 2^31 - 1; got {num_words}")
    if not 1 <= num_samples <= num_words:
        raise ElmoFastError(
            f"log_uniform_sample: num_samples must be from 1 to num_words = {num_words}, as samples are distinct; "
            f"got {num_samples}; use fewer samples or a larger vocabulary"
        )
    device = CPU if device is None else torch.device(device)
    backend = select("log_uniform_sample", backend, device, torch.float32)
    check_key("log_uniform_sample", seed=seed)
    sampler = device if backend == "triton" else CPU
    if isinstance(offset, Tensor):
        check_dtype("log_uniform_sample", "offset", offset, torch.int64)
        if offset.numel() != 1:
            raise ElmoFastError(f"log_uniform_sample: offset must be one number; got {described(offset)}")
        there = offset.device.type == sampler.type == "cuda" and sampler.index in (None, offset.device.index)
        if not there and offset.device.type != "cpu":
            raise ElmoFastError(
                f"log_uniform_sample: offset on {offset.device} could only be read by waiting for it, because ids are "
                f"sampled on {'the CPU' if sampler is CPU else sampler}; pass an int"
            )
        offset = offset if there else int(offset)
    if not isinstance(offset, Tensor):
        check_key("log_uniform_sample", offset=offset)
        offset = torch.full((), offset, dtype=torch.int64, device=sampler)
    if backend == "reference":
        samples = reference(num_samples, num_words, seed, int(offset))
    else:
        samples = registered_op("log_uniform_sample", backend)(num_samples, num_words, seed, offset)
    ids, tries = samples if backend == "triton" else drawn_to("log_uniform_sample", samples, device)
    return ids, tries


def reference(num_samples: int, num_words: int, seed: int, offset: int) -> tuple[Tensor, Tensor]:
    """Sample in numpy: the definition.

    Its exponential is libm's (math.exp); C++ and Triton have their own, the same on CPU and GPU. csrc/common/philox.h
    says how rarely the two could give different ids: 5e-12 per sample.
    """
    log_range = math.log1p(num_words)
    ids = np.empty(0, dtype=np.int64)
    tries = blocks_done = 0
    while len(ids) < num_samples:
        blocks = max(num_samples, 64)
        exponents = uniforms(seed, offset, blocks_done, blocks).numpy() * log_range
        blocks_done += blocks
        values = np.exp(exponents)
        # The last bit of numpy's depends on the CPU, and matters only next to a whole number.
        for i in np.flatnonzero(abs(values - np.rint(values)) < 1e-12 * values):
            values[i] = math.exp(exponents[i])
        candidates = np.concatenate([ids, (values.astype(np.int64) - 1) % num_words])
        first = np.sort(np.unique(candidates, return_index=True)[1])[:num_samples]
        tries += int(first[-1]) + 1 - len(ids) if len(first) == num_samples else len(values)
        if tries >= MAX_TRIES:
            raise RuntimeError(f"log_uniform_sample: {num_samples} of {num_words} words were not found in 2^31 tries")
        ids = candidates[first]
    return torch.from_numpy(ids), torch.tensor(tries, dtype=torch.int64, device="cpu")


def expected_counts(
    ids: Tensor, tries: Tensor | int, num_samples: int, num_words: int, *, correction: str = "tensorflow"
) -> Tensor:
    """Compute how often a word is expected among the S samples, given the number of tries.

        p(k) = ln((k + 2) / (k + 1)) / ln(V + 1)
        Q(k) = -expm1(tries * log1p(-p(k))),   or p(k) * S where tries == S      ("tensorflow")
        Q(k) = 1 - exp(tries * log1p(-p(k))), all in float32                     ("allennlp", "allennlp-0.9")

    AllenNLP's float32 ratio (k + 2) / (k + 1) is off by up to 6e-8 · k, several percent for rare words; "allennlp"
    reproduces that.

    Args:
        ids: words k, of any shape, int64
        tries: from log_uniform_sample, [] int64 or int
        num_samples: S
        num_words: V
        correction: "tensorflow", "allennlp" or "allennlp-0.9"

    Returns:
        Q, shape of ids, float64 ("tensorflow") or float32

    Raises:
        ElmoFastError: an unknown correction.

    Source: TensorFlow's range_sampler.cc (ExpectedCountHelper); AllenNLP's SampledSoftmaxLoss.
    """
    check_choice("expected_counts: correction", correction, CORRECTIONS)
    tries = torch.as_tensor(tries, device=ids.device)
    if correction != "tensorflow":
        words = ids.to(torch.float32)
        p = torch.log((words + 2.0) / (words + 1.0)) / math.log(num_words + 1)
        return -1.0 * (torch.exp(tries * torch.log1p(-p)) - 1.0)
    p = torch.log1p(1.0 / (ids.to(torch.float64) + 1.0)) / math.log1p(num_words)
    return torch.where(tries == num_samples, p * num_samples, -torch.expm1(tries * torch.log1p(-p)))


def log_expected_counts(
    ids: Tensor, tries: Tensor | int, num_samples: int, num_words: int, *, correction: str = "tensorflow"
) -> Tensor:
    """Compute ln(Q + term) of `expected_counts`; the term is 0, 1e-13 ("allennlp") or 1e-7 ("allennlp-0.9")."""
    counts = expected_counts(ids, tries, num_samples, num_words, correction=correction)
    return torch.log(counts + CORRECTIONS[correction])


register_op("log_uniform_sample", lambda a: (a.offset.new_empty(a.num_samples), a.offset.new_empty(())))
register("log_uniform_sample", "native", "triton", kernels="elmo_fast.ops.log_uniform_sample.kernels")
