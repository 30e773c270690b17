"""How often each word of a text is a target: negative sampling and hierarchical softmax need these counts."""

import torch
from torch import Tensor

from elmo_fast.corpus import Corpus


def target_counts(corpus: Corpus) -> Tensor:
    """How often each word of the vocabulary is a target in an epoch, at least 1, [V] float32.

    A sentence's end is </S> forward and <S> backward; words outside the vocabulary are <UNK>. float32, as checkpoints
    keep it, so that what was trained with is what is read back: counts above 2^24 are rounded to 24 bits.
    """
    vocabulary = corpus.vocabulary
    counts = torch.from_numpy(corpus.counts.astype("int64"))
    words = counts[: len(vocabulary)].clone()
    words[vocabulary.unk] += counts[len(vocabulary) :].sum()
    words[vocabulary.eos] += corpus.sentences
    words[vocabulary.bos] += corpus.sentences
    return words.clamp(min=1).float()
