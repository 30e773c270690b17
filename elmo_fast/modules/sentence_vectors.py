"""Sentences to vectors: the one loop under ElmoEmbedder, TokenVectors, `embed`, neighbours, pictures and the tasks."""

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from elmo_fast.modules.bilm import BiLM
from elmo_fast.modules.layers import Layers, chosen_layers, layer_numbers
from elmo_fast.modules.long_sentences import long_activations
from elmo_fast.modules.memory_check import MemoryCheck
from elmo_fast.text import batches

Array = np.ndarray[Any, np.dtype[np.float32]]
WINDOW = 16  # batches whose sentences are sorted by length together


class EmbeddedBatch(NamedTuple):
    """Sentences that ran together: where each stands among all, its tokens, and its vectors."""

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
        bilm: its own setting of `stateful` does not count.
        sentences: tokenised, read as the batches need them.
        layers: as layer_numbers'; K of them.
        side_by_side: a sentence's vectors are [T, K 2D], in place of [K, T, 2D].
        stateful: each row of a batch starts from the state in which the row before it ended, and the order stays;
            otherwise every sentence starts from zeros, and the biLM's carried state is neither used nor changed.
        batch_size: most sentences in a batch.
        max_tokens: most tokens in a batch, padding counted. A longer sentence runs alone, without carried state in
            stretches of so many tokens.
        window: batches' worth of sentences that are sorted by length together; 0: none. None: 16 without carried state.
        name: what an error calls the sentence of an index.

    Raises: ElmoFastError: a setting out of range, a batch that does not fit into memory.
    """
    if window is None:
        window = 0 if stateful else WINDOW
    device, stretch = next(bilm.parameters()).device, None if stateful else max_tokens
    check_memory = MemoryCheck(bilm.options, name) if device.type == "cpu" else None
    for indices, members in batches(sentences, batch_size=batch_size, max_tokens=max_tokens, window=window):
        if check_memory is not None:
            check_memory(indices, members, stretch)
        vectors = embed_batch(bilm, members, layers, side_by_side=side_by_side, stateful=stateful, stretch=stretch)
        yield EmbeddedBatch(indices, members, vectors)


def embed_batch(
    bilm: BiLM,
    sentences: Sequence[Sequence[str]],
    layers: Layers = "all",
    *,
    side_by_side: bool = False,
    stateful: bool = False,
    stretch: int | None = None,
) -> list[Array]:
    """The vectors of each sentence, run as one batch; arguments as embed_batches'.

    An empty sentence runs only beside others with carried state, where it keeps its row; its vectors are [K, 0, 2D].

    stretch: a single sentence that is longer runs in stretches of so many tokens.
    """
    keeps_rows = stateful and len(sentences) > 1
    run = [words for words in sentences if keeps_rows or len(words)]
    arrays = _run(bilm, run, layers, stateful, stretch) if run else []
    none = [np.zeros((0, bilm.get_output_dim()), np.float32)] * len(layer_numbers(layers, bilm.num_layers) or [0])
    join: Any = functools.partial(np.concatenate, axis=-1) if side_by_side else np.stack
    found, row = list[Array](), 0
    for words in sentences:
        if keeps_rows or len(words):
            # A copy: a view would keep the padding of its batch.
            found.append(join([array[row, : len(words)] for array in arrays]))
            row += 1
        else:
            found.append(join(none))
    return found


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
