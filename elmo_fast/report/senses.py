"""Word senses by nearest neighbour: what each layer of a biLM knows of them, without training (the paper's table 5)."""

import math
import os
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from elmo_fast.embed.layers import unit_rows
from elmo_fast.errors import ElmoFastError
from elmo_fast.modules.bilm import BiLM
from elmo_fast.pictures.layers import layer_name
from elmo_fast.pictures.senses import token_vectors
from elmo_fast.report.page import HOW_IT_WAS_RUN, NUMBERS, table
from elmo_fast.report.plan import ReportSettings
from elmo_fast.tasks import read_examples
from elmo_fast.tasks.formats import PER_WORD, UNSPECIFIED, format_of, opened_table

BASELINE = "most frequent sense"
Booleans = npt.NDArray[np.bool_]


class Use(NamedTuple):
    """A token whose sense is known."""

    word: str
    """in lower case; senses are compared within a word"""
    sense: str
    """the name of its sense"""
    tokens: Sequence[str]
    """the sentence"""
    place: int
    """which token of it, from 0"""


def read_uses(
    path: str | os.PathLike[str], format: str = "auto", column: str | None = None, tokenizer: str | None = None
) -> list[Use]:
    """Return the sense-tagged tokens of a file, in its order.

    Args:
        path: a table (csv, tsv, jsonl, parquet) with the columns `word`, `sense`, `sentence` and, if the word occurs
            more than once in the sentence or in another form, `position`: which token it is, from 0. Or a file with a
            tag per word (CoNLL-U, columns), whose tags are the senses; "_" is none.
        format, tokenizer: as in read_examples.
        column: of a table, that of the sentences (default "sentence"); else that of the tags.

    Raises: ElmoFastError: a row without word or sense, a word that is not in its sentence, a position that is no
        token's, no token.
    Warns: most positions are beside the word.
    """
    if (format := format_of(path, format)) not in PER_WORD:
        with opened_table(path, format, column or "sentence", tokenizer) as rows:
            each = enumerate(rows.rows())
            uses = [_use(f"{rows.name}, {rows.place(i)}", record, sentence.tokens) for i, (sentence, record) in each]
        off = sum(use.word != use.tokens[use.place].lower() and use.word in map(str.lower, use.tokens) for use in uses)
        if 2 * off > len(uses):
            others = f"in {off:,} of {len(uses):,} rows position is another token than the word, which is there too"
            warnings.warn(f"{os.fspath(path)}: {others}; positions count from 0", stacklevel=2)
        return uses
    return [
        Use(word.lower(), tag, words, place)
        for words, tags, _ in read_examples(path, format, column)
        for place, (word, tag) in enumerate(zip(words, tags, strict=True))
        if tag != UNSPECIFIED
    ]


def _use(where: str, record: dict[str, Any], tokens: list[str]) -> Use:
    if missing := {"word", "sense"} - record.keys():
        raise ElmoFastError(f"{where} has no column {max(missing)!r}; it has: {', '.join(record)}; rename one")
    values = (record.get(name) for name in ("word", "sense", "position"))
    word, sense, place = ("" if value is None else str(value).strip() for value in values)
    if not (word and sense):
        raise ElmoFastError(f"{where}: the columns word and sense must be filled; got {word!r} and {sense!r}")
    if place and place not in map(str, range(len(tokens))):
        allowed = f"0 to {len(tokens) - 1}, the number of a token of {' '.join(tokens)!r:.80}"
        raise ElmoFastError(f"{where}: position must be {allowed}; got {place!r}")
    places = [index for index, token in enumerate(tokens) if token.lower() == word.lower()]
    if not place and len(places) != 1:
        advice = "name which by its number from 0 in a column position, or choose another tokenizer"
        raise ElmoFastError(f"{where}: {word!r} is {len(places)} of the tokens {' '.join(tokens)!r:.80}; {advice}")
    return Use(word.lower(), sense, tokens, int(place or places[0]))


class SenseScores(NamedTuple):
    """Which test tokens get their sense by each way of choosing it."""

    right: dict[str, Booleans]
    """way (the most frequent sense, then each layer) -> whether it is right for each token"""
    ambiguous: Booleans
    """whether the word has several senses in the training tokens"""


def sense_scores(bilm: BiLM, train: Sequence[Use], test: Sequence[Use]) -> SenseScores:
    """Give each test token the sense of the nearest training token of its word, by each layer, and compare.

    The nearest has the largest cosine; of equally near ones the word's most frequent sense wins, which is the baseline.
    Every way gives a word that has no training token the most frequent sense of all.

    Raises: ElmoFastError: no tokens.
    """
    if not (train and test):
        raise ElmoFastError(f"senses need training and test tokens; got {len(train)} and {len(test)}")
    senses: dict[str, Counter[str]] = defaultdict(Counter)
    for use in train:
        senses[use.word][use.sense] += 1
    [(usual, _)] = Counter(use.sense for use in train).most_common(1)
    first = [senses[use.word].most_common(1)[0][0] if use.word in senses else usual for use in test]
    ambiguous = np.array([use.word in senses and len(senses[use.word]) > 1 for use in test])
    asked = [use for use, several in zip(test, ambiguous, strict=True) if several]
    # The first of the largest cosines wins; rounded, because equal vectors of two batches may differ by a bit.
    words = {use.word for use in asked}
    known = sorted((use for use in train if use.word in words), key=lambda use: -senses[use.word][use.sense])
    of_known, of_asked = (np.array([use.word for use in uses]) for uses in (known, asked))
    beside = token_vectors(bilm, [*known, *asked], "all")
    vectors = beside.reshape(len(beside), bilm.num_layers, -1).swapaxes(0, 1)
    answers = {BASELINE: np.array(first, object)}
    for layer in range(bilm.num_layers):
        found = np.empty(len(asked), object)
        for word in words:
            rows, queries = np.flatnonzero(of_known == word), np.flatnonzero(of_asked == word)
            known_vectors, asked_vectors = (unit_rows(vectors[layer, at]) for at in (rows, len(known) + queries))
            near = (known_vectors @ asked_vectors.T).round(6).argmax(0)
            found[queries] = [known[row].sense for row in rows[near]]
        answers[layer_name(layer)] = np.array(first, object)
        answers[layer_name(layer)][ambiguous] = found
    gold = np.array([use.sense for use in test], object)
    return SenseScores({way: answer == gold for way, answer in answers.items()}, ambiguous)


def against(one: Booleans, other: Booleans) -> str:
    """Say how many tokens only one of two ways gets right, and whether chance explains it (two standard errors)."""
    gained, lost = int((one & ~other).sum()), int((other & ~one).sum())
    verdict = "better" if gained > lost else "worse"
    sure = abs(gained - lost) > 2 * math.sqrt(gained + lost)
    return f"{gained} gained, {lost} lost: {verdict if sure else 'may be chance'}" if one is not other else "none"


def senses_page(
    settings: ReportSettings, bilm: BiLM, about: Sequence[str], report: Callable[[str], Any]
) -> tuple[str, dict[str, dict[str, float]]]:
    """Return the page of `--task senses`, and its accuracies: group of test tokens -> way of choosing a sense -> share.

    about: sentences on model and machine. Raises ElmoFastError as read_uses and sense_scores, and for unknown words.
    """
    how = settings.format, settings.column[0] if settings.column else None, bilm.options.tokenizer
    train, test = (read_uses(path, *how) for path in (settings.train_path, settings.test_path))
    if asked := {word.lower() for word in settings.words}:
        train, test = ([use for use in uses if use.word in asked] for uses in (train, test))
        if missing := asked - {use.word for use in test}:
            raise ElmoFastError(f"--words: {min(missing)!r} has no sense in {settings.test_path}")
    report(f"senses of {len(test):,} tokens, by {len(train):,} of training")
    right, ambiguous = sense_scores(bilm, train, test)
    counts, words = Counter((use.word, use.sense) for use in train), np.array([use.word for use in test])
    groups = {"all tokens": ambiguous | True}
    if several := Counter(words[ambiguous].tolist()).most_common():
        groups |= {"of words with several senses": ambiguous} | {word: words == word for word, _ in several}
    accuracy = {name: {way: float(each[of].mean()) for way, each in right.items()} for name, of in groups.items()}
    rows = [
        [way, *(f"{100 * accuracy[name][way]:.1f}" for name in [*groups][:2]), against(each, right[BASELINE])]
        for way, each in right.items()
    ]
    top, lower, known = layer_name(bilm.num_layers - 1), layer_name(1), {use.word for use in train}
    data = (
        f"Data: {len(train):,} training tokens of {len(known):,} words, {len(test):,} test tokens; the words of "
        f"{sum(use.word not in known for use in test):,} do not occur in training: they get the most frequent sense; "
        f"of {sum(use.word in known and not counts[use.word, use.sense] for use in test):,} the word does, but not in "
        "its sense: no way can get these right."
    )
    parts = [
        "# Word senses by nearest neighbour",
        *filter(None, [settings.note]),
        "\n".join(f"- {fact}" for fact in (data, *about)),
        "Table 5 of the paper: a token gets the sense of the training token of its word with the nearest vector. "
        "Nothing is trained. The characters know no context, and give a spelling its most frequent sense.",
        table(["accuracy, %", *[*groups][:2], f"against the {BASELINE}"], rows),
        f"{top} against {lower} (in the paper it knows more of senses): {against(right[top], right[lower])}.",
        f"`{NUMBERS}` has the accuracy for each word.",
        HOW_IT_WAS_RUN,
    ]
    return "\n\n".join(parts) + "\n", accuracy
