"""The update: AdaGrad over all dense weights of the original biLM, and over the rows of the table that a step used."""

import functools
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from benchmarks.gpu import roofline
from benchmarks.gpu.compare import Side, compare
from benchmarks.gpu.judge import COMPILED, OURS, What
from benchmarks.gpu.session import Session
from elmo_fast.pretrain.step.adagrad import AdaGrad

TORCH, DENSE = "torch.optim.Adagrad", "torch.optim.Adagrad, dense"
RATE = 0.2
Step = Callable[[], object]


def run(session: Session) -> None:
    """Dense weights, then rows."""
    session.serving("float32", "adagrad")
    dense(session)
    rows(session)


def side(make: Callable[[], list[nn.Parameter]], optimise: Callable[[list[nn.Parameter]], Step]) -> Side:
    """One step on weights and gradients of its own; checked by what the first one does to the weights."""
    trained = make()
    step = optimise(trained)

    def result() -> dict[str, Tensor]:
        step()
        return {f"weight {i}": parameter.detach().clone() for i, parameter in enumerate(trained)}

    return Side(step, result)


def ours(trained: list[nn.Parameter]) -> Step:
    """elmo_fast's."""
    return AdaGrad(trained, RATE, 1.0).step


def torchs(trained: list[nn.Parameter]) -> Step:
    """torch's own, set as TensorFlow's."""
    return torch.optim.Adagrad(trained, lr=RATE, initial_accumulator_value=1.0, eps=0.0, foreach=True).step


def update(weights: list[Tensor], sums: list[Tensor], gradients: list[Tensor]) -> None:
    """The formula, for torch.compile."""
    for w, a, g in zip(weights, sums, gradients, strict=True):
        a.addcmul_(g, g)
        w.addcdiv_(g, a.sqrt(), value=-RATE)


def stepped(weights: Sequence[nn.Parameter]) -> dict[str, Tensor]:
    """The first step by its formula in float64."""
    found = {}
    for i, parameter in enumerate(weights):
        assert parameter.grad is not None
        gradient = parameter.grad.double()
        found[f"weight {i}"] = parameter.detach().double() - RATE * gradient / (1 + gradient.square()).sqrt()
    return found


def shapes(session: Session) -> list[tuple[int, ...]]:
    """The sizes of the original's largest weights, 93 million numbers, and of some small ones."""
    if session.quick:
        return [(16, 8), (7,), (3, 5)]
    lstm = [(16384, 512), (16384, 512), (16384,), (512, 4096)]
    return [*lstm * 4, *[(4096, 2048), (4096,)] * 2, (512, 2048), (512,), (1024, 16, 7), (262, 16)]


def dense(session: Session) -> None:
    """All at once."""
    sizes = shapes(session)
    numbers = sum(torch.Size(size).numel() for size in sizes)

    def make() -> list[nn.Parameter]:
        generator = torch.Generator(session.device).manual_seed(3)
        made = []
        for size in sizes:
            weight, gradient = (torch.randn(size, device=session.device, generator=generator) for _ in range(2))
            made.append(nn.Parameter(weight))
            made[-1].grad = gradient
        return made

    def compiled(trained: list[nn.Parameter]) -> Step:
        weights, sums = [p.detach() for p in trained], [torch.ones_like(p) for p in trained]
        return functools.partial(session.compiled(update), weights, sums, [p.grad for p in trained])

    what = What(f"AdaGrad, {numbers:,} weights, float32", "float32", "us", work=roofline.adagrad(numbers))
    sides = {OURS: ours, TORCH: torchs, COMPILED: compiled}
    compare(
        session, what, {name: functools.partial(side, make, each) for name, each in sides.items()},
        lambda: stepped(make()),
    )  # fmt: skip


def rows(session: Session) -> None:
    """Of a table of 793,471 words, the rows that both directions of a step used, repeated ids among them."""
    words, size, given = (50, 8, 30) if session.quick else (793_471, 512, 2 * (2560 + 8192))
    generator = torch.Generator(session.device).manual_seed(4)
    draw = torch.rand(given, device=session.device, generator=generator, dtype=torch.float64)
    ids = ((draw * torch.tensor(words + 1.0).log().item()).exp().long() - 1).clamp(0, words - 1)
    values = torch.randn(given, size, device=session.device, generator=generator)
    distinct = len(ids.unique())
    session.note("rows", f"{given} given, {distinct} distinct")

    def table(*, sparse: bool) -> list[nn.Parameter]:
        made = nn.Parameter(torch.ones(words, size, device=session.device))
        gradient = torch.sparse_coo_tensor(ids[None], values, (words, size), check_invariants=False)
        made.grad = gradient if sparse else gradient.to_dense()
        return [made]

    work = roofline.adagrad(distinct * size)
    what = What(f"AdaGrad, {given} rows of {words:,} x {size}, float32", "float32", "us", work=work)
    sides = {
        OURS: lambda: side(lambda: table(sparse=True), ours),
        DENSE: lambda: side(lambda: table(sparse=False), torchs),
    }
    compare(session, what, sides, lambda: stepped(table(sparse=False)))
