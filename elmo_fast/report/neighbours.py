"""Nearest neighbours of ambiguous words: one list by static vectors, one per use by the biLM (the paper's table 4)."""

from collections import defaultdict
from collections.abc import Sequence

import torch

from elmo_fast.embed.embedder import ElmoEmbedder
from elmo_fast.embed.search import nearest
from elmo_fast.embed.word_vectors import load_vectors
from elmo_fast.errors import ElmoFastError
from elmo_fast.report.page import table
from elmo_fast.report.plan import ReportSettings
from elmo_fast.static.neighbours import nearest_words
from elmo_fast.tasks import Example
from elmo_fast.tokens import TextTokens, in_context

WORDS, CONTEXT = 5, 5
SHOWN = 4
RARE = 5  # how often an ambiguous word's second tag occurs

# Lower-case word -> tag, the most frequent first -> its tokens as (sentence, place), in text order.
Token = tuple[int, int]
Uses = dict[str, dict[str, list[Token]]]


def uses_of(examples: Sequence[Example]) -> Uses:
    """Return the tokens of each word, by tag."""
    uses: Uses = defaultdict(lambda: defaultdict(list))
    for sentence, example in enumerate(examples):
        for place, (word, tag) in enumerate(zip(example.words, example.labels, strict=True)):
            uses[word.lower()][tag].append((sentence, place))
    return {word: dict(sorted(tags.items(), key=lambda item: -len(item[1]))) for word, tags in uses.items()}


def ambiguous(uses: Uses, count: int) -> list[str]:
    """Return the `count` alphabetic words whose second most frequent tag occurs most often."""
    tagged = ((word, [*map(len, tags.values())]) for word, tags in uses.items() if word.isalpha() and len(word) > 2)
    ranked = sorted((-counts[1], word) for word, counts in tagged if len(counts) > 1 and counts[1] >= RARE)
    return [word for _, word in ranked[:count]]


def nearest_elsewhere(text: TextTokens, tokens: Sequence[Token], topn: int) -> list[list[Token]]:
    """For each token, the `topn` nearest in other sentences, nearest first."""
    queries = text.vectors[[text.starts[sentence] + place for sentence, place in tokens]]
    longest = max(len(text.sentences[sentence]) for sentence, _ in tokens)
    rows = nearest(text.vectors, queries, topn + longest).rows.tolist()
    each = zip(tokens, rows, strict=True)
    return [[other for other in map(text.where, row) if other[0] != token[0]][:topn] for token, row in each]


def words_asked(examples: Sequence[Example], settings: ReportSettings) -> list[str]:
    """Return the words of the settings in lower case or, if there are none, the most ambiguous words of the text.

    Raises ElmoFastError for a word that does not occur in the sentences that are searched.
    """
    uses = uses_of(examples[: settings.neighbour_text])
    words = [word.lower() for word in settings.words] or ambiguous(uses, WORDS)
    if missing := [word for word in words if word not in uses]:
        where = f"the first {settings.neighbour_text} sentences of the labelled training text (--neighbour_text)"
        raise ElmoFastError(f"--words: {missing[0]!r} does not occur in {where}")
    return words


def neighbours(
    words: Sequence[str], examples: Sequence[Example], model: str, settings: ReportSettings, device: torch.device
) -> str:
    """Return the section's Markdown: a table of neighbours.

    words: from `words_asked`
    """
    examples = examples[: settings.neighbour_text]
    uses = uses_of(examples)
    if not words:
        return "No word of the text has two tags, each at least five times, so there is nothing to compare."
    number = -1 if device.type == "cpu" else device.index or 0
    embedder = ElmoEmbedder.from_pretrained(model, number, stateful=False, prefix=settings.prefix)
    text = TextTokens(embedder, [example.words for example in examples])
    static = load_vectors(settings.vectors) if settings.vectors else None

    def shown(token: Token) -> str:
        """Return the token in bold among its neighbours in the sentence, and its tag."""
        sentence, place = token
        words = in_context(examples[sentence].words, place, CONTEXT, ("**", "**")).replace("|", "\\|")
        return f"{words} ({examples[sentence].labels[place]})"

    rows = []
    for word in words:
        asked = []
        if static is not None:
            others = nearest_words(static, [word], SHOWN * 2)[0] if word in static.index else [("not among them", 0.0)]
            asked.append(["static vectors", ", ".join(other for other, _ in others)])
        senses = [tokens[0] for tokens in [*uses[word].values()][:2]]  # the first of each of the two most frequent tags
        for token, near in zip(senses, nearest_elsewhere(text, senses, 3 * SHOWN), strict=True):
            different = list(dict.fromkeys(map(shown, near)))  # a text may contain a sentence twice
            asked.append([f"biLM: {shown(token)}", "<br>".join(different[:SHOWN])])
        rows += [["" if number else word, *row] for number, row in enumerate(asked)]
    return table(["word", "asked", "nearest"], rows)
