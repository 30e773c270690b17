"""Training, evaluation and embedding at production shapes on a CUDA device that pretends."""

import collections
import functools
import unittest.mock

import numpy as np
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from elmo_fast import ops
from elmo_fast.corpus import DistinctWords, StreamBatch
from elmo_fast.embed import sentence_vectors
from elmo_fast.modules import BiLM
from elmo_fast.ops import _autograd, _graphs, _native, _schemas, _triton, _weights
from elmo_fast.pretrain import step as training_step
from elmo_fast.pretrain.config import ModelConfig
from elmo_fast.pretrain.language_model import LanguageModel, options_of
from elmo_fast.pretrain.optimizer import AdaGrad
from elmo_fast.text.characters import TypeCharacters
from tests.fake_cuda.watch import Watching, calls, differences, facts, tensors_of, torch_launches, trace, waits
from tests.kernels.launch import recording

BATCH, STEPS, VOCABULARY, TYPES, CHARACTERS = 128, 20, 793_471, 5000, 50


def pretend():
    """Replace what a device that pretends cannot say: kind, streams, addresses, initial weights by way of meta."""
    replace(_native, capability=lambda index: (9, 0))
    nothing = dict.fromkeys(("identities", "addresses", "versions"), lambda tensors: None)
    replace(_weights, _stream=lambda tensor: None, **nothing)
    replace(torch.nn.utils, skip_init=lambda kind, *sizes, **options: kind(*sizes, **options))
    streams = {"Event": unittest.mock.MagicMock(), "current_stream": unittest.mock.MagicMock()}
    replace(torch.cuda, is_current_stream_capturing=lambda: False, **streams)
    replace(_graphs, pool_of=functools.lru_cache(_graphs.Pool))


def replace(owner, **values):
    """Replace attributes of a module, class or object until the process ends; AttributeError if one does not exist."""
    unittest.mock.patch.multiple(owner, **values).start()


def whole(*shape, device, kind=torch.int64):
    return torch.empty(shape, dtype=kind, device=device)


def train(device, precision, graph=False):
    """(a step of the original architecture, the results to compare devices of)."""
    model = language_model(device, precision)
    optimizer = AdaGrad(model.parameters())
    spelled, state = TypeCharacters.__new__(TypeCharacters), None
    spelled._codes = whole(TYPES, CHARACTERS, device=device, kind=torch.uint8)
    spelled._ids, spelled.max_characters = whole(256, device=device), CHARACTERS
    places, kind = 2 * BATCH * STEPS, torch.int64
    distinct = DistinctWords(torch.empty(2048, dtype=kind), *(torch.empty(places, dtype=kind) for _ in range(3)))
    windows = (torch.empty(2, BATCH, STEPS, dtype=kind) for _ in range(2))
    batch = StreamBatch(*windows, np.full(BATCH, STEPS, np.int64), BATCH * STEPS, [distinct])
    step = training_step.Step(model, optimizer, spelled.ids, rows=BATCH, clip_norm=10.0, cuda_graph=graph)
    replace(_graphs, enabled=lambda device: graph)
    if graph:
        replace(_graphs, capture=nothing_replayed)

    def once(number):
        nonlocal state
        result = step(batch, state, number)
        state = result.state
        return [result.forward, result.backward, result.gradient_norm, *state, *model.parameters()]

    return once


def nothing_replayed(function, inputs, pool, run_before):
    """A graph of which nothing is seen once it has been captured."""
    return _graphs.Entry(inputs, _graphs.run_pieces(function, *inputs), lambda: None, function)


def replay(device, precision):
    """Train with a graph that is replayed: only the launches that remain outside of it."""
    return train(device, precision, graph=True)


def evaluate(device, precision):
    model = language_model(device, precision).eval()
    spelled, state = whole(TYPES, CHARACTERS, device=device), None
    types, targets = (whole(2, BATCH, STEPS, device=device) for _ in range(2))

    def once(number):
        nonlocal state
        with torch.no_grad():
            hidden, state = model(types, lambda types: spelled[types], state, whole(BATCH, device=device))
            return [model.loss.exact_losses(hidden.flatten(0, 2), targets.flatten(), 32 * 2**20), *state]

    return once


def embed(device, precision):
    with torch.device(device):
        model = BiLM(options_of(ModelConfig(), VOCABULARY), requires_grad=False, precision=precision).eval()
    ids = whole(32, 23, CHARACTERS, device=device)

    def once(number):
        with torch.no_grad():
            actual = model(ids)
            sentence_vectors._to_host(actual["activations"])
        return [*actual["activations"], actual["mask"], *model._elmo_lstm._states]

    return once


def language_model(device, precision):
    with torch.device(device):
        return LanguageModel(options_of(ModelConfig(), VOCABULARY), precision=precision)


def others(device, precision):
    """The ops that none of these uses, forward and backward."""
    layers = [torch.empty(4, 7, 64, device=device, requires_grad=True) for _ in range(3)]
    scalars, gammas = torch.empty(2, 3, device=device, requires_grad=True), torch.empty(2, device=device)
    hidden = torch.empty(300, 64, device=device, requires_grad=True)
    table, bias = (torch.empty(*size, device=device, requires_grad=True) for size in ((5000, 64), (5000,)))
    mask, seed, targets = whole(4, 7, device=device, kind=torch.bool), whole(device=device), whole(300, device=device)
    samples, paths = whole(70, device=device), (whole(n, device=device) for n in (5002, 70_000))
    tree = ops.HuffmanTree(*paths, whole(70_000, device=device, kind=torch.uint8), 20)

    def once(number):
        mixed = [
            ops.scalar_mix(layers, scalars, gammas, statistics_mask=mask, layer_norm=norm, dropout=0.5, seed=seed)
            for norm in (False, True)
        ]
        losses = [
            ops.full_softmax(hidden, targets, table, bias, precision=precision),
            ops.negative_sampling(hidden, targets, table, bias, samples, negatives=5, sparse=True, precision=precision),
            ops.hierarchical_softmax(hidden, targets, table, bias, tree, sparse=True, precision=precision),
        ]
        sum(each.sum() for each in (*mixed, *losses)).backward()
        return [*mixed, *losses, *(each.grad for each in (*layers, scalars, hidden, table, bias))]

    return once


def launched(launches):
    """Return the kernel, arguments and constants of each launch, without tensors' addresses."""
    return [
        (each.kernel.fn.__name__, [[*map(facts, tensors_of(a))] or a for a in each.arguments], each.constants,
         each.options)
        for each in launches
    ]  # fmt: skip


def watched(work, device, precision):
    """Return a report of the host code's last call of one kind of work."""
    differences.clear(), calls.clear()
    before, same = None, False
    with FakeTensorMode(allow_non_fake_inputs=True), recording() as launches:
        once = work(torch.device(device), precision)
        # The first makes copies of weights, the second carries a state, the third is captured where steps are.
        for number in range(5 if work is replay else 4):
            launches.clear(), torch_launches.clear(), waits.clear(), trace.clear()
            with Watching():
                results = once(number)
            now = launched(launches), list(trace)
            before, same = now, now == before
        where = {str(t.device) for t in [*results, *tensors_of([each.arguments for each in launches])]}
        kernels = collections.Counter(each.kernel.fn.__name__ for each in launches)
    return {
        "triton": dict(kernels), "torch": dict(torch_launches), "differences": list(differences),
        "devices": sorted(where), "waits": sorted(set(waits)), "calls": sorted(calls), "same again": same,
    }  # fmt: skip


def wrong(device):
    """Return the error of each of these mistakes in host code."""
    x, answers = torch.empty(3, 4, device=device), {}
    mistakes = {
        "item": lambda: x.sum().item(), "nonzero": x.nonzero, "mask": lambda: x[x > 0], "bool": lambda: bool(x.any()),
        "unique": lambda: x.unique(), "cpu": x.cpu, "copy": lambda: torch.empty(3, 4).copy_(x),
        "to": lambda: torch.ones(3).to(device), "tolist": lambda: x.sum().tolist(), "nothing": lambda: x + 1,
    }  # fmt: skip
    for name, mistake in mistakes.items():
        waits.clear()
        try:
            with Watching():
                mistake()
            answers[name] = "listed" if waits else "unseen"
        except Exception as error:  # noqa: BLE001 (whatever stops it is the answer)
            answers[name] = type(error).__name__
    differences.clear()
    _schemas.LIBRARY.define("two_rows(Tensor x) -> Tensor")
    _triton.implement("two_rows", lambda a: a.x.t())
    _autograd.describe("two_rows", lambda a: a.x.new_empty(4, 3))
    _schemas.overload("two_rows")(x)
    answers["fake"] = "listed" if differences else "unseen"
    return answers


def all_works(device, precision):
    """Return the reports of all works, the ops, and the errors of the mistakes."""
    pretend()
    actual = {work.__name__: watched(work, device, precision) for work in (train, replay, evaluate, embed, others)}
    with FakeTensorMode(allow_non_fake_inputs=True):
        return actual | {"ops": sorted(_triton._undispatched), "wrong": wrong(device)}
