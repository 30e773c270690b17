"""One layer of the projected LSTM, both directions over one input, 20 steps: cuDNN, AllenNLP's loop, torch.compile.

"whole layer" has the inputs' product in it, as every side's call does; "time loop" is the whole layer less that product
alone, timed by itself in the same dtype: what is left is the recurrence, whose floor is counted.
"""

import functools
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from benchmarks.gpu import rivals, roofline
from benchmarks.gpu.compare import Side, compare
from benchmarks.gpu.judge import OURS, Aim, What, judged, sentence
from benchmarks.gpu.session import Session
from benchmarks.results import GpuRow, significant
from elmo_fast.ops import LSTMWeights, projected_lstm

STEPS, SIZE, CELLS, DIRECTIONS = 20, 512, 4096, 2
CUDNN, LOOP, COMPILED = "nn.LSTM (cuDNN)", "eager loop", "torch.compile"
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
        self.steps, size, cells = (3, 8, 16) if session.quick else (STEPS, SIZE, CELLS)
        self.batch, self.size, self.cells = batch, size, cells
        sizes = ((4 * cells, size), (4 * cells, size), (4 * cells,), (size, cells))
        self.weights = [
            LSTMWeights(*((2 * session.uniform(*s) - 1) * cells**-0.5 for s in sizes)) for _ in range(DIRECTIONS)
        ]
        self.x = session.noise(batch, self.steps, size)
        self.cotangent = session.noise(DIRECTIONS, batch, self.steps, size)
        self.train = train
        for tensor in (self.x, *(w for each in self.weights for w in each)):
            tensor.requires_grad_(train)

    def side(self, function: object, x: Tensor, leaves: list[Tensor], named: Mapping[str, Tensor]) -> Side:
        """A side that calls function(x) for [R, B, T, D] and, training, the gradients of all leaves."""
        cotangent = self.cotangent.to(x.dtype)

        def outputs_and_gradients() -> tuple[Tensor, tuple[Tensor, ...]]:
            with torch.set_grad_enabled(self.train):
                outputs = function(x)  # type: ignore[operator]
                return outputs, torch.autograd.grad(outputs, leaves, cotangent) if self.train else ()

        def result() -> dict[str, Tensor]:
            outputs, gradients = outputs_and_gradients()
            place = {id(leaf): i for i, leaf in enumerate(leaves)}
            found = {f"d {name}": gradients[place[id(leaf)]] for name, leaf in named.items()} if self.train else {}
            return {"outputs": outputs.detach(), **found}

        return Side(outputs_and_gradients, result)

    def ours(self, precision: str, backend: str, dtype: torch.dtype = torch.float32) -> Side:
        """The op; in float64 with backend "reference", the truth."""
        weights = [rivals.in_dtype(w, dtype) for w in self.weights]
        x = self.x.detach().to(dtype).requires_grad_(self.train)

        def function(x: Tensor) -> Tensor:
            return projected_lstm([x, x], weights, precision=precision, backend=backend)[0]

        leaves = [x, *(w for each in weights for w in each if w is not None)]
        return self.side(function, x, leaves, {"inputs": x, "weight_hh": weights[0].weight_hh})

    def loop(self, dtype: torch.dtype, session: Session | None = None) -> Side:
        """AllenNLP's loop; with a session, its cell compiled and the inputs' product taken out of the loop."""
        weights = [rivals.in_dtype(w, dtype) for w in self.weights]
        x = self.x.detach().to(dtype).requires_grad_(self.train)
        cell = rivals.lstm_cell if session is None else session.compiled(rivals.lstm_cell)

        def function(x: Tensor) -> Tensor:
            return rivals.lstm_loop([x, x], weights, cell=cell, hoist=session is not None)

        leaves = [x, *(w for each in weights for w in each if w is not None)]
        return self.side(function, x, leaves, {"inputs": x, "weight_hh": weights[0].weight_hh})

    def cudnn(self, dtype: torch.dtype) -> Side:
        """torch.nn.LSTM."""
        module = rivals.CudnnLstm(self.weights, dtype)
        x = self.x.detach().to(dtype).requires_grad_(self.train)
        named = {"inputs": x, "weight_hh": module.lstm.weight_hh_l0}
        return self.side(module, x, [x, *module.parameters()], named)

    def inputs_product(self, dtype: torch.dtype) -> Side:
        """The product of all inputs with the input weights of both directions, and nothing else."""
        x = self.x.detach().to(dtype).flatten(0, 1)
        weights = [w.weight_ih.detach().to(dtype).t() for w in self.weights]

        def call() -> list[Tensor]:
            return [x @ w for w in weights]

        return Side(call, lambda: {"product": call()[0]})

    def truth(self) -> Mapping[str, Tensor]:
        """Outputs and gradients in float64."""
        return self.ours("float32", "reference", torch.float64).result()


def sides(session: Session, problem: Problem, precision: str, *, fewer: bool = False) -> dict:
    """Ours and the rivals; `fewer`: cuDNN alone."""
    dtype = getattr(torch, precision)
    found = {
        OURS: functools.partial(problem.ours, precision, session.backend("projected_lstm")),
        CUDNN: functools.partial(problem.cudnn, dtype),
    }
    if not fewer:
        found |= {
            LOOP: functools.partial(problem.loop, dtype),
            COMPILED: functools.partial(problem.loop, dtype, session),
        }
    return found


def forward(
    session: Session, batch: int, precision: str, *, fewer: bool = False, backends: Sequence[str] = ()
) -> dict[str, GpuRow]:
    """Without gradients, per layer, direction and step: the whole layer, then the time loop. Returns the rows of the
    first; backends: ours by each of these in place of the rivals."""
    problem = Problem(session, batch, train=False)
    steps, size, cells = problem.steps, problem.size, problem.cells
    name, per = f"forward, {batch} x {steps}, {precision}", DIRECTIONS * steps
    compared = sides(session, problem, precision, fewer=fewer)
    if backends:
        name += ", by backend"
        compared = {OURS: compared[OURS]}
        compared |= {f"{OURS} by {each}": functools.partial(problem.ours, precision, each) for each in backends}
    layer = roofline.lstm_layer(batch, steps, size, cells, size, DIRECTIONS)
    whole = What(f"LSTM layer, {name}, per direction and step", precision, "us", per, layer)
    best = compare(session, whole, compared, problem.truth)
    if not best:
        return best
    dtype = getattr(torch, precision)
    x, weight = problem.x.double().flatten(0, 1), problem.weights[0].weight_ih.double()
    inputs = roofline.lstm_inputs(batch, steps, size, cells).times(DIRECTIONS)
    product = What(f"inputs' product alone, {name}, per direction and step", precision, "us", per, inputs)
    taken = compare(
        session, product, {"torch.mm": lambda: problem.inputs_product(dtype)}, lambda: {"product": x @ weight.t()}
    )
    if taken:
        loop = roofline.lstm_steps(batch, steps, cells, size).times(DIRECTIONS)
        aims = [Aim("value", GOALS[batch])] if batch in GOALS else []
        what = What(f"LSTM time loop, {name}, per direction and step", precision, "us", per, loop, aims)
        less(session, what, best, taken["torch.mm"])
    return best


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
        print(f"  {sentence(new)}", flush=True)


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
    compare(session, what, sides(session, problem, precision), problem.truth)
