"""One layer of the projected LSTM, both directions over one input, 20 steps: cuDNN, AllenNLP's loop, torch.compile.

"whole layer" has the inputs' product in it, as every side's call does; "time loop" is the whole layer less that product
alone, timed by itself in the same dtype: what is left is the recurrence, whose floor is counted.
"""

import functools
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from benchmarks.gpu import roofline
from benchmarks.gpu.compare import Side, compare, side
from benchmarks.gpu.judge import COMPILED, OURS, Aim, What, judged
from benchmarks.gpu.session import Session
from benchmarks.results import GpuRow, significant
from elmo_fast.ops import LSTMWeights, projected_lstm
from elmo_fast.tuning import rivals

STEPS, SIZE, CELLS, DIRECTIONS = 20, 512, 4096, 2
CUDNN, LOOP = "nn.LSTM (cuDNN)", "eager loop"
GOALS = {128: 5.5, 16: 3.5}
FORWARD, TRAIN = (128, 16), (128, 1024)


def run(session: Session) -> None:
    """Forward of 128 and of 16 rows, forward + backward of 128 and of 1024; then forward in the other precision."""
    first, *others = session.precisions("float16", "bfloat16")
    session.serving(first, "projected_lstm")
    batches = ((3,), (2,)) if session.quick else (FORWARD, TRAIN)
    for batch in batches[0]:
        forward(session, batch, first)
    for batch in batches[1]:
        train(session, batch, (*others, first)[0])
    for precision in others:
        for batch in batches[0]:
            forward(session, batch, precision, fewer=True)


class Problem:
    """A layer's weights and input, float32, small enough for no clip to bite: cuDNN has none."""

    def __init__(self, session: Session, batch: int, *, train: bool) -> None:
        self.session, self.batch, self.train = session, batch, train
        self.steps, size, cells = (3, 8, 16) if session.quick else (STEPS, SIZE, CELLS)
        self.size, self.cells = size, cells
        sizes = ((4 * cells, size), (4 * cells, size), (4 * cells,), (size, cells))
        self.weights = [
            LSTMWeights(*((2 * session.uniform(*s) - 1) * cells**-0.5 for s in sizes)) for _ in range(DIRECTIONS)
        ]
        self.x = session.noise(batch, self.steps, size)
        for tensor in (self.x, *(w for each in self.weights for w in each)):
            tensor.requires_grad_(train)

    def input(self, dtype: torch.dtype) -> Tensor:
        """The input in `dtype`, a leaf of its own."""
        return self.x.detach().to(dtype).requires_grad_(self.train)

    def plain(self, function: Callable[..., Tensor], dtype: torch.dtype) -> Side:
        """function([x, x], weights), all in one dtype."""
        x, weights = self.input(dtype), [rivals.in_dtype(w, dtype) for w in self.weights]
        (w_ih, w_hh, *rest), other = weights
        named = {"inputs": x, "weight_hh": w_hh}
        return side(lambda: function([x, x], weights), named, [w_ih, *rest, *other], train=self.train)

    def ours(self, precision: str, backend: str, dtype: torch.dtype = torch.float32) -> Side:
        """The op; in float64 with backend "reference", the truth."""
        return self.plain(lambda x, w: projected_lstm(x, w, precision=precision, backend=backend)[0], dtype)

    def compiled(self, dtype: torch.dtype) -> Side:
        """AllenNLP's loop, its cell compiled and the inputs' product taken out of the loop."""
        cell = self.session.compiled(rivals.lstm_cell)
        return self.plain(functools.partial(rivals.lstm_loop, cell=cell, hoist=True), dtype)

    def cudnn(self, dtype: torch.dtype) -> Side:
        """torch.nn.LSTM."""
        lstm, x = rivals.cudnn_lstm(self.weights, dtype), self.input(dtype)
        named = {"inputs": x, "weight_hh": lstm.weight_hh_l0}
        others = [weight for weight in lstm.parameters() if weight is not lstm.weight_hh_l0]
        return side(lambda: torch.stack(lstm(x)[0].chunk(DIRECTIONS, dim=-1)), named, others, train=self.train)

    def inputs_product(self, dtype: torch.dtype) -> Side:
        """The product of all inputs with the input weights of both directions, and nothing else."""
        x = self.x.detach().to(dtype).flatten(0, 1)
        weights = [w.weight_ih.detach().to(dtype).t() for w in self.weights]
        return Side(lambda: [x @ w for w in weights], lambda: {"product": x @ weights[0]})

    def truth(self) -> Mapping[str, Tensor]:
        """Outputs and gradients in float64."""
        return self.ours("float32", "reference", torch.float64).result()

    def sides(self, precision: str, *, fewer: bool = False) -> dict[str, Callable[[], Side]]:
        """Ours and the rivals; `fewer`: cuDNN alone."""
        dtype = getattr(torch, precision)
        found: dict[str, Callable[[], Side]] = {
            OURS: lambda: self.ours(precision, self.session.backend("projected_lstm")),
            CUDNN: lambda: self.cudnn(dtype),
        }
        if not fewer:
            found |= {LOOP: lambda: self.plain(rivals.lstm_loop, dtype), COMPILED: lambda: self.compiled(dtype)}
        return found


def forward(session: Session, batch: int, precision: str, *, fewer: bool = False) -> None:
    """Without gradients, per layer, direction and step: the whole layer, then the time loop."""
    problem = Problem(session, batch, train=False)
    steps, size, cells = problem.steps, problem.size, problem.cells
    name, per = f"forward, {batch} x {steps}, {precision}", DIRECTIONS * steps
    compared = problem.sides(precision, fewer=fewer)
    layer = roofline.lstm_layer(batch, steps, size, cells, size, DIRECTIONS)
    whole = What(f"LSTM layer, {name}, per direction and step", precision, "us", per, layer)
    best = compare(session, whole, compared, problem.truth)
    if not best:
        return
    inputs = roofline.lstm_inputs(batch, steps, size, cells).times(DIRECTIONS)
    product = What(f"inputs' product alone, {name}, per direction and step", precision, "us", per, inputs)
    products = {"torch.mm": lambda: problem.inputs_product(getattr(torch, precision))}
    taken = compare(session, product, products, lambda: problem.inputs_product(torch.float64).result())
    if taken:
        loop = roofline.lstm_steps(batch, steps, cells, size).times(DIRECTIONS)
        aims = [Aim("value", GOALS[batch])] if batch in GOALS else []
        what = What(f"LSTM time loop, {name}, per direction and step", precision, "us", per, loop, aims)
        less(session, what, best, taken["torch.mm"])


def less(session: Session, what: What, best: Mapping[str, GpuRow], product: GpuRow) -> None:
    """Rows of the time loop: each side's better figure less that of the inputs' product; AllenNLP's loop, which makes
    that product step by step, is left whole."""
    rows = []
    for name, each in best.items():
        taken = 0.0 if name == LOOP else product.median
        if each.p20 <= taken:
            session.note(f"{what.name}, {name}: left out", "the whole layer took no longer than the product alone")
            continue
        figures = {key: significant(getattr(each, key) - taken) for key in ("median", "p20", "p80")}
        new = GpuRow(what.name, name, 1, what.unit, each.samples, **figures)
        new.ours, new.launched, new.error, new.error_to = each.ours, each.launched, each.error, each.error_to
        rows.append(new)
    if not any(each.ours for each in rows):
        return
    judged(what, rows, session.ceilings())
    session.record(*rows)
    for new in rows:
        print(f"  {new.told()}", flush=True)


def train(session: Session, batch: int, precision: str) -> None:
    """Forward and backward to the input and all weights, the whole layer."""
    problem = Problem(session, batch, train=True)
    steps, size, cells = problem.steps, problem.size, problem.cells
    what = What(
        f"LSTM layer, forward + backward, {batch} x {steps}, {precision}",
        precision,
        "ms",
        work=roofline.lstm_layer(batch, steps, size, cells, size, DIRECTIONS, train=True),
        aims=(Aim("faster", 2.0, CUDNN),),
    )
    compare(session, what, problem.sides(precision), problem.truth)
