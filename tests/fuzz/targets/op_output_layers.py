"""full_softmax, sampled_softmax, negative_sampling, hierarchical_softmax: any rows, widths, words and chunks."""

import random

import torch

from elmo_fast import ops
from tests.fuzz.tensors import compare, floating, kind, numbers, precision, size, threads, whole


def case(rng: random.Random) -> None:
    threads(rng)
    op = rng.choice(("full_softmax", "sampled_softmax", "negative_sampling", "hierarchical_softmax"))
    rows, width, words = size(rng, 60), size(rng), size(rng, 100, zero=rng.random() < 0.1)
    dtype, values = floating(rng, op), kind(rng)
    inner = words - 1 if op == "hierarchical_softmax" else words
    tensors = [
        numbers(rng, shape, values, dtype=dtype) for shape in ((rows, width), (max(inner, 0), width), (max(inner, 0),))
    ]
    targets = whole(rng, (rows,), words)
    if rng.random() < 0.03:
        targets = targets + rng.choice((-1, words, 2**40))
    options: dict = {} if op == "hierarchical_softmax" else {"chunk_bytes": rng.choice((32 << 20, 1, 64, 1000, 5000))}
    if op != "full_softmax":
        options["sparse"] = rng.random() < 0.4
    more = _more(op, rng, max(words, 1), options)

    def call(t, backend, precision):
        how = {name: x.to(t[0].dtype) if torch.is_tensor(x) else x for name, x in options.items()}
        yield getattr(ops, op)(t[0], targets, t[1], t[2], *more, precision=precision, backend=backend, **how)

    compare(op, call, tensors, rng, precision=precision(rng, op, dtype), cancelling=_cancelling(*tensors))


def _cancelling(hidden, rows, offsets):
    """A loss is a difference of logits. Its gradients are sums of (p - target) times the other factor; a p errs as its
    logit is large."""
    sizes = [tensor.double().abs().nan_to_num(0, 0, 0) for tensor in (hidden, rows, offsets)]
    if not all(tensor.numel() for tensor in sizes):
        return {}
    logit = 1 + float((sizes[0] @ sizes[1].T + sizes[2]).max())
    terms = [logit * float(sizes[1].max()), logit * float(sizes[0].max()), logit]
    return {"output 0": logit} | {f"gradient of tensor {i}": each for i, each in enumerate(terms)}


def _more(op, rng, words, options):
    """Return an op's arguments after its table; options of its own are added."""
    if op == "sampled_softmax":
        count = min(size(rng, 30, zero=False), words)
        sample = ops.log_uniform_sample(count, words, seed=rng.getrandbits(30))
        options["correction"] = rng.choice(("tensorflow", "allennlp", "allennlp-0.9"))
        return sample
    if op == "negative_sampling":
        samples = whole(rng, (size(rng, 30),), words)
        options["negatives"] = rng.choice((None, 5, 0.5))
        if rng.random() < 0.4:
            options["log_noise"] = torch.full((words,), -2.0)
        return (samples,)
    if op == "hierarchical_softmax":
        return (ops.huffman_tree(whole(rng, (words,), rng.choice((2, 1000, 2**40))).contiguous()),)
    return ()
