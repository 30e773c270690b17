"""Sentences to vectors: the one loop under ElmoEmbedder, TokenVectors, `embed`, neighbours, pictures and the tasks."""

import functools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from elmo_fast import memory
from elmo_fast.errors import ElmoFastError
from elmo_fast.modules.bilm import BiLM
from elmo_fast.modules.layers import Layers, chosen_layers, layer_numbers
from elmo_fast.sizes import size
from elmo_fast.text import batches

Array = np.ndarray[Any, np.dtype[np.float32]]
WINDOW = 16  # batches whose sentences are sorted by length together
UNASKED_BYTES = 1 << 26  # a smaller batch runs without asking how much memory is left


class EmbeddedBatch(NamedTuple):
    """Sentences that ran together: the index of each among all, its tokens, and its vectors."""

    indices: list[int]
    sentences: list[Sequence[str]]
    vectors: list[Array]


def embed_batches(
    bilm: BiLM,
    sentences: Iterable[Sequence[str]],
    layers: Layers = "all",
    *,
    side_by_side: bool = False,
    stateful: bool = False,
    batch_size: int = 64,
    max_tokens: int | None = None,
    window: int | None = None,
    name: Callable[[int], str] = "sentence {}".format,
) -> Iterator[EmbeddedBatch]:
    """Runs a biLM over sentences, batch by batch, and yields the vectors of each batch.

    Args:
        bilm: its own setting of `stateful` is ignored.
        sentences: tokenized, read batch by batch.
        layers: as in layer_numbers; K of them.
        side_by_side: a sentence's vectors are [T, K 2D], in place of [K, T, 2D].
        stateful: each row of a batch starts from its final state in the previous batch, and the order stays;
            otherwise every sentence starts from zeros, and the biLM's carried state is neither used nor changed.
        batch_size: maximum number of sentences in a batch.
        max_tokens: maximum number of tokens in a batch, including padding. A longer sentence runs alone and, without
            carried state, in stretches of that many tokens.
        window: how many batches of sentences are sorted by length together; 0: none; None: 16 without carried state.
        name: what an error calls the sentence of an index.

    Raises: ElmoFastError: a setting out of range, a batch that does not fit into memory.
    """
    if window is None:
        window = 0 if stateful else WINDOW
    device, stretch = next(bilm.parameters()).device, None if stateful else max_tokens
    passed: float = UNASKED_BYTES if device.type == "cpu" else math.inf
    for indices, members in batches(sentences, batch_size=batch_size, max_tokens=max_tokens, window=window):
        passed = max(passed, _checked_bytes(bilm, indices, members, stretch, passed, name))
        # No name here keeps the vectors alive while the next batch runs.
        yield EmbeddedBatch(
            indices,
            members,
            embed_batch(bilm, members, layers, side_by_side=side_by_side, stateful=stateful, stretch=stretch),
        )


def embed_batch(
    bilm: BiLM,
    sentences: Sequence[Sequence[str]],
    layers: Layers = "all",
    *,
    side_by_side: bool = False,
    stateful: bool = False,
    stretch: int | None = None,
) -> list[Array]:
    """The vectors of each sentence, run as one batch; arguments as in embed_batches.

    An empty sentence runs only beside others with carried state, where it keeps its row; its vectors are [K, 0, 2D].

    stretch: a single sentence that is longer runs in stretches of that many tokens.
    """
    keeps_rows = stateful and len(sentences) > 1
    run = [words for words in sentences if keeps_rows or len(words)]
    arrays = _run(bilm, run, layers, stateful, stretch) if run else []
    none = [np.zeros((0, bilm.get_output_dim()), np.float32)] * len(layer_numbers(layers, bilm.num_layers) or [0])
    join: Any = functools.partial(np.concatenate, axis=-1) if side_by_side else np.stack
    rows = zip(*arrays, strict=True)
    found = [next(rows) if keeps_rows or len(words) else none for words in sentences]
    # Joined, and so copied: a view would keep the padding of its batch.
    return [join([layer[: len(words)] for layer in each]) for words, each in zip(sentences, found, strict=True)]


@torch.no_grad()
def _run(
    bilm: BiLM, sentences: Sequence[Sequence[str]], layers: Layers, stateful: bool, stretch: int | None
) -> list[Array]:
    """K arrays [B, T, 2D] on the host."""
    ids = bilm.batch_to_ids(sentences).to(next(bilm.parameters()).device)
    if stretch is not None and len(ids) == 1 and ids.shape[1] > stretch:
        whole = [layer[None] for layer in chosen_layers(long_activations(bilm, ids[0], stretch), layers)]
        return [layer.float().cpu().numpy() for layer in whole]
    chosen = chosen_layers(bilm(ids, stateful=stateful)["activations"], layers)
    # The first and the last position of a sentence are its boundaries.
    return [layer.float().cpu().numpy()[:, 1:] for layer in chosen]


@torch.no_grad()
def long_activations(bilm: BiLM, ids: Tensor, stretch: int) -> list[Tensor]:
    """All layers of one sentence, equal to the BiLM's, in the memory of `stretch` tokens (and of the result).

    The directions are independent, so each carries its own state from stretch to stretch: the forward one from the
    start of the sentence, the backward one from its end.

    Args:
        bilm: its carried state is neither used nor changed.
        ids: of one sentence, as from the BiLM's batch_to_ids: [T, C] int64, or [T] of a model of word ids.
        stretch: how many tokens run at a time, 1 or more.

    Returns: L+1 tensors [T, 2D], lowest first.
    """
    lstm, encoder = bilm._elmo_lstm, bilm.encoder
    markers = encoder.markers.to(ids)
    whole = torch.cat([markers[:1], ids, markers[1:]])
    words = torch.cat([encoder.encode(part) for part in whole.split(stretch)])
    count, width = words.shape
    layers = words.new_empty(lstm.num_layers, 2, count, width)
    state = None
    for start in range(0, count, stretch):
        stop = min(start + stretch, count)
        ahead, back = slice(start, stop), slice(count - stop, count - start)
        outputs, state = lstm.run_layers(words[None, ahead], words[None, back], None, state)
        for layer, output in zip(layers, outputs, strict=True):
            layer[0, ahead], layer[1, back] = output[0, 0], output[1, 0]
    joined = [torch.cat([words, words], dim=-1), *(torch.cat([layer[0], layer[1]], dim=-1) for layer in layers)]
    return [layer[1:-1] for layer in joined]


def _checked_bytes(
    bilm: BiLM,
    indices: Sequence[int],
    sentences: Sequence[Sequence[str]],
    stretch: int | None,
    passed: float,
    name: Callable[[int], str],
) -> int:
    """About how many bytes a batch takes, of which no more than `stretch` tokens of a sentence run at a time.

    Raises ElmoFastError, naming the longest sentence, if that plainly does not fit into the memory left; not asked up
    to `passed`, what an earlier batch took, whose memory is used again.
    """
    lstm, longest = bilm.options.lstm, max(range(len(sentences)), key=lambda i: len(sentences[i]))
    count = len(sentences[longest])
    at_once = count if stretch is None else min(count, stretch)
    # Gates, cells and projections of two directions of one layer, and all layers.
    per_token = 2 * (5 * lstm.dim + lstm.projection_dim) + 4 * (lstm.n_layers + 1) * lstm.projection_dim
    needed = 4 * len(sentences) * (at_once + 2) * per_token
    free = memory.available() if needed > passed else None
    if free is not None and needed > free:
        raise ElmoFastError(
            f"{name(indices[longest])} has {count} tokens, and a batch of {len(sentences)} sentences as long takes "
            f"about {size(needed)} of memory where {size(free)} are left to this process; give max_tokens or a smaller "
            "batch_size, or split the sentence"
        )
    return needed
