"""Nearest neighbours of ambiguous words: one list by static vectors, one per use by the biLM (the paper's table 4)."""

import itertools
from collections import Counter
from collections.abc import Sequence

from elmo_fast.errors import ElmoFastError
from elmo_fast.modules import ElmoEmbedder
from elmo_fast.report.ambiguous import Token, ambiguous, occurrences, two_senses
from elmo_fast.report.settings import ReportSettings
from elmo_fast.report.tables import table
from elmo_fast.static.neighbours import nearest_words
from elmo_fast.static.vectors import Vectors, load_vectors
from elmo_fast.tasks import Example
from elmo_fast.tokens import TextTokens

WORDS, ASKED, TOKENS, CLOSEST, CONTEXT = 5, 20, 20, 10, 5
SHOWN = 4


class ContextualText(TextTokens):
    """The tokens of labelled sentences, by the top layer of a biLM.

    examples: the sentences with their tags; embedder: the biLM, without carried state.
    """

    def __init__(self, examples: Sequence[Example], embedder: ElmoEmbedder) -> None:
        super().__init__(embedder, [example.words for example in examples])
        self.examples = examples

    def token(self, index: int) -> Token:
        """The token whose vector is at `index`."""
        sentence, place = self.where(index)
        return Token(sentence, place, self.examples[sentence].labels[place])

    def nearest_elsewhere(self, tokens: Sequence[Token], topn: int) -> list[list[Token]]:
        """For each token, the `topn` nearest in other sentences, nearest first."""
        places = [self.index(token.sentence, token.place) for token in tokens]
        longest = max(len(self.examples[token.sentence].words) for token in tokens)
        rows = self.nearest(self.vectors[places] + self.mean, topn + longest).rows
        found = []
        for token, row in zip(tokens, rows, strict=True):
            others = (other for other in map(self.token, row.tolist()) if other.sentence != token.sentence)
            found.append(list(itertools.islice(others, topn)))
        return found

    def shown(self, token: Token) -> str:
        """The token in bold among its neighbours in the sentence, and its tag."""
        words = self.examples[token.sentence].words
        before = words[max(0, token.place - CONTEXT) : token.place]
        after = words[token.place + 1 : token.place + 1 + CONTEXT]
        text = " ".join([*before, f"**{words[token.place]}**", *after]).replace("|", "\\|")
        return f"{text} ({token.tag})"


def words_asked(examples: Sequence[Example], settings: ReportSettings) -> list[str]:
    """The words of the settings in lower case or, if there are none, the most ambiguous words of the text.

    Raises ElmoFastError for a word that does not occur in the sentences that are searched.
    """
    found = occurrences(examples[: settings.neighbour_text])
    words = [word.lower() for word in settings.words] or ambiguous(found, WORDS)
    for word in words:
        if word not in found:
            raise ElmoFastError(
                f"--words: {word!r} does not occur in the first {settings.neighbour_text} sentences of the labelled "
                "training text (--neighbour_text)"
            )
    return words


def neighbours(examples: Sequence[Example], model: str, settings: ReportSettings) -> str:
    """The section's Markdown: a table of neighbours, and how often the nearest tokens have the query's tag."""
    words = words_asked(examples, settings)
    examples = examples[: settings.neighbour_text]
    found = occurrences(examples)
    if not words:
        return "No word of the text has two tags, each at least five times, so there is nothing to compare."
    text = ContextualText(examples, ElmoEmbedder.from_pretrained(model, stateful=False))
    static = load_vectors(settings.vectors) if settings.vectors else None
    rows = []
    for word in words:
        asked = []
        if static is not None:
            asked.append(["static vectors", ", ".join(_words_near(word, static, SHOWN * 2)) or "not among them"])
        senses = two_senses(word, found, examples)
        for token, near in zip(senses, text.nearest_elsewhere(senses, 3 * SHOWN), strict=True):
            different = list(dict.fromkeys(map(text.shown, near)))  # a text may contain a sentence twice
            asked.append([f"biLM: {text.shown(token)}", "<br>".join(different[:SHOWN])])
        rows += [["" if number else word, *row] for number, row in enumerate(asked)]
    return table(["word", "asked", "nearest"], rows) + "\n\n" + same_tag(found, text, static)


def _words_near(word: str, static: Vectors, topn: int) -> list[str]:
    return [] if word not in static.index else [other for other, _ in nearest_words(static, [word], topn)[0]]


def same_tag(found: dict[str, dict[str, list[Token]]], text: ContextualText, static: Vectors | None) -> str:
    """A sentence and a table: for tokens of ambiguous words, the share of nearest tokens with the same tag."""
    words = ambiguous(found, ASKED)
    asked = [token for word in words for tokens in found[word].values() for token in tokens[:TOKENS]]
    if not asked:
        return ""
    near = text.nearest_elsewhere(asked, CLOSEST)
    ours = [other.tag == token.tag for token, others in zip(asked, near, strict=True) for other in others]
    rows = [["biLM, top layer", f"{sum(ours) / len(ours):.1%}"]]
    if static is not None:
        usual = {word: Counter({tag: len(tokens) for tag, tokens in tags.items()}) for word, tags in found.items()}
        by_word = [
            usual[other].most_common(1)[0][0] == token.tag
            for token in asked
            for other in _tagged_near(text.examples[token.sentence].words[token.place].lower(), static, usual)
        ]
        share = f"{sum(by_word) / len(by_word):.1%}" if by_word else "none"
        rows.append(["static vectors, the neighbour's most common tag", share])
    intro = (
        f"For {len(asked)} tokens of the {len(words)} most ambiguous words (at most {TOKENS} of each word and tag): "
        f"how many of the {CLOSEST} nearest tokens in other sentences have the same tag."
    )
    return f"{intro}\n\n" + table(["neighbours by", "with the same tag"], rows)


def _tagged_near(word: str, static: Vectors, usual: dict[str, Counter[str]]) -> list[str]:
    return [other for other in _words_near(word, static, 5 * CLOSEST) if other in usual][:CLOSEST]
