"""What a language model says of a sentence: words for a gap, the probability of each token, sentences of its own."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from elmo_fast.checkpoints import ElmoOptions
from elmo_fast.corpus import Corpus
from elmo_fast.errors import ElmoFastError, check_counts, printable
from elmo_fast.modules import BiLM, WordEncoder
from elmo_fast.modules.losses import VocabularyLoss
from elmo_fast.text import Vocabulary, checked_sentences
from elmo_fast.text.vocabulary import MARKERS, UNK_WORD

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


class SentencePredictions(nn.Module):
    """What a language model says of sentences, tokenized; dropout is off meanwhile.

    options, bilm, loss: of the model; vocabulary: the words of its softmax. Where it is None, because vocab.txt was not
    beside the model's files, each method raises ElmoFastError.
    """

    options: ElmoOptions
    bilm: BiLM
    loss: VocabularyLoss
    vocabulary: Vocabulary | None = None

    def fill(self, tokens: Sequence[str], *, topn: int = 5) -> list[list[Filled]]:
        """Return the likeliest words for each gap, "___", of a sentence, the likeliest first.

            p(w) ∝ p_forward(w | tokens before) · p_backward(w | tokens after)

        At the end of the sentence p_forward alone: the next word. To one gap, the others are <UNK>.

        topn: how many words for a gap. Raises ElmoFastError where there is no gap.
        """
        check_counts(topn=topn)
        gaps = [place for place, token in enumerate(tokens) if token == GAP]
        if not gaps:
            raise ElmoFastError(f'tokens must have a gap, "{GAP}", as in ["The", "{GAP}", "of", "the", "river"]')
        with self._reading() as (vocabulary, read):
            before, after = read([UNK_WORD if token == GAP else token for token in tokens])
            scores = self.loss.log_probabilities(before[gaps])
            inner = [row for row, place in enumerate(gaps) if place < len(tokens) - 1]
            if inner:
                scores[inner] += self.loss.log_probabilities(after[[gaps[row] + 1 for row in inner]])
            scores[:, [vocabulary.bos, vocabulary.eos, vocabulary.unk]] = -torch.inf
            best = scores.softmax(1).topk(min(topn, scores.shape[1] - len(MARKERS)), dim=1)
        rows = zip(best.values.tolist(), best.indices.tolist(), strict=True)
        return [[Filled(vocabulary.words[i], p) for p, i in zip(*row, strict=True)] for row in rows]

    def score(self, tokens: Sequence[str]) -> list[Score]:
        """Return ln p of each token of a sentence in both directions, and of its ends.

        A token outside the vocabulary is as likely as <UNK>.
        """
        with self._reading() as (vocabulary, read):
            before, after = read(tokens)
            ids = vocabulary.ids(tokens).tolist()
            forward, backward = (
                (-self.loss.exact_losses(hidden, torch.tensor(wanted, device=hidden.device))).tolist()
                for hidden, wanted in ((before, [*ids, vocabulary.eos]), (after, [vocabulary.bos, *ids]))
            )
        names = [*tokens, vocabulary.words[vocabulary.eos]]
        return [Score(*row) for row in zip(names, forward, [*backward[1:], backward[0]], strict=True)]

    def sample(self, tokens: Sequence[str] = (), *, generator: torch.Generator | None = None) -> list[str]:
        """Return a sentence that begins with `tokens` and that the forward direction goes on with, to its end.

        generator: of random numbers, on the CPU; None: torch's. <UNK> is never drawn.
        """
        words = list(tokens)
        with self._reading() as (vocabulary, read):
            while len(words) < LONGEST:
                before, _ = read([*words, UNK_WORD])
                scores = self.loss.log_probabilities(before[len(words)][None])[0].double().cpu()
                scores[[vocabulary.bos, vocabulary.unk]] = -torch.inf
                word = int(torch.multinomial(scores.softmax(0), 1, generator=generator))
                if word == vocabulary.eos:
                    break
                words.append(vocabulary.words[word])
        return words

    @contextlib.contextmanager
    def _reading(self) -> Iterator[tuple[Vocabulary, Callable[[Sequence[str]], tuple[Tensor, Tensor]]]]:
        """Yield the vocabulary, and the function from T tokens to what predicts them, two tensors [T + 1, D].

        Row t of the first predicts token t after those before it, its last row the end; row t + 1 of the second
        predicts token t before those after it, its first row the beginning.
        """
        if self.vocabulary is None:
            raise ElmoFastError(
                "the words of this model's softmax are unknown: keep vocab.txt beside its files, or set "
                "model.vocabulary = Vocabulary.read(FILE)"
            )
        self.vocabulary.check(self.options.n_tokens_vocab or 0, self.options.vocabulary_sha256)
        encoder, training = self.bilm.encoder, self.training
        if isinstance(encoder, WordEncoder):
            encoder.vocabulary = self.vocabulary

        def read(tokens: Sequence[str]) -> tuple[Tensor, Tensor]:
            ids = self.bilm.batch_to_ids(list(checked_sentences([tokens], "tokens")))
            top = self.bilm(ids.to(next(self.parameters()).device), stateful=False)["activations"][-1][0]
            forward, backward = top.chunk(2, dim=1)
            return forward[:-1], backward[1:]

        self.eval()
        try:
            with torch.no_grad():
                yield self.vocabulary, read
        finally:
            self.train(training)


def gap_lines(model: SentencePredictions, corpus: Corpus, count: int = 3) -> list[str]:
    """Return a line for each of some sentences of a text, always the same: its longest word taken out, and put back.

    Of sentences of 4 to 20 words; the word is one of the vocabulary.
    """
    begins, positions = corpus.places(np.arange(corpus.sentences))
    chosen = np.flatnonzero((positions > 4) & (positions <= 21))
    lines, model.vocabulary = list[str](), corpus.vocabulary
    for index in np.random.default_rng(0).permutation(chosen)[: 10 * count].tolist():
        words = corpus.words(begins[index], positions[index])
        known = [place for place, word in enumerate(words) if word in corpus.vocabulary and word not in MARKERS]
        if known and len(lines) < count:
            place = max(known, key=lambda place: len(words[place]))
            gapped = [*words[:place], GAP, *words[place + 1 :]]
            answers = ", ".join(f"{each.word} {each.probability:.1%}" for each in model.fill(gapped, topn=3)[0])
            lines.append(printable(f"gap    {' '.join(gapped)}: {answers} (wanted: {words[place]})"))
    return lines
