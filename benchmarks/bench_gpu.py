"""elmo_fast on a GPU, 16-bit: the chip, ways of running a step, and every part against its rivals (gpu_rivals.py).

`make gpu` runs it. Every side is checked against float64 before it is timed. Sides that end in "graph" replay a CUDA
graph. The clock is the host's around a synchronized device, each side in turn. The case gpu_step has what decides how
kernels are written, gpu the rest. `pytest benchmarks/bench_gpu.py --quick` rehearses both on a CPU, with Triton's
interpreter if it is set up; there is no graph there, and no figure means anything.
"""

import contextlib
import copy
import functools
import gc
import json
import math
import shutil
import subprocess
import time
from unittest import mock

import h5py
import pytest
import torch
from torch import nn

from benchmarks import gpu_rivals as rivals
from benchmarks.gpu import PROGRAMS
from benchmarks.machine import ROOT
from benchmarks.op_calls import differentiated
from elmo_fast import BiLM, CharacterEncoder, ElmoEmbedder, batch_to_ids, ops
from elmo_fast.ops import LSTMWeights, projected_lstm, scalar_mix
from elmo_fast.ops._triton import INTERPRETED
from elmo_fast.pretrain.config import ModelConfig
from elmo_fast.pretrain.optimizer import AdaGrad

ELMO_FAST, GRAPH, EAGER = "elmo_fast", "elmo_fast, graph", "eager"
COMPILED, COMPILED_GRAPH, CUDNN = "torch.compile", "torch.compile, graph", "nn.LSTM (cuDNN), no clips"
SIDES = (ELMO_FAST, GRAPH, EAGER, COMPILED, COMPILED_GRAPH)
# Ways of running a step of the LSTM: side -> switches of the kernels.
WAYS = {f"elmo_fast, {form}": {"FUSED": form == "fused"} for form in ("fused", "split")}
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
    # Triton's interpreter multiplies bfloat16 wrongly.
    return "bfloat16" if device.type == "cuda" and not INTERPRETED else "float32"


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
    """Return a call of function(*tensors) in one dtype and, if `train`, of its gradients.

    The leaves are copies: of weights that share memory elmo_fast would round all again in every call.
    """
    leaves = [each.detach().to(dtype, copy=True).requires_grad_(train) for each in tensors]
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


@functools.cache
def compiled(function, device):
    """Return torch.compile's function; all sides, turns and sizes share what it has compiled."""
    torch._dynamo.config.recompile_limit = 256
    return torch.compile(function, dynamic=False, backend="inductor" if device.type == "cuda" else "aot_eager")


def measure(
    timed, device, variant, side, call, truths, precision, *, values=values_of, checked=None, captures=False,
    amount=1e3, unit="ms", repeat=1, rounds=10, against=EAGER,
):  # fmt: skip
    """Check a side's results against float64, then time its call; a side that is wrong fails.

    Args:
        call: what is timed. A graph side replays a graph of it, and is checked by the replay's own results.
        values: of what a call returns, the list of results to compare with `truths`.
        checked: the call whose results are compared, where those of `call` cannot be; None: `call`.
        captures: whether `call` captures its graph itself, as BiLM(cuda_graphs=True) does.
        amount: per second or per call, in `unit`.
        repeat: calls that follow each other before the device is synchronized (one in a quick run).
    """
    repeat = 1 if timed.quick else repeat
    graph = side.endswith("graph")
    prepared = graph_of if graph and not captures and device.type == "cuda" else lambda each: each
    if checked is not None:
        check(timed, variant, side, values(prepared(checked)()), truths, precision)
    if not graph:
        call()  # compiles kernels and allocates what stays
    before = used_memory(device)
    with skipped_if_it_fails(side, *(() if side.startswith(ELMO_FAST) else (RuntimeError,) if graph else ())):
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
        for _ in range(repeat):
            run()
        synchronize(device)

    how = {"amount": amount * repeat if unit.endswith("/s") else amount / repeat, "unit": unit, "against": against}
    timed(f"{variant}, {precision}", synchronized, rounds=rounds, warmup=2, **how)


def check(timed, variant, side, results, truths, precision):
    """Fail if results differ from float64 by more than a precision may."""
    error, limit = relative_error(results, truths), TOLERANCE[precision]
    assert error <= limit, f"{variant}, {side}: relative error {error:.1e} to float64, at most {limit:.0e} is expected"
    timed.error(error, "float64, relative")


@contextlib.contextmanager
def skipped_if_it_fails(side, *errors):
    """Turn these errors of a rival into a skip with its reason: they are no failure of elmo_fast."""
    try:
        yield
    except errors as error:
        reason = str(error).partition("\n")[0]
        pytest.skip(f"{side}: {type(error).__name__}: {reason}")


def synchronize(device):
    if device.type == "cuda":
        torch.cuda.synchronize()


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


# ---------------------------------------------------------------- the chip, and ways of running a step


@pytest.mark.turns(1)
@pytest.mark.case("gpu_step")
def bench_chip(timed, device, tmp_path):
    """What benchmarks/chip.cu measures: barriers between blocks, L2 with and without multicast, launches of a graph."""
    nvcc = shutil.which("nvcc", path=PROGRAMS)
    if device.type != "cuda" or torch.cuda.get_device_capability(device) < (9, 0) or nvcc is None:
        pytest.skip("chip: needs a GPU from Hopper on, and nvcc")
    architecture = "{}{}a".format(*torch.cuda.get_device_capability(device))
    target = f"arch=compute_{architecture},code=sm_{architecture}"
    program = str(tmp_path / "chip")

    def run():
        source = str(ROOT / "benchmarks" / "chip.cu")
        subprocess.run([nvcc, "-std=c++17", "-O3", "-gencode", target, "-o", program, source], check=True)
        return subprocess.run([program], check=True, stdout=subprocess.PIPE, text=True).stdout

    for line in timed("chip, compiled and run", run, amount=1, unit="s", warmup=0).splitlines():
        name, value, unit = line.split("\t")
        timed.figure(name, "chip", float(value), unit)


def switched(**switches):
    """Return a context in which steps of the LSTM run in this way; a graph that is captured within it stays so."""
    return mock.patch.multiple(pytest.importorskip("elmo_fast.ops.projected_lstm.forward_kernels"), **switches)


PASSES = ("forward for training", "forward + backward", "forward")  # the first leaves what the backward pass reads


@pytest.mark.turns(2)
@pytest.mark.case("gpu_step")
@pytest.mark.parametrize(("dtype", "part"), [*(("bfloat16", part) for part in PASSES), ("float16", "forward")])
@pytest.mark.parametrize("batch", [128, 832])
@pytest.mark.parametrize("side", [f"{way}, graph" for way in WAYS])
def bench_step(timed, device, precision, dtype, batch, part, side):
    """Every way of running a step: one layer, both directions, in microseconds per step."""
    dtype = precision if dtype == "bfloat16" else dtype
    train = part == "forward + backward"
    tensors, truth = lstm_problem(device, timed.quick, 3 if timed.quick else batch, train)
    layer = own_layer(precision=dtype, backend="triton" if device.type == "cuda" or INTERPRETED else "auto")
    call = call_of(layer, tensors, torch.float32, train)
    if part == "forward for training":
        leaves = [each.detach().clone().requires_grad_() for each in tensors]
        call = lambda: (layer(*leaves), ())  # noqa: E731
    with switched(**WAYS[side.removesuffix(", graph")]):
        measure(
            timed, device, f"a step of {batch} rows, {part}", side, call, truth, dtype, values=first_of(3),
            amount=1e6 / tensors[0].shape[1], unit="us", repeat=5, against=f"{next(iter(WAYS))}, graph",
        )  # fmt: skip


# ---------------------------------------------------------------- a training step


@pytest.fixture(scope="module")
def train_step(device, text, quick):
    """Return a function of rows, words and dropout that returns a problem, and one that returns its exact losses."""

    def problem(rows, words, dropout):
        sizes = (2, 3, 100) if quick else (rows, STEPS, words)
        return rivals.TrainStep(device, quick, text, *sizes, dropout)

    return problem, functools.lru_cache(1)(lambda rows, words: problem(rows, words, 0.0).truth())


def time_steps(timed, device, precision, train_step, rows, words, dropout, side, take, against):
    """Time take(problem); it is checked without dropout, since sides drop different numbers."""
    problem, truth = train_step
    losses = rivals.first_losses(take(problem(rows, words, 0.0), carried=False))
    step = take(problem(rows, words, dropout))
    for _ in range(0 if timed.quick else 4):
        step()  # until it replays graphs
    usual = "" if dropout == ModelConfig().dropout else f", dropout {dropout:g}"
    measure(
        timed, device, f"training step, {rows} x {STEPS}, {words:,} words{usual}", side,
        step, truth(rows, words), precision, checked=lambda: losses, values=list, against=against,
        amount=rows * STEPS, unit="positions/s", repeat=5,  # as the trainer takes them: nothing waits for a result
    )  # fmt: skip


@pytest.mark.turns(2)
@pytest.mark.parametrize(("rows", "words"), [(128, 10_000), (128, 793_471), (1024, 793_471)])
@pytest.mark.parametrize("side", [ELMO_FAST, EAGER, COMPILED])
def bench_train_step(timed, device, precision, train_step, rows, words, side):
    """With the dropout of the paper."""

    def take(problem, **how):
        if side == ELMO_FAST:
            return problem.fused(precision, **how)
        return problem.eager(precision, functools.partial(compiled, device=device) if side == COMPILED else None)

    time_steps(timed, device, precision, train_step, rows, words, ModelConfig().dropout, side, take, EAGER)


def stamp(device):
    """Return now by the device's clock: an event in its stream or, on a CPU, the host's seconds."""
    if device.type != "cuda":
        return time.perf_counter()
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


def milliseconds(begin, end):
    """Return the time between two stamps of a synchronized device."""
    return 1e3 * (end - begin) if isinstance(begin, float) else begin.elapsed_time(end)


def occupy(device, seconds):
    """Let the GPU spin, so that the host runs ahead of it."""
    if device.type == "cuda":
        torch.cuda._sleep(int(seconds * 2e9))  # cycles


@pytest.mark.turns(1)
@pytest.mark.case("gpu_step")
@pytest.mark.parametrize("side", [ELMO_FAST])
def bench_clocks(timed, device, precision, train_step, side):
    """Two clocks of a training step: the GPU's of a replay, and the host's with a full queue."""
    spans = []
    replay = torch.cuda.CUDAGraph.replay

    def stamped(graph):
        begin = stamp(device)
        replay(graph)
        spans.append((begin, stamp(device)))

    step = train_step[0](128, 793_471, ModelConfig().dropout).fused(precision)
    count = 2 if timed.quick else 5
    with mock.patch.object(torch.cuda.CUDAGraph, "replay", stamped):  # captured graphs keep it
        for _ in range(2 + 2 * count):
            step()
        synchronize(device)
        clocks = {"GPU, replay": [milliseconds(*span) for span in spans[1:]]}
        occupy(device, 1.0)
        begin = time.perf_counter()
        for _ in range(count):
            step()
        clocks["host, queue full"] = [1e3 * (time.perf_counter() - begin) / count]
    name = "training step, 128 x 20, 793,471 words"
    for clock, values in clocks.items():
        for value in values:
            timed.figure(f"{name}: {clock}", side, value, "ms")

    def alone():
        step()
        synchronize(device)

    timed(f"{name}: alone", alone, rounds=10)


def kernels_of(events, spills):
    """Return a row for each kernel in a profiler's trace, the longest first; spills: of kernels by name, bytes."""
    kernels = {}
    for event in events:
        if event.get("cat") == "kernel":
            name, arguments = event["name"], event.get("args", {})
            empty = {"kernel": name, "count": 0, "us": 0.0, "registers": arguments.get("registers per thread")}
            row = kernels.setdefault(name, empty | {"spills": spills.get(name)})
            row["count"], row["us"] = row["count"] + 1, round(row["us"] + event["dur"], 2)
    return sorted(kernels.values(), key=lambda row: -row["us"])


def triton_spills():
    """Return the spills of every Triton kernel that this process has loaded, by its name; the worst variant's."""
    from triton.compiler.compiler import CompiledKernel

    spills = {}
    for each in gc.get_objects():
        if type(each) is CompiledKernel and isinstance(count := vars(each).get("n_spills"), int):
            spills[each.name] = max(count, spills.get(each.name, 0))
    return spills


@pytest.mark.turns(1)
@pytest.mark.case("gpu_step")
def bench_kernels(timed, device, precision, train_step, tmp_path):
    """The kernels of one training step: how often each runs, how long, its registers and, of Triton's, its spills."""
    if device.type != "cuda" or INTERPRETED:
        pytest.skip("kernels of a step: needs a GPU")
    step = train_step[0](128, 793_471, ModelConfig().dropout).fused(precision)
    for _ in range(5):
        step()
    torch.cuda.synchronize()

    def profiled():
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiler:
            step()
            torch.cuda.synchronize()
        return profiler

    path = tmp_path / "trace.json"
    timed("a training step under the profiler", profiled, warmup=1).export_chrome_trace(str(path))
    events = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
    kernels = kernels_of(events, triton_spills())
    assert kernels, "the profiler saw no kernel; it needs CUPTI and its permission"
    timed.note("kernels of a training step", kernels)


# ---------------------------------------------------------------- embedding


def running(text, count, length):
    """Return so many sentences of one length, of the text's words one after the other."""
    words = [word for sentence in text.sentences for word in sentence]
    return [[words[(i * length + j) % len(words)] for j in range(length)] for i in range(count)]


def embedder_of(timed, device, **how):
    """Return an ElmoEmbedder with random weights."""
    index = (device.index or 0) if device.type == "cuda" else -1
    torch.manual_seed(0)
    embedder = ElmoEmbedder(rivals.options(timed.quick, 1000), None, cuda_device=index, stateful=False, **how)
    rivals.spread(embedder.elmo_bilm.encoder)
    return embedder


@pytest.mark.turns(2)
@pytest.mark.parametrize("batch", [128, 819, 1])  # 819: a batch of `elmo-fast embed`, 16,384 tokens
@pytest.mark.parametrize("side", [ELMO_FAST, GRAPH, EAGER, COMPILED])
def bench_embed(timed, device, precision, text, batch, side):
    """Activations of the original biLM, character ids on the device, every token encoded; a graph as users have it."""
    length, size = (4, min(batch, 3)) if timed.quick else (STEPS, batch)
    ids = batch_to_ids(running(text, size, length)).to(device)
    torch.manual_seed(0)
    how = {"stateful": False, "cache_size": 0, "precision": precision, "cuda_graphs": side == GRAPH}
    model = BiLM(rivals.options(timed.quick, 1000), **how).to(device).eval()
    rivals.spread(model.encoder)
    model.encoder.unique_words = False
    exact = BiLM(model.options, stateful=False, cache_size=0, backend="reference").to(device).double()
    exact.load_state_dict(model.state_dict())
    how = functools.partial(compiled, device=device) if side == COMPILED else None
    eager = rivals.EagerBiLM(model, getattr(torch, precision), how)
    call = torch.no_grad()(lambda: model(ids)["activations"] if side in (ELMO_FAST, GRAPH) else eager(ids))
    with torch.no_grad():
        truth = exact(ids)["activations"]

    def activations(outcome):
        assert len(model._graphs) == (side == GRAPH and device.type == "cuda")
        return list(outcome)

    measure(
        timed, device, f"embed, {batch} x {length}", side, call, truth, precision, values=activations, captures=True,
        amount=size * length, unit="tokens/s",
    )  # fmt: skip


@pytest.mark.turns(3)
def bench_embedder(timed, device, precision, text):
    """Strings in, numpy arrays out."""
    sentences = text.sentences[: 4 if timed.quick else 512]
    embedder = embedder_of(timed, device, cache_size=0, precision=precision)
    call = lambda: embedder.embed_batch(sentences)  # noqa: E731
    timed(f"embed, strings to arrays, {precision}", call, amount=sum(map(len, sentences)), unit="tokens/s", rounds=5)


@pytest.mark.turns(2)
@pytest.mark.parametrize("side", [ELMO_FAST, EAGER])
def bench_embed_file(timed, device, precision, text, tmp_path, side):
    """A text of sentences of one length to an HDF5 file, the average of all layers, as `elmo-fast embed` writes it."""
    length, count, rows = (4, 6, 3) if timed.quick else (STEPS, 4095, 819)
    sentences, lines, path = running(text, count, length), tmp_path / "lines.txt", tmp_path / "vectors.hdf5"
    text._replace(sentences=sentences).write(lines)
    embedder = embedder_of(timed, device, precision=precision, cuda_graphs=True)
    eager = rivals.EagerBiLM(embedder.elmo_bilm, getattr(torch, precision))
    exact = rivals.EagerBiLM(embedder.elmo_bilm, torch.float64)
    calls = {
        ELMO_FAST: lambda: embedder.embed_file(lines, path, "average"),
        EAGER: lambda: eager.embed_file(sentences, path, rows),
    }

    def first_and_last(_):
        with h5py.File(path) as file:
            return [torch.from_numpy(file[str(i)][:]) for i in (0, count - 1)]

    with torch.no_grad():
        layers = torch.stack(exact(batch_to_ids([sentences[0], sentences[-1]]).to(device)))
        measure(
            timed, device, f"strings to file, {count} x {length}", side, calls[side],
            list(layers.mean(dim=0)[:, 1:-1].cpu()), precision, values=first_and_last,
            amount=count * length, unit="tokens/s", rounds=3,
        )  # fmt: skip


# ---------------------------------------------------------------- single ops


@functools.lru_cache(2)
def lstm_problem(device, quick, batch, train):
    """Input and weights of a layer, small enough for no clip to bite (cuDNN has none), and the float64 result."""
    steps, size, cells = (3, 8, 16) if quick else (STEPS, 512, 4096)
    shapes = ((4 * cells, size), (4 * cells, size), (4 * cells,), (size, cells))
    weights = [
        noise(device, *s, seed=9 * d + i).clamp(-1, 1) * cells**-0.5 for d in range(2) for i, s in enumerate(shapes)
    ]
    tensors = [noise(device, batch, steps, size), *weights]
    return tensors, values_of(call_of(own_layer(backend="reference"), tensors, torch.float64, train)(), 3)


def layer_of(function):
    """Return function([x, x], weights of two directions) as a function of tensors."""
    return lambda x, *w: function([x, x], [LSTMWeights(*w[:4]), LSTMWeights(*w[4:])])


def own_layer(**how):
    """Return elmo_fast's layer as a function of tensors."""
    return layer_of(lambda x, w: projected_lstm(x, w, **how)[0])


@pytest.mark.turns(2)
@pytest.mark.parametrize("batch", [128, 16, 1024])
@pytest.mark.parametrize("train", [True, False], ids=["forward + backward", "forward"])
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
    elif side in (ELMO_FAST, GRAPH):
        call = call_of(own_layer(precision=precision), tensors, torch.float32, train)
    else:
        hoisted = {} if side == EAGER else {"cell": compiled(rivals.lstm_cell, device), "hoist": True}
        call = call_of(layer_of(functools.partial(rivals.lstm_loop, **hoisted)), tensors, dtype, train)
    variant = f"LSTM layer, {batch} x {STEPS}, {'forward + backward' if train else 'forward'}"
    measure(timed, device, variant, side, call, truth, precision, values=first_of(3), against=CUDNN)


def of_side(side, own, rival, device):
    """Return the function of a side: elmo_fast's, or a rival's, which may be compiled."""
    if side.startswith(ELMO_FAST):
        return own
    return rival if side == EAGER else compiled(rival, device)


@pytest.mark.turns(2)
@pytest.mark.parametrize("unique", [True, False], ids=["as trained", "every token"])
@pytest.mark.parametrize("side", SIDES)
def bench_encoder(timed, device, precision, text, unique, side):
    """The character encoder, forward and backward to all weights, on 20,480 tokens of running text."""
    if side == GRAPH and unique and device.type == "cuda":
        pytest.skip("distinct words have a shape that depends on values")
    count, checked = (12, 12) if timed.quick else (20_480, 256)
    ids = batch_to_ids(running(text, 1, count))[0].to(device)
    torch.manual_seed(0)
    how = {"requires_grad": True, "cache_size": 0}
    encoder = CharacterEncoder(rivals.options(timed.quick, 1000), precision=precision, **how).to(device).train()
    rivals.spread(encoder)
    encoder.unique_words = unique

    def encoder_call(ids, dtype, encode=None):
        if encode is None:
            module, function = encoder, encoder.encode
        else:
            module = copy.deepcopy(encoder).to(dtype)
            weights = rivals.encoder_weights(module)
            function = lambda words: encode(words, *weights)  # noqa: E731
        first = [module._projection.weight, module._highways._layers[0].weight]
        others = [weight for weight in module.parameters() if all(weight is not each for each in first)]
        return differentiated(lambda: function(ids), [*first, *others])

    encode = of_side(side, None, rivals.encode, device)
    dtype = getattr(torch, precision)
    truth = values_of(encoder_call(ids[:checked], torch.float64, rivals.encode)(), 2)
    some, every = (encoder_call(each, dtype, encode) for each in (ids[:checked], ids))
    variant = f"char encoder, forward + backward, {count} tokens, {'as trained' if unique else 'every token'}"
    measure(timed, device, variant, side, every, truth, precision, values=first_of(2), checked=some)


PARTS = [(op, train, side) for op in ("char_cnn", "highway") for train in (False, True) for side in SIDES]


@pytest.mark.turns(2)
@pytest.mark.parametrize(("op", "train", "side"), PARTS)
def bench_parts(timed, device, precision, text, op, train, side):
    """The parts of the character encoder on as many words as a step of 128 x 20 has distinct ones."""
    distinct = list(dict.fromkeys(word for sentence in text.sentences for word in sentence))
    ids = batch_to_ids([distinct[: 12 if timed.quick else 2048]])[0].to(device)
    torch.manual_seed(0)
    encoder = CharacterEncoder(rivals.options(timed.quick, 1000), requires_grad=True).to(device)
    rivals.spread(encoder)
    table, convolutions, highways, last = rivals.encoder_weights(encoder)
    layers, rest = (convolutions, (table,)) if op == "char_cnn" else (highways, last)
    x = noise(device, len(ids), sum(len(bias) for _, bias in convolutions))
    count = len(layers)

    def own(*tensors):
        weights, biases, rest = tensors[:count], tensors[count : 2 * count], tensors[2 * count :]
        if op == "char_cnn":
            return ops.char_cnn(ids, *rest, weights, biases, precision=precision)
        return ops.highway(rest[0], weights, biases, *rest[1:], precision=precision)

    def rival(*tensors):
        layers, rest = list(zip(tensors[:count], tensors[count : 2 * count], strict=True)), tensors[2 * count :]
        return rivals.char_cnn(ids, *rest, layers) if op == "char_cnn" else rivals.highway(rest[0], layers, rest[1:])

    tensors = (
        [weight for weight, _ in layers] + [bias for _, bias in layers] + [*([x] if op == "highway" else []), *rest]
    )
    function = of_side(side, own, rival, device)
    call = call_of(function, tensors, torch.float32 if function is own else getattr(torch, precision), train)
    truth = values_of(call_of(rival, tensors, torch.float64, train)(), 2)
    variant = f"{op}, {'forward + backward' if train else 'forward'}, {len(ids)} words"
    measure(timed, device, variant, side, call, truth, precision, values=first_of(2))


@pytest.mark.turns(2)
@pytest.mark.parametrize("train", [False, True], ids=["forward", "forward + backward"])
@pytest.mark.parametrize("side", SIDES)
def bench_scalar_mix(timed, device, train, side):
    """Three layers of what 1024 x 20 tokens give, float32."""
    rows, width = (10, 8) if timed.quick else (1024 * 22, 1024)
    layers = [noise(device, rows, width, seed=i) for i in range(3)]
    tensors = [noise(device, 3, seed=3), noise(device, 1).abs() + 0.5, *layers]
    fused = lambda scalars, gamma, *layers: scalar_mix(layers, scalars[None], gamma)[0]  # noqa: E731
    call = call_of(of_side(side, fused, rivals.scalar_mix, device), tensors, torch.float32, train)
    truth = values_of(call_of(rivals.scalar_mix, tensors, torch.float64, train)())
    variant = f"scalar mix of 3 x [{rows}, {width}], {'forward + backward' if train else 'forward'}"
    measure(timed, device, variant, side, call, truth, "float32")


LOSSES = [
    ("sampled_softmax", 2560, 793_471),
    ("full_softmax", 2560, 32_000),
    ("full_softmax", 2560, 793_471),
    ("sampled_softmax", 20_480, 793_471),
    ("negative_sampling", 2560, 793_471),
    ("hierarchical_softmax", 2560, 793_471),
]
LOSSES = [(*each, side) for each in LOSSES for side in SIDES + tuple(rivals.LIBRARIES) * (each[0] == "full_softmax")]


@pytest.mark.turns(2)
@pytest.mark.parametrize(("op", "rows", "words", "side"), LOSSES)
def bench_losses(timed, device, precision, op, rows, words, side):
    """Forward and backward to hidden states and the table, or its rows that were used."""
    rows, words, samples, size = (6, 100, 10, 8) if timed.quick else (rows, words, 8192, 512)
    problem = rivals.LossProblem(op, device, rows, words, samples, size)
    own, full = side.startswith(ELMO_FAST), op == "full_softmax"

    def call_in(dtype, function, **how):  # over all words the mean loss, which is what the libraries compute
        losses = lambda *tensors: function(*tensors, **how)  # noqa: E731
        return call_of((lambda *tensors: losses(*tensors).mean()) if full else losses, problem.tensors, dtype)

    exact = functools.partial(problem.plain, core=problem.core)
    if full:  # float64 logits of all words may not fit
        exact = functools.partial(problem.fused, backend="reference")
    truth = values_of(call_in(torch.float64, exact)(), 2)
    errors = () if own else (Exception,) if side in rivals.LIBRARIES else (torch.OutOfMemoryError,)
    with skipped_if_it_fails(side, *errors):
        if own:
            call = call_in(torch.float32, problem.fused, precision=precision)
        else:
            core = rivals.LIBRARIES.get(side) or of_side(side, None, problem.core, device)
            call = call_in(getattr(torch, precision), problem.plain, core=core)
        variant = f"{op}, forward + backward, {rows} rows, {words:,} words"
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
