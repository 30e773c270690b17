"""elmo_fast on a GPU, 16-bit: a training step, embedding, and single ops, against plain torch, torch.compile and cuDNN.

`make gpu` runs it. Every side is checked against float64 before it is timed. "graph" sides replay a CUDA graph. The
clock is the host's around a synchronized device, each side in turn. `pytest benchmarks/bench_gpu.py --quick` rehearses
it on a CPU with Triton's interpreter, if it is set up; those figures mean nothing.
"""

import copy
import functools
import gc
import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from benchmarks import gpu_rivals as rivals
from benchmarks.inputs import words_of_step
from benchmarks.op_calls import differentiated
from elmo_fast import batch_to_ids, ops
from elmo_fast.modules import BiLM, CharacterEncoder, ElmoEmbedder
from elmo_fast.ops import LSTMWeights, projected_lstm, scalar_mix
from elmo_fast.pretrain.config import ModelConfig
from elmo_fast.pretrain.language_model import LanguageModel, options_of
from elmo_fast.pretrain.optimizer import AdaGrad
from elmo_fast.pretrain.step import Step

TOY = {"filters": [[1, 4], [2, 8]], "char_embedding_dim": 16, "n_highway": 1, "dim": 16, "projection_dim": 8}
ELMO_FAST, GRAPH, EAGER, COMPILED, CUDNN = "elmo_fast", "elmo_fast, graph", "eager", "torch.compile", "nn.LSTM (cuDNN)"
SIDES = (ELMO_FAST, GRAPH, EAGER, COMPILED)
# Largest relative error (rms) to float64: the rivals keep all of their state in 16 bit.
TOLERANCE = {"float32": 1e-3, "float16": 2e-2, "bfloat16": 1e-1}
STEPS = 20


@pytest.fixture(scope="module")
def device(request):
    name = request.config.getoption("device")
    if not (name.startswith("cuda") and torch.cuda.is_available()) and not request.config.getoption("quick"):
        pytest.skip("no GPU: --device cuda needs one, --quick rehearses without")
    return torch.device(name)


@pytest.fixture
def precision(device):
    return "bfloat16" if device.type == "cuda" else "float32"  # the interpreter multiplies bfloat16 wrongly


@pytest.fixture(autouse=True)
def _free_memory():
    yield
    if torch.cuda.is_available():
        gc.collect()
        torch.cuda.empty_cache()


def relative_error(results, truths):
    """Return the largest relative rms error; raises on NaN or another shape."""
    worst = 0.0
    for number, (result, truth) in enumerate(zip(results, truths, strict=True)):
        assert torch.isfinite(result).all(), f"result {number} has NaN or infinity"
        assert result.shape == truth.shape, f"result {number}: shape {result.shape}, expected {truth.shape}"
        worst = max(worst, ((result.double() - truth).norm() / truth.norm().clamp_min(1e-30)).item())
    return worst


def call_of(function, tensors, dtype, train=True):
    """Return a call of function(*tensors) in one dtype and, if `train`, of its gradients."""
    leaves = [each.detach().to(dtype).requires_grad_(train) for each in tensors]
    return differentiated(lambda: function(*leaves), leaves, train=train)


def values_of(outcome, gradients=None):
    """Return the outputs of a call and its first gradients (None: all); of a table, the rows that were used."""
    outputs, all_gradients = outcome
    values = [each.coalesce().values() if each.is_sparse else each for each in all_gradients[:gradients]]
    return [each.detach().clone() for each in (outputs, *values)]


def first_of(gradients):
    """Return values_of for the outputs and so many gradients."""
    return functools.partial(values_of, gradients=gradients)


def graph_of(call):
    """Capture a CUDA graph of `call`, after runs that compile its kernels; return a call that replays it.

    Its result is what the replay left in the graph's memory.
    """
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(2):
            call()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        outcome = call()

    def replay():
        graph.replay()
        return outcome

    return replay


def compiled(function, device):
    torch._dynamo.reset()
    return torch.compile(function, dynamic=False, backend="inductor" if device.type == "cuda" else "aot_eager")


def measure(
    timed, device, variant, side, call, truths, precision, *, values=values_of, checked=None, captures=False,
    amount=1e3, unit="ms", against=EAGER,
):  # fmt: skip
    """Check a side's results against float64, then time its call; a side that is wrong fails.

    Args:
        call: what is timed. A graph side replays a graph of it, and is checked by the replay's own results.
        values: of what a call returns, the list of results to compare with `truths`.
        checked: the call whose results are compared, where those of `call` cannot be; None: `call`.
        captures: whether `call` captures its graph itself, as BiLM(cuda_graphs=True) does.
    """
    graph = side == GRAPH
    if graph and device.type != "cuda":
        pytest.skip("a graph needs a GPU")
    prepared = graph_of if graph and not captures else lambda each: each
    if checked is not None:
        check(timed, variant, side, values(prepared(checked)()), truths, precision)
    if not graph:
        call()  # compiles kernels and allocates what stays
    before = used_memory(device)
    run = prepared(call)
    for _ in range(2 if graph and captures else 0):
        run()  # the first call of a size runs launch by launch, the second captures
    outcome = run()
    memory = used_memory(device, before)  # of a graph: what it allocates, and holds while it exists
    if checked is None:
        check(timed, variant, side, values(outcome), truths, precision)
    del outcome
    timed.note("device", str(device))
    if memory is not None:
        timed.figure(f"{variant}, memory", side, memory / 2**20, "MiB", against=against)

    def synchronized():
        run()
        if device.type == "cuda":
            torch.cuda.synchronize()

    timed(f"{variant}, {precision}", synchronized, amount=amount, unit=unit, rounds=10, warmup=2, against=against)


def check(timed, variant, side, results, truths, precision):
    """Fail if results differ from float64 by more than a precision may."""
    error, limit = relative_error(results, truths), TOLERANCE[precision]
    assert error <= limit, f"{variant}, {side}: relative error {error:.1e} to float64, at most {limit:.0e} is expected"
    timed.error(error, "float64, relative")


def used_memory(device, before=None):
    """Return the bytes allocated now or, since they were `before`, the most allocated above them; None on a CPU."""
    if device.type != "cuda":
        return None
    torch.cuda.synchronize()
    if before is not None:
        return torch.cuda.max_memory_allocated() - before
    torch.cuda.reset_peak_memory_stats()
    return torch.cuda.memory_allocated()


def noise(device, *shape, seed=0):
    return torch.randn(*shape, device=device, generator=torch.Generator(device).manual_seed(seed))


# ---------------------------------------------------------------- a training step


def options(quick, words, samples=None, dropout=0.0):
    model = ModelConfig(**(TOY if quick else {}), dropout=dropout)
    return options_of(model, words, n_negative_samples_batch=samples)


def spread(encoder):
    """Widen the filters: features that differ between words, as in trained models."""
    with torch.no_grad():
        for convolution in encoder._convolutions:
            convolution.weight.mul_(5)


class TrainStep:
    """The words of both directions of one step, and the weights of a fixed seed; a word's id is its rank."""

    def __init__(self, device, quick, text, rows, words, dropout):
        self.dropout, self.device, self.quick, self.words, self.samples = (
            dropout,
            device,
            quick,
            words,
            10 if quick else 8192,
        )
        self.steps = 3 if quick else STEPS
        running, count = [word for sentence in text.sentences for word in sentence], rows * self.steps
        running = [running[i % len(running)] for i in range(2 * count)]
        ranks = {word: i % words for i, word in enumerate(dict.fromkeys(running))}
        self.batch, self.characters = words_of_step(running[:count], running[count:], ranks, rows, device)

    def model(self, **how):
        torch.manual_seed(0)
        with torch.device(self.device):  # a table of 793,471 words takes seconds on a CPU
            model = LanguageModel(options(self.quick, self.words, self.samples, self.dropout), **how)
        spread(model.bilm._token_embedder)
        return model.to(self.device)

    def fused(self, precision):
        """Return a step: the losses of both directions."""
        model = self.model(precision=precision)
        rows, state, count = self.batch.types.shape[1], None, 0
        update = Step(model, AdaGrad(model.parameters()), self.characters, rows=rows, clip_norm=10.0)

        def step():
            nonlocal state, count
            result = update(self.batch, state, count)
            state, count = result.state, count + 1
            return torch.stack([torch.as_tensor(loss) for loss in (result.forward, result.backward)])

        return step

    def eager(self, precision):
        """Plain torch under autocast, sparse embeddings, torch's own AdaGrad."""
        model = self.model(backend="reference")
        dense = [p for name, p in model.named_parameters() if name != "loss.softmax_w"]
        how = {"lr": 0.2, "initial_accumulator_value": 1.0, "eps": 0.0}
        optimizers = torch.optim.Adagrad(dense, foreach=True, **how), torch.optim.Adagrad([model.softmax_weight], **how)
        count = 0

        def step():
            nonlocal count
            model.zero_grad(set_to_none=True)
            losses = torch.stack(self.losses(model, count, getattr(torch, precision)))
            (0.5 * losses.sum() * self.steps).backward()
            gradients = [p.grad.coalesce().values() if p.grad.is_sparse else p.grad for p in model.parameters()]
            torch.nn.utils.clip_grads_with_norm_(
                model.parameters(), 10.0, torch.nn.utils.get_total_norm(gradients), foreach=False
            )
            for optimizer in optimizers:
                optimizer.step()
            count += 1
            return losses.detach()

        return step

    def losses(self, model, draw, dtype):
        """Return the mean loss per direction in plain torch; products in bfloat16 by autocast, or all in `dtype`."""
        device = self.device
        weights, lstm = rivals.encoder_weights(model.bilm._token_embedder), model.bilm._elmo_lstm
        with torch.autocast(device.type, torch.bfloat16, enabled=dtype == torch.bfloat16):
            both = [
                rivals.encode(self.characters(ids.flatten().to(device)), *weights).unflatten(0, (-1, self.steps))
                for ids in self.batch.types
            ]
            drop = functools.partial(F.dropout, p=self.dropout)
            for i, pair in enumerate(zip(lstm.forward_layers, lstm.backward_layers, strict=True)):
                both = [drop(x) for x in both]  # the residual adds the dropped input
                outputs = rivals.lstm_loop(both, [each.weights for each in pair], reverse=(False, False))
                both = [y + x if i else y for y, x in zip(outputs, both, strict=True)]
            return tuple(
                self.loss(model, drop(hidden), targets.to(device), offset=2 * draw + way)
                for way, (hidden, targets) in enumerate(zip(both, self.batch.targets, strict=True))
            )

    def loss(self, model, hidden, targets, *, offset):
        sampled, tries = ops.log_uniform_sample(self.samples, self.words, seed=0, offset=offset)
        ids, hidden = torch.cat([targets.flatten(), sampled.to(self.device)]), hidden.flatten(0, 1)
        table = model.softmax_weight, model.softmax_bias
        return rivals.sampled_softmax(hidden, *table, ids, self.samples, tries.to(self.device)).mean()

    def truth(self):
        with torch.no_grad():
            return torch.stack(self.losses(self.model(backend="reference").double(), 0, torch.float64)).cpu()


@pytest.mark.turns(2)
@pytest.mark.parametrize(("rows", "words"), [(128, 10_000), (128, 793_471), (1024, 793_471)])
@pytest.mark.parametrize("side", [ELMO_FAST, EAGER])
def bench_train_step(timed, device, precision, text, rows, words, side):
    """With the dropout of the paper; checked without, since sides drop different numbers."""
    sizes = device, timed.quick, text, 2 if timed.quick else rows, 100 if timed.quick else words
    problem, exact = TrainStep(*sizes, ModelConfig().dropout), TrainStep(*sizes, 0.0)
    take = (lambda each: each.fused(precision)) if side == ELMO_FAST else (lambda each: each.eager(precision))
    together = 1 if timed.quick else 5
    truth = exact.truth()
    checked = take(exact)()
    del exact
    step = take(problem)
    measure(
        timed, device, f"training step, {rows} x {STEPS}, {words:,} words", side,
        lambda: [step() for _ in range(together)],  # as the trainer takes them: nothing waits for a step's result
        [truth], precision, checked=lambda: checked.cpu(), values=lambda losses: [losses],
        amount=together * rows * STEPS, unit="positions/s",
    )  # fmt: skip


# ---------------------------------------------------------------- embedding


@pytest.mark.turns(2)
@pytest.mark.parametrize("batch", [128, 1])
@pytest.mark.parametrize("side", SIDES)
def bench_embed(timed, device, precision, text, batch, side):
    """Activations of the original biLM, character ids on the device, every token encoded; a graph as users have it."""
    words = [word for sentence in text.sentences for word in sentence]
    length, size = (4, min(batch, 3)) if timed.quick else (STEPS, batch)
    sentences = [[words[(i * length + j) % len(words)] for j in range(length)] for i in range(size)]
    ids = batch_to_ids(sentences).to(device)
    torch.manual_seed(0)
    how = {"stateful": False, "cache_size": 0, "precision": precision, "cuda_graphs": side == GRAPH}
    model = BiLM(options(timed.quick, 1000), **how).to(device).eval()
    spread(model._token_embedder)
    model._token_embedder.unique_words = False
    exact = BiLM(options(timed.quick, 1000), stateful=False, cache_size=0, backend="reference").to(device).double()
    exact.load_state_dict(model.state_dict())
    calls = {
        ELMO_FAST: lambda: model(ids)["activations"],
        EAGER: lambda: rivals.EagerBiLM(model, getattr(torch, precision))(ids),
    }
    if side == COMPILED:
        eager = rivals.EagerBiLM(model, getattr(torch, precision), functools.partial(compiled, device=device))
        calls[COMPILED] = lambda: eager(ids)
    call = torch.no_grad()(calls[ELMO_FAST if side == GRAPH else side])
    with torch.no_grad():
        truth = exact(ids)["activations"]

    def activations(outcome):
        assert len(model._graph_replay.graphs) == (side == GRAPH)
        return list(outcome)

    measure(
        timed, device, f"embed, {batch} x {length}", side, call, truth, precision, values=activations, captures=True,
        amount=size * length, unit="tokens/s",
    )  # fmt: skip


@pytest.mark.turns(3)
def bench_embedder(timed, device, precision, text):
    """Strings in, numpy arrays out."""
    sentences = text.sentences[: 4 if timed.quick else 512]
    index = (device.index or 0) if device.type == "cuda" else -1
    embedder = ElmoEmbedder(
        options(timed.quick, 1000), None, cuda_device=index, stateful=False, cache_size=0, precision=precision
    )
    call = lambda: embedder.embed_batch(sentences)  # noqa: E731
    timed(f"embed, strings to arrays, {precision}", call, amount=sum(map(len, sentences)), unit="tokens/s", rounds=5)


# ---------------------------------------------------------------- single ops


@functools.lru_cache(1)
def lstm_problem(device, quick, batch, train):
    """Input and weights of a layer, small enough for no clip to bite (cuDNN has none), and the float64 result."""
    steps, size, cells = (3, 8, 16) if quick else (STEPS, 512, 4096)
    shapes = ((4 * cells, size), (4 * cells, size), (4 * cells,), (size, cells))
    weights = [
        noise(device, *s, seed=9 * d + i).clamp(-1, 1) * cells**-0.5 for d in range(2) for i, s in enumerate(shapes)
    ]
    tensors = [noise(device, batch, steps, size), *weights]
    exact = layer_of(lambda x, w: projected_lstm(x, w, backend="reference")[0])
    return tensors, values_of(call_of(exact, tensors, torch.float64, train)(), 3)


def layer_of(function):
    """Return function([x, x], weights of two directions) as a function of tensors."""
    return lambda x, *w: function([x, x], [LSTMWeights(*w[:4]), LSTMWeights(*w[4:])])


@pytest.mark.turns(2)
@pytest.mark.parametrize(("batch", "train"), [(128, False), (16, False), (128, True), (1024, True)])
@pytest.mark.parametrize("side", [*SIDES, CUDNN])
def bench_lstm(timed, device, precision, batch, train, side):
    """One layer, both directions over one input, 20 steps, the inputs' product included."""
    dtype = getattr(torch, precision)
    tensors, truth = lstm_problem(device, timed.quick, 3 if timed.quick else batch, train)
    if side == CUDNN:
        lstm = rivals.cudnn_lstm([LSTMWeights(*tensors[1:5]), LSTMWeights(*tensors[5:])], dtype, train)
        x, first = tensors[0].to(dtype, copy=True).requires_grad_(train), [lstm.weight_ih_l0, lstm.weight_hh_l0]
        others = [w for w in lstm.parameters() if all(w is not each for each in first)]
        forward = lambda: torch.stack(lstm(x)[0].chunk(2, dim=-1))  # noqa: E731
        call = differentiated(forward, [x, *first, *others], train=train)
    elif side in (EAGER, COMPILED):
        hoisted = {"cell": compiled(rivals.lstm_cell, device), "hoist": True} if side == COMPILED else {}
        call = call_of(layer_of(functools.partial(rivals.lstm_loop, **hoisted)), tensors, dtype, train)
    else:
        fused = lambda x, w: projected_lstm(x, w, precision=precision)[0]  # noqa: E731
        call = call_of(layer_of(fused), tensors, torch.float32, train)
    variant = f"LSTM layer, {batch} x {STEPS}, {'forward + backward' if train else 'forward'}"
    measure(timed, device, variant, side, call, truth, precision, values=first_of(3), against=CUDNN)


@pytest.mark.turns(2)
@pytest.mark.parametrize("unique", [True, False], ids=["as trained", "every token"])
@pytest.mark.parametrize("side", SIDES)
def bench_encoder(timed, device, precision, text, unique, side):
    """The character encoder, forward and backward to all weights, on 20,480 tokens of running text."""
    words = [word for sentence in text.sentences for word in sentence]
    count, checked = (12, 12) if timed.quick else (20_480, 256)
    ids = batch_to_ids([[words[i % len(words)] for i in range(count)]])[0].to(device)
    torch.manual_seed(0)
    how = {"requires_grad": True, "cache_size": 0}
    encoder = CharacterEncoder(options(timed.quick, 1000), precision=precision, **how).to(device).train()
    spread(encoder)
    encoder.unique_words = unique

    def encoder_call(ids, dtype, encode=None):
        if encode is None:
            module, function = encoder, encoder.encode
        else:
            module = copy.deepcopy(encoder).to(dtype)
            weights = rivals.encoder_weights(module)
            function = lambda words: encode(words, *weights)  # noqa: E731
        first = [module._projection.weight, module._highways.layers[0].weight]
        others = [weight for weight in module.parameters() if all(weight is not each for each in first)]
        return differentiated(lambda: function(ids), [*first, *others])

    encode = {EAGER: rivals.encode, COMPILED: compiled(rivals.encode, device)}.get(side)
    dtype = getattr(torch, precision)
    truth = values_of(encoder_call(ids[:checked], torch.float64, rivals.encode)(), 2)
    some, every = (encoder_call(each, dtype, encode) for each in (ids[:checked], ids))
    if side == GRAPH and unique:
        pytest.skip("distinct words have a shape that depends on values")
    variant = f"char encoder, forward + backward, {count} tokens, {'as trained' if unique else 'every token'}"
    measure(timed, device, variant, side, every, truth, precision, values=first_of(2), checked=some)


@pytest.mark.turns(2)
@pytest.mark.parametrize("train", [False, True], ids=["forward", "forward + backward"])
@pytest.mark.parametrize("side", SIDES)
def bench_scalar_mix(timed, device, train, side):
    """Three layers of what 1024 x 20 tokens give, float32."""
    rows, width = (10, 8) if timed.quick else (1024 * 22, 1024)
    layers = [noise(device, rows, width, seed=i) for i in range(3)]
    tensors = [noise(device, 3, seed=3), noise(device, 1).abs() + 0.5, *layers]
    fused = lambda scalars, gamma, *layers: scalar_mix(layers, scalars[None], gamma)[0]  # noqa: E731
    function = {EAGER: rivals.scalar_mix, COMPILED: compiled(rivals.scalar_mix, device)}.get(side, fused)
    call = call_of(function, tensors, torch.float32, train)
    truth = values_of(call_of(rivals.scalar_mix, tensors, torch.float64, train)())
    variant = f"scalar mix of 3 x [{rows}, {width}], {'forward + backward' if train else 'forward'}"
    measure(timed, device, variant, side, call, truth, "float32")


LOSSES = [
    ("sampled_softmax", 2560),
    ("sampled_softmax", 20_480),
    ("negative_sampling", 2560),
    ("hierarchical_softmax", 2560),
]


@pytest.mark.turns(2)
@pytest.mark.parametrize(("op", "rows"), LOSSES)
@pytest.mark.parametrize("side", SIDES)
def bench_losses(timed, device, precision, op, rows, side):
    """Forward and backward to hidden states and the used rows of a table of 793,471 words."""
    rows, words, samples, size = (6, 100, 10, 8) if timed.quick else (rows, 793_471, 8192, 512)
    problem = rivals.LossProblem(op, device, rows, words, samples, size)
    plain = functools.partial(problem.plain, core=problem.core)
    if side in (ELMO_FAST, GRAPH):
        call = call_of(functools.partial(problem.fused, precision=precision), problem.tensors, torch.float32)
    else:
        function = functools.partial(plain, core=compiled(problem.core, device)) if side == COMPILED else plain
        call = call_of(function, problem.tensors, getattr(torch, precision))
    truth = values_of(call_of(plain, problem.tensors, torch.float64)(), 2)
    variant = f"{op}, forward + backward, {rows} rows"
    measure(timed, device, variant, side, call, truth, precision, values=first_of(2))


@pytest.mark.turns(2)
@pytest.mark.parametrize("kind", ["dense", "rows"])
@pytest.mark.parametrize("side", [ELMO_FAST, EAGER])
def bench_adagrad(timed, device, kind, side):
    """The update of all dense weights of the original biLM, and of the rows of a table that a step used."""
    if kind == "dense":
        lstm = [(16384, 512), (16384, 512), (16384,), (512, 4096)]
        shapes = (
            [(16, 8), (7,)] if timed.quick else [*lstm * 4, *[(4096, 2048), (4096,)] * 2, (512, 2048), (1024, 16, 7)]
        )
        weights = [nn.Parameter(noise(device, *shape, seed=i)) for i, shape in enumerate(shapes)]
        for i, weight in enumerate(weights):
            weight.grad = noise(device, *weight.shape, seed=100 + i)
    else:
        words, size, count = (50, 8, 30) if timed.quick else (793_471, 512, 2 * (2560 + 8192))
        chance = torch.rand(count, device=device, generator=torch.Generator(device).manual_seed(0), dtype=torch.float64)
        ids = ((chance * math.log(words + 1)).exp().long() - 1).clamp(0, words - 1)
        weights = [nn.Parameter(torch.ones(words, size, device=device))]
        gradient = torch.sparse_coo_tensor(ids[None], noise(device, count, size), (words, size), check_invariants=False)
        weights[0].grad = gradient if side == ELMO_FAST else gradient.to_dense()
    gradients = [weight.grad.to_dense().double() for weight in weights]
    truth = [w.detach().double() - 0.2 * g / (1 + g.square()).sqrt() for w, g in zip(weights, gradients, strict=True)]
    if side == ELMO_FAST:
        optimizer = AdaGrad(weights, 0.2, 1.0)
    else:
        optimizer = torch.optim.Adagrad(weights, lr=0.2, initial_accumulator_value=1.0, eps=0.0, foreach=True)
    optimizer.step()
    first = [weight.detach().clone() for weight in weights]
    measure(
        timed, device, f"AdaGrad, {kind}", side, optimizer.step, truth, "float32", checked=lambda: first, values=list
    )
