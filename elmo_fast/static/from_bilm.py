"""Static vectors from a biLM: of a word without context, or the mean over its occurrences in a text."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import torch

from elmo_fast._io.atomic_file import atomic_file, hdf5_written
from elmo_fast.embed.token_vectors import TokenVectors, shared_bilm
from elmo_fast.embed.vector_text import Matrix
from elmo_fast.embed.word_vectors import Vectors
from elmo_fast.errors import ElmoFastError, check_counts, not_a_string
from elmo_fast.modules.bilm import BiLM
from elmo_fast.text import check_sentences, count_words

Model = str | os.PathLike[str] | BiLM


def context_free_vectors(
    model: Model, words: Sequence[str], *, batch_size: int = 1024, progress: Callable[[int], None] | None = None
) -> Vectors:
    """Encode each word without context: [V, D].

    model: a BiLM, or a folder or a name on the hub
    words: distinct words, usually the most frequent first
    batch_size: words encoded together
    progress: called with the number of words just done
    Raises ElmoFastError if a word occurs twice.
    """
    not_a_string(words, "words", "a list of words")
    bilm = model if isinstance(model, BiLM) else shared_bilm(model)
    matrix = np.empty((len(words), bilm.get_output_dim() // 2), np.float32)
    for first, rows in encoded_words(bilm, words, batch_size, progress):
        matrix[first : first + len(rows)] = rows
    return Vectors(list(words), matrix)


@torch.no_grad()
def encoded_words(
    bilm: BiLM, words: Sequence[str], batch_size: int, progress: Callable[[int], None] | None
) -> Iterator[tuple[int, Matrix]]:
    """Yield the start of each batch of words and the encoder's vectors of its words, [n, D]; tell their number then."""
    check_counts(batch_size=batch_size)
    device = next(bilm.parameters()).device
    for first in range(0, len(words), batch_size):
        ids = bilm.batch_to_ids([words[first : first + batch_size]]).to(device)
        rows = bilm.encoder.encode(ids)[0].float().cpu().numpy()
        yield first, rows
        if progress is not None:
            progress(len(rows))


def write_word_vectors(
    bilm: BiLM,
    words: Sequence[str],
    path: str | os.PathLike[str],
    *,
    batch_size: int = 1024,
    progress: Callable[[int], None] | None = None,
) -> None:
    """Write the dataset `embedding` [V, D] of an HDF5 file: the encoder's vector of each word, batch by batch.

    words, batch_size, progress: as in context_free_vectors
    Raises ElmoFastError for a model of word ids, whose vectors are already a table; OSError.
    Source: bilm-tf's dump_token_embeddings.
    """
    if bilm.reads_words or bilm.options.lexicon is not None:
        advice = "use elmo-fast static export, in Python context_free_vectors"
        reads = "word ids" if bilm.reads_words else "lexicons"
        raise ElmoFastError(f"this model reads {reads}, and bilm-tf's file is for models of bytes: {advice}")
    with atomic_file(path) as temporary, hdf5_written(temporary, path) as (file, written):
        dataset = file.create_dataset("embedding", (len(words), bilm.get_output_dim() // 2), np.float32)
        for first, rows in encoded_words(bilm, words, batch_size, progress):
            dataset[first : first + len(rows)] = rows
            written.check()


def averaged_vectors(
    model: Model,
    sentences: Iterable[Sequence[str]],
    layer: int | str = "top",
    *,
    min_count: int = 1,
    max_words: int | None = None,
    batch_size: int | None = None,
    max_tokens: int = 4096,
    progress: Callable[[int], None] | None = None,
) -> Vectors:
    """Average each word's vectors over its occurrences in a text, the most frequent word first: [V, 2D].

    model: a BiLM, or a folder or a name on the hub; every sentence starts from a zero state
    sentences: read twice, so pass a list or another reusable iterable
    layer: "top", "average" (of all layers), "all" (concatenated), or a number from 0
    min_count, max_words: words that occur less often, and all after the first max_words, get no vector
    batch_size, max_tokens: maximum number of sentences (None: as in ElmoEmbedder.embed_file), and of tokens including
        padding, per batch
    progress: called with the number of tokens just done
    Raises ElmoFastError: no such layer; no word is frequent enough; sentences that can be read only once.
    Source: of such means as word vectors: Bommasani et al. 2020, "Interpreting Pretrained Contextualized
    Representations via Reductions to Static Embeddings", ACL.
    """
    check_sentences(sentences)
    if iter(sentences) is sentences:
        what = "a list or another iterable that can be read twice"
        raise ElmoFastError(f"sentences must be {what}; got an iterator; give list(sentences)")
    embed = TokenVectors(model, layer, batch_size=batch_size, max_tokens=max_tokens)
    occurrences = count_words(sentences)
    words = [word for word, count in occurrences.items() if count >= min_count]
    words.sort(key=lambda word: (-occurrences[word], word))
    if not words:
        raise ElmoFastError(f"no word of the text occurs min_count={min_count} times; give a smaller min_count")
    words = words[:max_words]
    index = {word: row for row, word in enumerate(words)}
    sums, counts = np.zeros((len(words), embed.width)), np.zeros(len(words), np.int64)
    for tokens, vectors in zip(sentences, embed(sentences), strict=True):
        rows = np.array([index.get(token, -1) for token in tokens], np.int64)
        np.add.at(sums, rows[rows >= 0], vectors[rows >= 0])
        np.add.at(counts, rows[rows >= 0], 1)
        if progress is not None:
            progress(len(tokens))
    return Vectors(words, (sums / counts[:, None]).astype(np.float32))
