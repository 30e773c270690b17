"""What a language model says of a sentence: words for a gap, the probability of each token, sentences of its own."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor

from elmo_fast.corpus import Corpus
from elmo_fast.errors import ElmoFastError, check_counts, printable
from elmo_fast.modules import WordEncoder
from elmo_fast.text import Vocabulary, checked_sentences
from elmo_fast.text.vocabulary import MARKERS, UNK_WORD

if TYPE_CHECKING:
    from elmo_fast.pretrain.language_model import LanguageModel

GAP = "___"
"""a token that stands for a word to be found"""
LONGEST = 100
"""tokens of a sentence that the model writes and does not end"""


class Filled(NamedTuple):
    """A word for a gap."""

    word: str
    """one of the vocabulary"""
    probability: float
    """of all words of the vocabulary, 0 to 1"""


class Score(NamedTuple):
    """How likely a token is where it stands."""

    token: str
    """as it was given; the last one, </S>, stands for the sentence's end, and backward for its beginning"""
    forward: float
    """ln of its probability after the tokens before it; nats"""
    backward: float
    """ln of its probability before the tokens after it; nats"""


def fill(model: "LanguageModel", vocabulary: Vocabulary, tokens: Sequence[str], *, topn: int = 5) -> list[list[Filled]]:
    """Return the likeliest words for each gap of a sentence, the likeliest first.

        p(w) ∝ p_forward(w | tokens before) · p_backward(w | tokens after)

    At the end of the sentence p_forward alone: the next word. A gap is unknown to the other gaps.

    Args:
        model: in whatever mode; dropout is off.
        vocabulary: of the model.
        tokens: of one sentence; "___" are the gaps.
        topn: how many words.

    Raises: ElmoFastError: no gap; another vocabulary.
    """
    check_counts(topn=topn)
    gaps = [place for place, token in enumerate(tokens) if token == GAP]
    if not gaps:
        raise ElmoFastError(f'tokens must have a gap, "{GAP}", as in ["The", "{GAP}", "of", "the", "river"]; got none')
    with _reading(model, vocabulary) as read:
        before, after = read([UNK_WORD if token == GAP else token for token in tokens])
        scores = model.loss.log_probabilities(before[gaps])
        inner = [row for row, place in enumerate(gaps) if place < len(tokens) - 1]
        if inner:
            scores[inner] += model.loss.log_probabilities(after[[gaps[row] + 1 for row in inner]])
        scores[:, [vocabulary.bos, vocabulary.eos, vocabulary.unk]] = -torch.inf
        best = scores.softmax(1).topk(min(topn, scores.shape[1] - 3), dim=1)
    rows = zip(best.values.tolist(), best.indices.tolist(), strict=True)
    return [[Filled(vocabulary.words[i], p) for p, i in zip(*row, strict=True)] for row in rows]


def score(model: "LanguageModel", vocabulary: Vocabulary, tokens: Sequence[str]) -> list[Score]:
    """Return how likely each token of a sentence is in both directions, and its two ends; arguments as `fill`'s.

    A token outside the vocabulary is as likely as <UNK>.
    """
    with _reading(model, vocabulary) as read:
        before, after = read(tokens)
        ids = vocabulary.ids(tokens).tolist()
        forward, backward = (
            (-model.loss.exact_losses(hidden, torch.tensor(wanted, device=hidden.device))).tolist()
            for hidden, wanted in ((before, [*ids, vocabulary.eos]), (after, [vocabulary.bos, *ids]))
        )
    names = [*tokens, vocabulary.words[vocabulary.eos]]
    return [Score(*row) for row in zip(names, forward, [*backward[1:], backward[0]], strict=True)]


def sample(
    model: "LanguageModel",
    vocabulary: Vocabulary,
    tokens: Sequence[str] = (),
    *,
    generator: torch.Generator | None = None,
) -> list[str]:
    """Return a sentence that begins with `tokens` and that the forward model goes on with, word by word, to its end.

    generator: of random numbers, on the CPU; None: torch's. <UNK> is never drawn. Other arguments as `fill`'s.
    """
    words = list(tokens)
    with _reading(model, vocabulary) as read:
        while len(words) < LONGEST:
            before, _ = read([*words, UNK_WORD])
            scores = model.loss.log_probabilities(before[len(words)][None])[0].double().cpu()
            scores[[vocabulary.bos, vocabulary.unk]] = -torch.inf
            word = int(torch.multinomial(scores.softmax(0), 1, generator=generator))
            if word == vocabulary.eos:
                break
            words.append(vocabulary.words[word])
    return words


def gap_lines(model: "LanguageModel", corpus: Corpus, count: int = 3) -> list[str]:
    """Return a line for each of some sentences of a text, always the same: its longest word taken out, and put back.

    Of sentences of 4 to 20 words; the word is one of the vocabulary. Other arguments as `fill`'s.
    """
    vocabulary = corpus.vocabulary
    begins, positions = corpus.places(np.arange(corpus.sentences))
    chosen = np.flatnonzero((positions > 4) & (positions <= 21))
    lines = list[str]()
    for index in np.random.default_rng(0).permutation(chosen)[: 10 * count].tolist():
        words = corpus.words(begins[index], positions[index])
        known = [place for place, word in enumerate(words) if word in vocabulary and word not in MARKERS]
        if known and len(lines) < count:
            place = max(known, key=lambda place: len(words[place]))
            gapped = [*words[:place], GAP, *words[place + 1 :]]
            (filled,) = fill(model, vocabulary, gapped, topn=3)
            answers = ", ".join(f"{each.word} {each.probability:.1%}" for each in filled)
            lines.append(printable(f"gap    {' '.join(gapped)}: {answers} (wanted: {words[place]})"))
    return lines


@contextlib.contextmanager
def _reading(
    model: "LanguageModel", vocabulary: Vocabulary
) -> Iterator[Callable[[Sequence[str]], tuple[Tensor, Tensor]]]:
    """Yield the function from T tokens to what predicts them, two tensors [T + 1, D], while dropout is off.

    Row t of the first predicts token t after those before it, its last row the end; row t + 1 of the second predicts
    token t before those after it, its first row the beginning.
    """
    model.check_vocabulary(vocabulary)
    encoder, training = model.bilm.encoder, model.training
    if isinstance(encoder, WordEncoder):
        encoder.vocabulary = vocabulary

    def read(tokens: Sequence[str]) -> tuple[Tensor, Tensor]:
        ids = model.bilm.batch_to_ids(list(checked_sentences([tokens], "tokens")))
        top = model.bilm(ids.to(next(model.parameters()).device), stateful=False)["activations"][-1][0]
        forward, backward = top.chunk(2, dim=1)
        return forward[:-1], backward[1:]

    model.eval()
    try:
        with torch.no_grad():
            yield read
    finally:
        model.train(training)
