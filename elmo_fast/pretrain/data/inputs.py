"""The input of a model: characters of a word, or its number in the vocabulary, whose vector may come from a file."""

from collections.abc import Callable

import torch
from torch import Tensor

from elmo_fast.checkpoints import ElmoOptions
from elmo_fast.corpus import Corpus
from elmo_fast.errors import ElmoFastError
from elmo_fast.modules import WordEncoder
from elmo_fast.pretrain.language_model import LanguageModel
from elmo_fast.text import Vocabulary


def make_input_reader(options: ElmoOptions, corpus: Corpus, device: torch.device | str) -> Callable[[Tensor], Tensor]:
    """From numbers of the corpus' words to what the model's encoder reads: character ids, or word ids + 1.

    Of a model of word ids, words outside the vocabulary are read as <UNK>.
    """
    if options.char_cnn is not None:
        return corpus.types.characters(options.char_cnn.max_characters_per_token, device=device).ids
    size, unknown = len(corpus.vocabulary), corpus.vocabulary.unk

    def word_ids(types: Tensor) -> Tensor:
        return types.masked_fill(types >= size, unknown) + 1

    return word_ids


def trained_embedding(model: LanguageModel) -> torch.nn.Parameter | None:
    """The trained table of word vectors, exchanged and updated row by row; None if the model has none."""
    encoder = model.bilm.encoder
    return encoder.weight if isinstance(encoder, WordEncoder) and encoder.weight.requires_grad else None


@torch.no_grad()
def load_word_vectors(
    model: LanguageModel, vocabulary: Vocabulary, path: str, *, seed: int, report: Callable[[str], None]
) -> None:
    """Makes a file's vectors the table of a model of word ids.

    Words that the file lacks are drawn from N(0, s²), s² the variance of the numbers found, and counted in the report.

    Raises ElmoFastError when the file's vectors are not projection_dim wide, or it has none of the words.
    """
    from elmo_fast.static.vectors import load_vectors

    encoder = model.bilm.encoder
    assert isinstance(encoder, WordEncoder)
    vectors = load_vectors(path)
    width = vectors.matrix.shape[1]
    if width != encoder.output_dim:
        raise ElmoFastError(
            f"vectors_file {path}: wanted vectors of projection_dim={encoder.output_dim} numbers, found {width}; give "
            f"projection_dim {width}, or vectors of another width"
        )
    pairs = [(row, vectors.index[word]) for row, word in enumerate(vocabulary.words, 1) if word in vectors.index]
    if not pairs:
        raise ElmoFastError(
            f"vectors_file {path}: wanted vectors of the vocabulary's {len(vocabulary):,} words, found none; give a "
            "file of the same language and spelling"
        )
    here, there = torch.tensor(pairs).unbind(1)
    found = torch.from_numpy(vectors.matrix)[there]
    spread = float(found.double().std(correction=0))
    generator = torch.Generator().manual_seed(seed)
    table = torch.empty(len(vocabulary) + 1, width).normal_(0, spread, generator=generator)
    table[0], table[here] = 0, found
    encoder.weight.copy_(table)
    report(
        f"input  {len(pairs):,} of {len(vocabulary):,} words have a vector in {path}; {len(vocabulary) - len(pairs):,} "
        f"have none and are drawn from N(0, {spread:.3g}²); "
        + ("all are trained" if encoder.weight.requires_grad else "none is trained")
    )
