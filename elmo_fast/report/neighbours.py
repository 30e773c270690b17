"""Nearest neighbours of ambiguous words: one list by static vectors, one per use by the biLM (the paper's table 4)."""

import itertools
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from elmo_fast.errors import ElmoFastError
from elmo_fast.modules import ElmoEmbedder
from elmo_fast.report.page import table
from elmo_fast.report.plan import ReportSettings
from elmo_fast.static.neighbours import nearest_words
from elmo_fast.static.vectors import Vectors, load_vectors
from elmo_fast.tasks import Example
from elmo_fast.tokens import TextTokens, in_context

WORDS, ASKED, TOKENS, CLOSEST, CONTEXT = 5, 20, 20, 10, 5
SHOWN = 4
# An ambiguous word's second tag occurs that often; its examples are sentences of that many words.
RARE, SHORTEST, LONGEST = 5, 5, 30


class Token(NamedTuple):
    """A token's position and tag."""

    sentence: int
    place: int
    tag: str


# Lower-case word -> tag, the most frequent first -> its tokens, in text order.
Uses = dict[str, dict[str, list[Token]]]


def uses_of(examples: Sequence[Example]) -> Uses:
    """The tokens of each word, by tag."""
    found: Uses = defaultdict(lambda: defaultdict(list))
    for number, example in enumerate(examples):
        for place, (word, tag) in enumerate(zip(example.words, example.labels, strict=True)):
            found[word.lower()][tag].append(Token(number, place, tag))
    return {word: dict(sorted(tags.items(), key=lambda item: -len(item[1]))) for word, tags in found.items()}


def ambiguous(uses: Uses, count: int) -> list[str]:
    """The `count` alphabetic words whose second most frequent tag occurs most often."""
    second = {
        word: len([*tags.values()][1])
        for word, tags in uses.items()
        if len(tags) > 1 and word.isalpha() and len(word) > 2
    }
    ranked = sorted((-number, word) for word, number in second.items() if number >= RARE)
    return [word for _, word in ranked[:count]]


def two_senses(word: str, uses: Uses, examples: Sequence[Example]) -> list[Token]:
    """A token of each of the two most frequent tags of a word of `uses`, in short sentences if there are any."""
    senses = []
    for tokens in [*uses[word].values()][:2]:
        short = [token for token in tokens if SHORTEST <= len(examples[token.sentence].words) <= LONGEST]
        senses.append((short or tokens)[0])
    return senses


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
        text = in_context(self.examples[token.sentence].words, token.place, CONTEXT, ("**", "**")).replace("|", "\\|")
        return f"{text} ({token.tag})"


def words_asked(examples: Sequence[Example], settings: ReportSettings) -> list[str]:
    """The words of the settings in lower case or, if there are none, the most ambiguous words of the text.

    Raises ElmoFastError for a word that does not occur in the sentences that are searched.
    """
    uses = uses_of(examples[: settings.neighbour_text])
    words = [word.lower() for word in settings.words] or ambiguous(uses, WORDS)
    for word in words:
        if word not in uses:
            raise ElmoFastError(
                f"--words: {word!r} does not occur in the first {settings.neighbour_text} sentences of the labelled "
                "training text (--neighbour_text)"
            )
    return words


def neighbours(examples: Sequence[Example], model: str, settings: ReportSettings) -> str:
    """The section's Markdown: a table of neighbours, and how often the nearest tokens have the query's tag."""
    words = words_asked(examples, settings)
    examples = examples[: settings.neighbour_text]
    uses = uses_of(examples)
    if not words:
        return "No word of the text has two tags, each at least five times, so there is nothing to compare."
    text = ContextualText(examples, ElmoEmbedder.from_pretrained(model, stateful=False, prefix=settings.prefix))
    static = load_vectors(settings.vectors) if settings.vectors else None
    rows = []
    for word in words:
        asked = []
        if static is not None:
            asked.append(["static vectors", ", ".join(_words_near(word, static, SHOWN * 2)) or "not among them"])
        senses = two_senses(word, uses, examples)
        for token, near in zip(senses, text.nearest_elsewhere(senses, 3 * SHOWN), strict=True):
            different = list(dict.fromkeys(map(text.shown, near)))  # a text may contain a sentence twice
            asked.append([f"biLM: {text.shown(token)}", "<br>".join(different[:SHOWN])])
        rows += [["" if number else word, *row] for number, row in enumerate(asked)]
    return table(["word", "asked", "nearest"], rows) + "\n\n" + same_tag(uses, text, static)


def _words_near(word: str, static: Vectors, topn: int) -> list[str]:
    return [] if word not in static.index else [other for other, _ in nearest_words(static, [word], topn)[0]]


def same_tag(uses: Uses, text: ContextualText, static: Vectors | None) -> str:
    """A sentence and a table: for tokens of ambiguous words, the share of nearest tokens with the same tag."""
    words = ambiguous(uses, ASKED)
    asked = [(word, token) for word in words for tokens in uses[word].values() for token in tokens[:TOKENS]]
    if not asked:
        return ""
    near = text.nearest_elsewhere([token for _, token in asked], CLOSEST)
    ours = [other.tag == token.tag for (_, token), others in zip(asked, near, strict=True) for other in others]
    rows = [["biLM, top layer", f"{sum(ours) / len(ours):.1%}"]]
    if static is not None:
        tagged = {
            word: [other for other in _words_near(word, static, 5 * CLOSEST) if other in uses][:CLOSEST]
            for word in words
        }
        theirs = [next(iter(uses[other])) == token.tag for word, token in asked for other in tagged[word]]
        share = f"{sum(theirs) / len(theirs):.1%}" if theirs else "none"
        rows.append(["static vectors, the neighbour's most common tag", share])
    intro = (
        f"For {len(asked)} tokens of the {len(words)} most ambiguous words (at most {TOKENS} of each word and tag): "
        f"how many of the {CLOSEST} nearest tokens in other sentences have the same tag."
    )
    return f"{intro}\n\n" + table(["neighbours by", "with the same tag"], rows)
