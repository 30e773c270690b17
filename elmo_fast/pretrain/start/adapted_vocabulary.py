"""A pretrained model's tables for another vocabulary: known words keep their rows, new ones are drawn."""

import dataclasses
import math
from collections.abc import Mapping

import torch
from torch import Tensor

from elmo_fast.checkpoints import State, bilm_part
from elmo_fast.checkpoints.state import CHAR_EMBEDDING, SOFTMAX_BIAS, SOFTMAX_COUNTS, SOFTMAX_WEIGHT, WORD_EMBEDDING
from elmo_fast.errors import ElmoFastError
from elmo_fast.text import Vocabulary

# Tables of a row per word, and how many rows precede the words: the padding's.
ROWS_OF_WORDS = {SOFTMAX_BIAS: 0, SOFTMAX_WEIGHT: 0, WORD_EMBEDDING: 1}


def adapt_sums(
    sums: Mapping[str, Tensor], old_vocabulary: Vocabulary | None, new_vocabulary: Vocabulary, initial: float
) -> State:
    """AdaGrad's sums for another vocabulary: a word's rows under its new id, `initial` for words that are new.

    sums: by the names of the weights, in their shapes; the tables of ROWS_OF_WORDS are [V, ...], or [V + 1, ...] with
    the padding's row. Returns the same with the new V. Raises ElmoFastError when the old vocabulary is not the tables'.
    """
    adapted = dict(sums)
    for name, extra in ROWS_OF_WORDS.items():
        if name in sums:
            old = check_vocabulary(old_vocabulary, len(sums[name]) - extra)
            here, there = torch.tensor(_shared(old, new_vocabulary), dtype=torch.int64).unbind(1)
            adapted[name] = torch.full((len(new_vocabulary) + extra, *sums[name].shape[1:]), initial)
            adapted[name][here + extra] = sums[name][there + extra]
    return adapted


@dataclasses.dataclass(frozen=True)
class AdaptedRows:
    """What became of the softmax's rows. kept: words of the new vocabulary that had one; new: words that had none;
    dropped: rows of words that the new vocabulary lacks."""

    kept: int
    new: int
    dropped: int

    @property
    def share(self) -> float:
        """The part of the new vocabulary whose rows are kept, 0 to 1."""
        return self.kept / (self.kept + self.new)

    def __str__(self) -> str:
        return (
            f"{self.kept:,} of {self.kept + self.new:,} words ({self.share:.1%}) keep their row of the softmax, "
            f"{self.new:,} are new, {self.dropped:,} rows are dropped"
        )


def adapt_vocabulary(
    model_state: Mapping[str, Tensor],
    old_vocabulary: Vocabulary | None,
    new_vocabulary: Vocabulary,
    seed: int,
    new_bias: float = 0.0,
) -> tuple[State, AdaptedRows]:
    """A state for another vocabulary: the biLM as it is, the softmax's rows under their words' new ids.

    Rows of words that are new are drawn as LanguageModel draws them, from N(0, 1/D), with the bias `new_bias`; a row
    depends on the seed and its id alone. A table of word vectors, which a model of word ids reads, is treated alike
    (drawn as WordEncoder draws). The counts of a loss that has any belong to the old text and are left out.

    model_state: of a checkpoint (names as in elmo_fast.checkpoints); without a softmax, as ELMo is published, all
    words are new; scalar mixes are left out. old_vocabulary: which word each row of its softmax is of; may be None
    where it has no softmax. new_vocabulary: V words.

    Returns (state, report): softmax.weight is [V, D] float32, softmax.bias [V] float32. Raises ElmoFastError when the
    old vocabulary is not the softmax's.
    """
    state = bilm_part(model_state)
    old_weight, old_bias, _ = (
        state.pop(SOFTMAX_WEIGHT, None),
        state.pop(SOFTMAX_BIAS, None),
        state.pop(SOFTMAX_COUNTS, None),
    )
    width = state["_elmo_lstm.forward_layer_0.input_linearity.weight"].shape[1]
    generator = torch.Generator().manual_seed(seed)
    weight = torch.empty(len(new_vocabulary), width).normal_(0, math.sqrt(1 / width), generator=generator)
    bias = torch.full((len(new_vocabulary),), new_bias)
    pairs: list[tuple[int, int]] = []
    if old_weight is not None and old_bias is not None:
        old = check_vocabulary(old_vocabulary, len(old_bias))
        pairs = _shared(old, new_vocabulary)
        here, there = torch.tensor(pairs, dtype=torch.int64).unbind(1)
        weight[here], bias[here] = old_weight.cpu()[there], old_bias.cpu()[there]
    if WORD_EMBEDDING in state and CHAR_EMBEDDING not in state:
        state[WORD_EMBEDDING] = _adapted_words(state[WORD_EMBEDDING].cpu(), old_vocabulary, new_vocabulary, generator)
    report = AdaptedRows(
        kept=len(pairs),
        new=len(new_vocabulary) - len(pairs),
        dropped=(0 if old_bias is None else len(old_bias)) - len({row for _, row in pairs}),
    )
    return {**state, SOFTMAX_WEIGHT: weight, SOFTMAX_BIAS: bias}, report


def _shared(old: Vocabulary, new: Vocabulary) -> list[tuple[int, int]]:
    """(new id, old id) of each word that both vocabularies have."""
    return [(i, old.id(word)) for i, word in enumerate(new.words) if word in old]


def _adapted_words(
    table: Tensor, old_vocabulary: Vocabulary | None, new: Vocabulary, generator: torch.Generator
) -> Tensor:
    """The table of word vectors [V + 1, D] for another vocabulary; row 0 is the padding."""
    old = check_vocabulary(old_vocabulary, len(table) - 1)
    bound = math.sqrt(6 / (len(new) + table.shape[1]))
    made = torch.empty(len(new) + 1, table.shape[1]).uniform_(-bound, bound, generator=generator)
    here, there = torch.tensor(_shared(old, new), dtype=torch.int64).unbind(1)
    made[0], made[here + 1] = 0, table[there + 1]
    return made


def check_vocabulary(vocabulary: Vocabulary | None, rows: int) -> Vocabulary:
    """The vocabulary, which must have as many words as a table has rows. Raises ElmoFastError."""
    if vocabulary is None or len(vocabulary) != rows:
        found = "none" if vocabulary is None else f"one of {len(vocabulary):,}"
        raise ElmoFastError(
            f"init_from: wanted the vocabulary of {rows:,} words that the model was trained with, found {found}; "
            "put it beside the model as vocab.txt"
        )
    return vocabulary
