"""Evaluation of word vectors by gensim: analogies, and similarity of word pairs, with the known fraction of the set."""

import csv
import math
import os
import re
import tempfile
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from elmo_fast.embed.layers import unit_rows
from elmo_fast.embed.word_vectors import Vectors
from elmo_fast.errors import ElmoFastError, require
from elmo_fast.text import read_lines

QUESTIONS, WORDSIM353, SIMLEX999 = "questions-words.txt", "wordsim353.tsv", "simlex999.txt"


class Section(NamedTuple):
    """Some questions: how many were answered correctly, were asked (their four words have vectors), and there are."""

    name: str
    correct: int
    asked: int
    questions: int

    @property
    def accuracy(self) -> float | None:
        """Return correct / asked; None if nothing was asked."""
        return self.correct / self.asked if self.asked else None

    @property
    def coverage(self) -> float | None:
        """Return asked / questions: the fraction of the set that the accuracy is about."""
        return self.asked / self.questions if self.questions else None


class AnalogyScores(NamedTuple):
    """Each section in the file's order, and three sums; names that begin with "gram" are syntactic, others semantic."""

    sections: list[Section]
    semantic: Section
    syntactic: Section
    total: Section

    def as_dict(self) -> dict[str, Any]:
        """Return what JSON can hold: name -> accuracy, coverage, correct, asked, questions."""
        return {
            part.name: {"accuracy": part.accuracy, "coverage": part.coverage}
            | {name: getattr(part, name) for name in ("correct", "asked", "questions")}
            for part in (*self.sections, *self[1:])
        }

    def table(self) -> str:
        """Return a line for each section and sum."""
        parts = [*self.sections, *self[1:]]
        width = max(len(part.name) for part in parts)
        lines = [f"{'analogies':<{width}}  accuracy  coverage  correct / asked / questions"]
        for part in parts:
            shares = ("none" if share is None else f"{share:.1%}" for share in (part.accuracy, part.coverage))
            lines.append("{:<{}}  {:>8}  {:>8}  {} / {} / {}".format(part.name, width, *shares, *part[1:]))
        return "\n".join(lines)


class SimilarityScores(NamedTuple):
    """Two correlations, and over how many pairs.

    compared: pairs whose two words have vectors (all pairs if unknown ones count as cosine 0)
    unknown: pairs with a word without a vector
    """

    pearson: float
    spearman: float
    compared: int
    unknown: int
    pairs: int

    @property
    def coverage(self) -> float:
        """The fraction of the pairs whose words are known."""
        return 1 - self.unknown / self.pairs

    def as_dict(self) -> dict[str, Any]:
        """Return what JSON can hold; a correlation that is NaN is None."""
        values = {**self._asdict(), "coverage": self.coverage}
        return {name: None if value != value else value for name, value in values.items()}


def bundled(name: str) -> str:
    """Return the path of an evaluation set within gensim: questions-words.txt, wordsim353.tsv, simlex999.txt."""
    path = str(require("gensim.test.utils", "static", f"the evaluation set {name}").datapath(name))
    if not os.path.exists(path):
        raise ElmoFastError(f"the installed gensim has no evaluation set {name}; give a file of your own")
    return path


def evaluate_analogies(
    vectors: Vectors,
    path: str | os.PathLike[str] | None = None,
    *,
    restrict_vocab: int | None = 300_000,
    case_insensitive: bool = True,
    unknown_as_wrong: bool = False,
) -> AnalogyScores:
    """Answer each question a : b = c : ? with the nearest word to b - a + c (3CosAdd).

        argmax over w of cos(w, b/|b| - a/|a| + c/|c|),    w none of a, b, c

    path: lines of four words, in sections that begin with ": NAME"; None: Google's set of 19,544 questions from gensim
    restrict_vocab: use only the first N words; None: all
    case_insensitive: compare words in upper case; the first of several spellings wins
    unknown_as_wrong: count questions with unknown words as wrong (gensim's dummy4unknown); otherwise they are skipped
    Raises ElmoFastError for a file without sections or questions, MissingExtraError without gensim.
    Source: Mikolov et al. 2013 (arXiv:1301.3781), section 4; gensim's evaluate_word_analogies, which computes them.
    """
    path = bundled(QUESTIONS) if path is None else os.fspath(path)
    sections: list[list[str]] = []  # the lines of each, its name first
    skipped: list[int] = []
    for index, line in read_lines(path):
        if line.startswith(": "):
            sections.append([line])
        elif line and not sections:
            what = 'wanted a line ": NAME" before the first question'
            raise ElmoFastError(f"{path}, line {index + 1}: {what}, found {line[:60]!r}")
        elif len(words := line.split()) == 4:
            sections[-1].append(" ".join(words))
        elif line:
            skipped.append(index + 1)
    _warn_of(path, skipped, "four words")
    if all(len(lines) == 1 for lines in sections):
        raise ElmoFastError(f'{path}: wanted questions (lines of four words after a line ": NAME"), found none')
    # A copy, because gensim's own reader takes other lines of the original file.
    with tempfile.NamedTemporaryFile("w", prefix="elmo-fast-", encoding="utf-8", newline="\n") as copy:
        copy.writelines(f"{line}\n" for lines in sections for line in lines)
        copy.flush()
        settings = restrict_vocab, case_insensitive, unknown_as_wrong
        _, scores = vectors.to_gensim().evaluate_word_analogies(copy.name, *settings)
    parts = []
    for score, lines in zip(scores[:-1], sections, strict=True):
        right, wrong = len(score["correct"]), len(score["incorrect"])
        parts.append(Section(score["section"], right, right + wrong, len(lines) - 1))
    if not any(part.asked for part in parts):
        _warn_of_none(path, "question")
    sums = []
    for name, chosen in {"semantic": [False], "syntactic": [True], "total": [False, True]}.items():
        some = [part for part in parts if part.name.startswith("gram") in chosen]
        sums.append(Section(name, *(sum(part[place] for part in some) for place in (1, 2, 3))))  # type: ignore[misc]
    return AnalogyScores(parts, *sums)


def evaluate_similarity(
    vectors: Vectors,
    path: str | os.PathLike[str] | None = None,
    *,
    restrict_vocab: int | None = 300_000,
    case_insensitive: bool = True,
    unknown_as_zero: bool = False,
    one_hot: bool = False,
) -> SimilarityScores:
    """Correlate the cosines of word pairs with human scores of those pairs.

    path: SimLex-999, WordSim-353 or MEN as published, or lines of two words and a number (other columns may surround
        it), separated by tabs, commas (a word may be quoted, as in CSV) or white space; a first line of names and lines
        that begin with # are left out, and so are MEN's parts of speech (sun-n). None: WordSim-353 from gensim
    restrict_vocab, case_insensitive: as in evaluate_analogies
    unknown_as_zero: a pair with an unknown word has cosine 0 (gensim's dummy4unknown); otherwise it is skipped
    one_hot: score one-hot vectors of the same words instead, in which different words have cosine 0: the baseline
    The correlations are NaN if fewer than two pairs are left or, with scipy's warning, one of the columns is constant.
    Raises ElmoFastError for a file without pairs, MissingExtraError without scipy or, for its file, gensim.
    Source: gensim's evaluate_word_pairs, whose numbers these are.
    """
    path = bundled(WORDSIM353) if path is None else os.fspath(path)
    stats = require("scipy.stats", "static", "the correlation of word pairs")
    spell: Callable[[str], str] = str.upper if case_insensitive else str
    pairs, skipped = _read_pairs(path)
    columns = "two words and a finite number separated by tabs, commas or white space"
    _warn_of(path, skipped, columns)
    if not pairs:
        raise ElmoFastError(f"{path}: wanted pairs (lines of {columns}), found none")
    words = vectors.words[:restrict_vocab]
    rows = {spell(words[row]): row for row in reversed(range(len(words)))}
    places = np.array([[rows.get(spell(word), -1) for word in pair[:2]] for pair in pairs])
    known, cosines = (places >= 0).all(axis=1), np.zeros(len(pairs), np.float32)
    first, second = places[known].T
    unit = unit_rows(vectors.matrix[places[known]])
    cosines[known] = first == second if one_hot else (unit[:, 0] * unit[:, 1]).sum(axis=1)
    used, human = known | unknown_as_zero, np.array([float(pair[2]) for pair in pairs])
    pearson, spearman = float("nan"), float("nan")
    if used.sum() > 1:
        both = (correlation(human[used], cosines[used]) for correlation in (stats.pearsonr, stats.spearmanr))
        pearson, spearman = (float(each.statistic) for each in both)
    if not known.any():
        _warn_of_none(path, "pair")
    return SimilarityScores(pearson, spearman, int(used.sum()), int((~known).sum()), len(pairs))


def _read_pairs(path: str) -> tuple[list[tuple[str, str, str]], list[int]]:
    """Return two words and a score for each pair of a file, and the numbers of the lines that are not a pair.

    The score's column is the first with a finite number after the two words, in the first line after the header.
    """
    lines = [(index + 1, line) for index, line in read_lines(path) if line and not line.startswith("#")]
    first = lines[0][1] if lines else ""
    if "\t" in first or "," in first:
        rows = [next(csv.reader([line], delimiter="\t" if "\t" in first else ",")) for _, line in lines]
    else:
        rows = [line.split() for _, line in lines]
    numeric = [column for row in rows[1:] + rows[:1] for column in range(2, len(row)) if _is_finite(row[column])]
    score = numeric[0] if numeric else 2
    good = [len(row) > score and _is_finite(row[score]) for row in rows]
    pairs = [(row[0].strip(), row[1].strip(), row[score]) for row, is_pair in zip(rows, good, strict=True) if is_pair]
    if all(re.fullmatch(r".+-[nvj]", word) for pair in pairs for word in pair[:2]):
        pairs = [(first[:-2], second[:-2], number) for first, second, number in pairs]
    skipped = [number for (number, _), is_pair in zip(lines, good, strict=True) if not is_pair]
    return pairs, [number for number in skipped if number != lines[0][0]]


def _is_finite(score: str) -> bool:
    try:
        return math.isfinite(float(score))
    except ValueError:
        return False


def _warn_of_none(path: str, what: str) -> None:
    advice = "check that file and vectors agree on language and case, and raise restrict_vocab or limit if they are set"
    warnings.warn(f"{path}: every {what} has a word without a vector, so there is no score; {advice}", stacklevel=3)


def _warn_of(path: str, skipped: Sequence[int], columns: str) -> None:
    """Warn about the lines of these numbers."""
    if skipped:
        message = f"{path}: {len(skipped)} lines are not {columns}, and are skipped (line {skipped[0]})"
        warnings.warn(message, stacklevel=3)
