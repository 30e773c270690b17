"""The sampled softmax of pretraining, 8192 of 793,471 words, forward and backward to hidden states and table rows.

All sides are given the same samples and hand back the gradient of the rows that were used, not of the whole table.
"""

import functools
import inspect
import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.gpu import rivals, roofline
from benchmarks.gpu.compare import Side, compare
from benchmarks.gpu.judge import COMPILED, OURS, Aim, What
from benchmarks.gpu.session import Session
from benchmarks.results import GpuRow, faster, row
from benchmarks.timing import in_turn
from elmo_fast import ops

EAGER = "eager"
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
        names = {
            OURS: functools.partial(problem.ours, session, precision),
            EAGER: functools.partial(problem.rival, getattr(torch, precision)),
            COMPILED: functools.partial(problem.rival, getattr(torch, precision), session),
        }
        compare(session, what, names, lambda problem=problem: problem.rival(torch.float64).result())
    sampler(session, samples, words)


class Problem:
    """Hidden states, targets under the law of the samples, a table, and one sample."""

    def __init__(self, session: Session, rows: int, words: int, samples: int, size: int) -> None:
        self.hidden = session.noise(rows, size)
        self.table = session.noise(words, size) * size**-0.5
        self.bias = session.noise(words)
        ids, tries = ops.log_uniform_sample(samples, words, seed=1)
        self.samples, self.tries = ids.to(session.device), tries.to(session.device)
        log = session.uniform(rows, dtype=torch.float64) * math.log(words + 1)
        self.targets = (log.exp().long() - 1).clamp(0, words - 1)
        self.used = torch.cat([self.targets, self.samples]).unique()

    def side(self, losses: object, hidden: Tensor, table: Tensor, bias: Tensor) -> Side:
        """The mean loss of losses(hidden, table, bias) and its gradients."""
        leaves = [each.requires_grad_() for each in (hidden, table, bias)]

        def call() -> tuple[Tensor, tuple[Tensor, ...]]:
            found = losses(*leaves)  # type: ignore[operator]
            return found, torch.autograd.grad(
                found.float().mean() if found.dtype != torch.float64 else found.mean(), leaves
            )

        def result() -> dict[str, Tensor]:
            found, gradients = call()
            rows = gradients[1].coalesce()
            if not torch.equal(rows.indices()[0], self.used):
                raise ValueError("the table's gradient is not of the words that were used")
            return {"losses": found.detach(), "d hidden": gradients[0], "d rows": rows.values()}

        return Side(call, result)

    def ours(self, session: Session, precision: str) -> Side:
        """The op on the float32 table."""
        backend = session.backend("sampled_softmax")

        def losses(hidden: Tensor, table: Tensor, bias: Tensor) -> Tensor:
            return ops.sampled_softmax(
                hidden, self.targets, table, bias, self.samples, self.tries,
                sparse=True, precision=precision, backend=backend,
            )  # fmt: skip

        return self.side(losses, self.hidden.clone(), self.table, self.bias)

    def rival(self, dtype: torch.dtype, session: Session | None = None) -> Side:
        """Plain torch with sparse embeddings and written logits; with a session, all but the look-up compiled."""
        core = rivals.sampled_losses if session is None else session.compiled(rivals.sampled_losses)
        ids = torch.cat([self.targets, self.samples])
        count = len(self.targets)

        def losses(hidden: Tensor, table: Tensor, bias: Tensor) -> Tensor:
            expected = ops.log_expected_counts(ids, self.tries, len(self.samples), len(table))
            offsets = F.embedding(ids, bias[:, None], sparse=False)[:, 0] - expected.to(dtype)
            rows = F.embedding(ids, table, sparse=True)
            return core(hidden, rows[:count], rows[count:], offsets, ids)

        if dtype == torch.float64:
            return self.side(self._exact, *(t.detach().double() for t in (self.hidden, self.table, self.bias)))
        return self.side(losses, *(t.detach().to(dtype) for t in (self.hidden, self.table, self.bias)))

    def _exact(self, hidden: Tensor, table: Tensor, bias: Tensor) -> Tensor:
        return ops.sampled_softmax(
            hidden, self.targets, table, bias, self.samples, self.tries, sparse=True, backend="reference"
        )


def sampler(session: Session, samples: int, words: int) -> None:
    """The draw itself, where it can be made on the device."""
    if "device" not in inspect.signature(ops.log_uniform_sample).parameters:
        session.skip("log_uniform_sample: it has no `device` here, and draws on the CPU")
        return
    if session.late("log_uniform_sample", 2.0):
        return
    draws = iter(range(10**9))

    def on_the_device() -> object:
        return ops.log_uniform_sample(samples, words, seed=1, offset=next(draws), device=session.device)

    def moved() -> object:
        drawn = ops.log_uniform_sample(samples, words, seed=1, offset=next(draws), device="cpu")
        return [each.to(session.device, non_blocking=True) for each in drawn]

    sides = {OURS: on_the_device, "drawn on the CPU, then moved": moved}
    clocks = {side: functools.partial(_microseconds, session, call) for side, call in sides.items()}
    taken = in_turn(clocks, 3 if session.quick else 30, warmup=3)
    way = "one by one" if session.clock.cuda else "host clock"
    name = f"log_uniform_sample, {samples} of {words:,}"
    rows = [
        row(name, side, values, threads=1, unit="us", kind=GpuRow, ours=side == OURS, launched=way)
        for side, values in taken.items()
    ]
    faster(*rows)
    for each in rows:
        session.record(each)


def _microseconds(session: Session, call: Callable[[], object]) -> float:
    return 1e6 * session.clock.seconds(call)
