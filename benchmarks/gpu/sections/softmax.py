"""The losses over a sample or a tree of 793,471 words, forward and backward to hidden states and table rows."""

import functools

import torch

from benchmarks.gpu import roofline
from benchmarks.gpu.compare import beside_torch, compare
from benchmarks.gpu.judge import EAGER, OURS, Aim, What
from benchmarks.gpu.losses import Hierarchical, Negative, Problem, Sampled
from benchmarks.gpu.session import Session
from benchmarks.results import GpuRow, faster, measure
from elmo_fast import ops

GOALS = (Aim("faster", 3.0, EAGER), Aim("memory", 0.1, EAGER))


def run(session: Session) -> None:
    """Of 2560 rows (128 x 20) and 20,480 (1024 x 20); then the sampler by itself, and the losses beside it."""
    (precision,) = session.precisions("bfloat16")
    session.serving(precision, "sampled_softmax", "negative_sampling", "hierarchical_softmax")
    words, samples, size = (100, 10, 8) if session.quick else (793_471, 8192, 512)
    few, many = (6, None) if session.quick else (2560, 20480)

    def compared(op: str, problem: Problem, work: roofline.Work, told: str, aims: tuple[Aim, ...] = ()) -> None:
        name = f"{op.replace('_', ' ')}, forward + backward, {len(problem.targets)} rows, {told}, {precision}"
        ours = functools.partial(problem.ours, precision, session.backend(op))
        rival = functools.partial(problem.plain, getattr(torch, precision))
        what = What(name, precision, work=work, aims=aims)
        compare(session, what, beside_torch(session, ours, rival, type(problem).core), problem.truth)

    for rows in filter(None, (few, many)):
        problem, work = Sampled(session, rows, words, samples, size), roofline.sampled_softmax(rows, samples, size)
        compared("sampled_softmax", problem, work, f"{samples} of {words:,} words", GOALS)
    sampler(session, samples, words)
    noise = max(1, samples // 8)
    negative, work = Negative(session, few, words, noise, size), roofline.sampled_softmax(few, noise, size)
    compared("negative_sampling", negative, work, f"{noise} of {words:,} words")
    tree = Hierarchical(session, few, words, size)
    work = roofline.paths(int(tree.inside.sum()), len(tree.used), few, size)
    compared("hierarchical_softmax", tree, work, f"{words:,} words")


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
