"""The sampled softmax of pretraining, 8192 of 793,471 words, forward and backward to hidden states and table rows.

All sides are given the same samples and hand back the gradient of the rows that were used, not of the whole table.
"""

import functools
import math
from collections.abc import Callable, Mapping

import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.gpu import roofline
from benchmarks.gpu.compare import Side, beside_torch, compare, side
from benchmarks.gpu.judge import EAGER, OURS, Aim, What
from benchmarks.gpu.session import Session
from benchmarks.results import GpuRow, faster, measure
from elmo_fast import ops
from elmo_fast.tuning import rivals

GOALS = (Aim("faster", 3.0, EAGER), Aim("memory", 0.1, EAGER))


def run(session: Session) -> None:
    """2560 rows (128 x 20), then 20,480 (1024 x 20); then the sampler by itself."""
    (precision,) = session.precisions("bfloat16")
    session.serving(precision, "sampled_softmax")
    words, samples, size = (100, 10, 8) if session.quick else (793_471, 8192, 512)
    for rows in (6,) if session.quick else (2560, 20480):
        problem = Problem(session, rows, words, samples, size)
        what = What(
            f"sampled softmax, forward + backward, {rows} rows, {samples} of {words:,} words, {precision}",
            precision,
            work=roofline.sampled_softmax(rows, samples, size),
            aims=GOALS,
        )
        ours = functools.partial(problem.ours, precision, session.backend("sampled_softmax"))
        rival = functools.partial(problem.plain, getattr(torch, precision))
        compare(session, what, beside_torch(session, ours, rival, rivals.sampled_losses), problem.truth)
    sampler(session, samples, words)


class Problem:
    """Hidden states, targets under the law of the samples, a table, and one sample."""

    def __init__(self, session: Session, rows: int, words: int, samples: int, size: int) -> None:
        self.tensors = {"hidden": session.noise(rows, size), "table": session.noise(words, size) * size**-0.5}
        self.bias = session.noise(words)
        ids, tries = ops.log_uniform_sample(samples, words, seed=1)
        self.samples, self.tries = ids.to(session.device), tries.to(session.device)
        log = session.uniform(rows, dtype=torch.float64) * math.log(words + 1)
        self.targets = (log.exp().long() - 1).clamp(0, words - 1)
        self.used = torch.cat([self.targets, self.samples]).unique()

    def side(self, losses: Callable[..., Tensor], dtype: torch.dtype) -> Side:
        """losses(hidden, table, bias) and their gradients."""
        leaves = {name: t.detach().to(dtype).requires_grad_() for name, t in self.tensors.items()}
        bias = self.bias.detach().to(dtype).requires_grad_()
        made = side(lambda: losses(*leaves.values(), bias), leaves, [bias])

        def result() -> dict[str, Tensor]:
            found = made.result()
            rows = found["d table"].coalesce()
            if not torch.equal(rows.indices()[0], self.used):
                raise ValueError("the table's gradient is not of the words that were used")
            return {"losses": found["outputs"], "d hidden": found["d hidden"], "d rows": rows.values()}

        return Side(made.call, result)

    def ours(self, precision: str, backend: str) -> Side:
        """The op on the float32 table."""

        def losses(hidden: Tensor, table: Tensor, bias: Tensor) -> Tensor:
            return ops.sampled_softmax(
                hidden, self.targets, table, bias, self.samples, self.tries,
                sparse=True, precision=precision, backend=backend,
            )  # fmt: skip

        return self.side(losses, torch.float32)

    def plain(self, dtype: torch.dtype, core: Callable[..., Tensor] = rivals.sampled_losses) -> Side:
        """Plain torch with sparse embeddings and written logits; `core` is all but the look-up."""
        ids = torch.cat([self.targets, self.samples])
        count = len(self.targets)

        def losses(hidden: Tensor, table: Tensor, bias: Tensor) -> Tensor:
            expected = ops.log_expected_counts(ids, self.tries, len(self.samples), len(table))
            offsets = F.embedding(ids, bias[:, None], sparse=False)[:, 0] - expected.to(dtype)
            rows = F.embedding(ids, table, sparse=True)
            return core(hidden, rows[:count], rows[count:], offsets, ids)

        return self.side(losses, dtype)

    def truth(self) -> Mapping[str, Tensor]:
        """Plain torch in float64."""
        return self.plain(torch.float64).result()


def sampler(session: Session, samples: int, words: int) -> None:
    """The draw itself, on the device."""
    if session.late("log_uniform_sample", 2.0):
        return
    draws = iter(range(10**9))

    def microseconds(device: str | torch.device) -> float:
        def draw() -> object:
            drawn = ops.log_uniform_sample(samples, words, seed=1, offset=next(draws), device=device)
            return [each.to(session.device, non_blocking=True) for each in drawn]

        return 1e6 * session.clock.seconds(draw)

    sides = {OURS: lambda: microseconds(session.device), "drawn on the CPU, then moved": lambda: microseconds("cpu")}
    name, rounds = f"log_uniform_sample, {samples} of {words:,}", 3 if session.quick else 30
    rows = measure(name, sides, rounds, unit="us", warmup=3, kind=GpuRow, launched=session.clock.way)
    rows[0].ours = True
    faster(*rows)
    session.record(*rows)
