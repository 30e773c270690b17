"""Sentences to vectors: the one loop under ElmoEmbedder, TokenVectors, `embed`, neighbours, pictures and the tasks."""

import contextlib
import functools
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from elmo_fast._runtime.devices import to_device_together, to_host
from elmo_fast._runtime.progress import Progress
from elmo_fast._runtime.threads import BackgroundThreads, prefetch
from elmo_fast.embed.layers import Layers, chosen_layers
from elmo_fast.errors import check_counts
from elmo_fast.modules._graph_replay import padded_words
from elmo_fast.modules.bilm import BiLM
from elmo_fast.modules.character_encoder import CharacterEncoder
from elmo_fast.ops._packed import owned_weights
from elmo_fast.ops._precision import autocast_of_caller

Array = np.ndarray[Any, np.dtype[np.float32]]
WINDOW = 16  # batches whose sentences are sorted by length together
BATCH_SIZE = 64
GPU_BATCH_SIZE = 1024  # enough rows that a step of an LSTM's time loop keeps it busy
MOST_TOKENS = 16_384  # in a batch without carried state: 3 GB of the original's layers and gates
GROUP = 2  # threads that run a batch together: one for each direction


class SentenceBatch(NamedTuple):
    """Sentences that run together, and the position of each in the text."""

    indices: list[int]
    sentences: list[Sequence[str]]


def batches(
    sentences: Iterable[Sequence[str]],
    *,
    batch_size: int = 64,
    max_tokens: int | None = None,
    window: int = 0,
    padded: Callable[[int], int] | None = None,
) -> Iterator[SentenceBatch]:
    """Split a stream of sentences into batches.

    batch_size: maximum number of sentences in a batch
    max_tokens: maximum number of tokens in a batch, including padding (sentences x longest); a longer sentence is a
        batch of its own
    padded: the number of tokens, padding included, with which a batch runs whose longest sentence has so many; None:
        so many
    window: how many batches of sentences are sorted by length, longest first, before they are split; 0 keeps the order
        of the text, which a model that carries its state from batch to batch needs
    """
    check_counts(batch_size=batch_size, max_tokens=max_tokens)
    numbered = enumerate(sentences)
    windows: Iterable[Iterable[tuple[int, Sequence[str]]]] = [numbered]
    if window:
        most = min(window * batch_size, sys.maxsize)
        windows = iter(lambda: list(islice(numbered, most)), [])
    for each in windows:
        batch, longest = SentenceBatch([], []), 0
        for index, sentence in sorted(each, key=lambda pair: -len(pair[1])) if window else each:
            length = len(sentence) if padded is None else padded(len(sentence))
            longest = max(longest, length)
            count = len(batch.indices)
            if count and (count == batch_size or (max_tokens is not None and (count + 1) * longest > max_tokens)):
                yield batch
                batch, longest = SentenceBatch([], []), length
            batch.indices.append(index)
            batch.sentences.append(sentence)
        if batch.indices:
            yield batch


class LayerBatch(NamedTuple):
    """Sentences that ran together: the index of each among all, its tokens, and the chosen layers of the batch.

    layers: returns K arrays [B, T, 2D] on the host. Layers that are joined late are computed on the thread that asks.
    """

    indices: list[int]
    sentences: Sequence[Sequence[str]]
    layers: Callable[[], list[Array]]

    def vectors(self, side_by_side: bool = False) -> list[Array]:
        """Return the vectors of each sentence, [K, T, 2D] or, side by side, [T, K 2D]."""
        join: Any = functools.partial(np.concatenate, axis=-1) if side_by_side else np.stack
        layers = self.layers()
        # Joined, and so copied: a view would keep the padding of its batch.
        return [join([layer[row, : len(words)] for layer in layers]) for row, words in enumerate(self.sentences)]


def run_batches(
    bilm: BiLM,
    sentences: Iterable[Sequence[str]],
    layers: Layers = "all",
    *,
    stateful: bool = False,
    batch_size: int | None = None,
    max_tokens: int | None = None,
    window: int | None = None,
    background: Executor | None = None,
) -> Iterator[LayerBatch]:
    """Run a biLM over sentences, batch by batch, and yield the layers of each batch.

    The call owns the biLM until its last batch: it caches words' vectors, so weights and settings must not change
    meanwhile. All batches run under the autocast in which the first was asked for.

    Args:
        bilm: its own setting of `stateful` is ignored.
        sentences: tokenized, read batch by batch.
        layers: as in layer_numbers; K of them.
        stateful: each row of a batch starts from its final state in the previous batch, and the order stays;
            otherwise every sentence starts from zeros, and the biLM's carried state is neither used nor changed.
        batch_size, max_tokens: as in ElmoEmbedder.embed_file; an LSTM that is joined runs a longer sentence whole.
        window: how many batches of sentences are sorted by length together; 0: none; None: 16 without carried state.
        background: threads that work while a batch runs: they prepare the next one (ids and, on the CPU, the words'
            vectors); without carried state each two of torch's threads run a batch of their own. None: sentences are
            read no further than the batch that runs.

    Raises: ElmoFastError: a setting out of range.
    """
    device = next(bilm.parameters()).device
    if window is None:
        window = 0 if stateful else WINDOW
    if batch_size is None:
        batch_size = BATCH_SIZE if device.type == "cpu" or stateful else GPU_BATCH_SIZE
    if max_tokens is None and not stateful:
        max_tokens = MOST_TOKENS
    overlaps = device.type == "cpu" and background is not None
    groups = max(1, torch.get_num_threads() // GROUP) if overlaps and not stateful else 1
    chunk = max_tokens if bilm.runs_in_chunks and bilm.runs_in_parts and not stateful else None
    runner = _Runner(bilm, layers, stateful, chunk or sys.maxsize)
    padded = padded_words if bilm.cuda_graphs and device.type == "cuda" else None
    parts = batches(sentences, batch_size=batch_size, max_tokens=max_tokens, window=window, padded=padded)
    if groups > 1:
        with BackgroundThreads(groups, torch.get_num_threads() // groups) as threads:
            yield from prefetch(threads, lambda batch: runner.run(runner.prepare(batch)), parts, depth=groups)
    else:
        yield from map(runner.run, prefetch(background, runner.prepare, parts))


# A batch that is ready to run; its ids, as `BiLM.batch_to_ids` or `CharacterEncoder.distinct` returns them, none where
# nothing is to run; the words' vectors and their mask, if they are computed already.
_Prepared = tuple[SentenceBatch, tuple[Tensor, ...], tuple[Tensor, Tensor] | None]


class _Runner:
    """Runs a biLM over batches in two steps, of which the first may overlap with the second of the batch before.

    chunk: how many tokens of a long sentence, which is alone in its batch, run at a time; layers, stateful: as in
    run_batches.
    """

    def __init__(self, bilm: BiLM, layers: Layers, stateful: bool, chunk: int) -> None:
        self.bilm, self.layers, self.stateful, self.chunk = bilm, layers, stateful, chunk
        self.device, self.in_parts = next(bilm.parameters()).device, bilm.runs_in_parts
        self.cache, self.autocast, self.call = bilm.encoder.new_cache(), autocast_of_caller(self.device), object()

    @torch.no_grad()
    def prepare(self, batch: SentenceBatch) -> _Prepared:
        bilm, encoder, sentences = self.bilm, self.bilm.encoder, batch.sentences
        # Of several, an empty sentence keeps its row of the state.
        if not any(map(len, sentences)) and not (self.stateful and len(sentences) > 1):
            return batch, (), None
        if not self.in_parts or len(sentences[0]) > self.chunk:
            return batch, (bilm.batch_to_ids(sentences),), None
        ids: tuple[Tensor, ...]
        encode: Any  # mypy knows no call with one of several numbers of arguments
        if isinstance(encoder, CharacterEncoder) and encoder.unique_words:
            ids, encode = encoder.distinct(sentences), encoder.forward_distinct
        else:
            ids, encode = (bilm.batch_to_ids(sentences),), bilm.context_free
        if self.device.type != "cpu":
            return batch, ids, None
        with self.autocast(), owned_weights(self.call):
            return batch, ids, encode(*ids, cache=self.cache)

    @torch.no_grad()
    def run(self, prepared: _Prepared) -> LayerBatch:
        bilm, (batch, ids, encoded) = self.bilm, prepared
        with self.autocast(), owned_weights(self.call):
            if not ids:
                empty = torch.zeros(len(batch.sentences), 0, bilm.get_output_dim(), device="cpu")
                ready = self._ready([empty] * bilm.num_layers, 0)
            elif encoded is not None:
                words, mask = encoded
                outputs = bilm.lstm(words, mask, stateful=self.stateful)
                # By the thread that asks for the layers.
                ready = lambda: self._ready(bilm.activations(words, mask, outputs))()  # noqa: E731
            else:
                here = to_device_together(ids, self.device)
                if len(batch.sentences[0]) > self.chunk:
                    ready = self._ready([layer[None] for layer in long_activations(bilm, here[0][0], self.chunk)], 0)
                elif len(here) > 1:
                    ready = self._ready(bilm.forward_distinct(*here, stateful=self.stateful))
                else:
                    ready = self._ready(bilm(*here, stateful=self.stateful)["activations"])
        return LayerBatch(batch.indices, batch.sentences, ready)

    def _ready(self, activations: Sequence[Tensor], begin: int = 1) -> Callable[[], list[Array]]:
        """Begin to copy the chosen layers to the host; the call returned waits for the copy and gives them as arrays.

        begin: the first token, which follows the begin marker. `LayerBatch.vectors` cuts at the length, and so the end
        marker.
        """
        layers = [layer[:, begin:] for layer in chosen_layers(activations, self.layers)]
        if layers[0].device.type == "cpu":
            return functools.partial(list, [layer.float().numpy() for layer in layers])
        copied = to_host(torch.stack(layers).float())  # one copy for all of them
        return lambda: list(copied().numpy())


def write_vectors(
    bilm: BiLM,
    sentences: Iterable[Sequence[str]],
    write: Callable[[int, Array], None],
    layers: Layers = "all",
    *,
    side_by_side: bool = False,
    total: int,
    progress: Progress | None = None,
    **settings: Any,
) -> None:
    """Call `write` with each sentence's index and vectors, in any order, while the next batch runs.

    side_by_side: as in LayerBatch.vectors; total: number of all tokens; progress: called after each batch with the
    tokens done and the total; settings: of run_batches. Raises: ElmoFastError, and what `write` raises.
    """
    done = 0

    def write_batch(batch: LayerBatch) -> int:
        for index, vectors in zip(batch.indices, batch.vectors(side_by_side), strict=True):
            write(index, vectors)
        return sum(map(len, batch.sentences))

    with BackgroundThreads() if torch.get_num_threads() > 1 else contextlib.nullcontext() as background:
        runs = run_batches(bilm, sentences, layers, background=background, **settings)
        for tokens in prefetch(background, write_batch, runs):
            done += tokens
            if progress is not None:
                progress(done, total)


@torch.no_grad()
def long_activations(bilm: BiLM, ids: Tensor, chunk: int) -> list[Tensor]:
    """All layers of one sentence, equal to the BiLM's, in the memory of `chunk` tokens (and of the result).

    The directions are independent, so each carries its own state from chunk to chunk: the forward one from the
    start of the sentence, the backward one from its end.

    Args:
        bilm: one that runs in chunks; its carried state is neither used nor changed.
        ids: of one sentence, as from the BiLM's batch_to_ids: [T, C] int64, or [T] of a model of word ids.
        chunk: how many tokens run at a time, 1 or more.

    Returns: L+1 tensors [T, 2D], lowest first.
    """
    lstm, encoder = bilm.separate_lstm, bilm.encoder
    markers = encoder.markers.to(ids)
    whole = torch.cat([markers[:1], ids, markers[1:]])
    words = torch.cat([encoder.encode(part) for part in whole.split(chunk)])
    count, width = words.shape
    layers = words.new_empty(lstm.num_layers, 2, count, width)
    state = None
    for start in range(0, count, chunk):
        stop = min(start + chunk, count)
        ahead, back = slice(start, stop), slice(count - stop, count - start)
        outputs, state = lstm.run_layers(words[None, ahead], words[None, back], None, state)
        for layer, output in zip(layers, outputs, strict=True):
            layer[0, ahead], layer[1, back] = output[0, 0], output[1, 0]
    joined = [torch.cat([words, words], dim=-1), *(torch.cat([layer[0], layer[1]], dim=-1) for layer in layers)]
    return [layer[1:-1] for layer in joined]
