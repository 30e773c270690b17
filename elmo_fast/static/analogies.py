"""Analogies: a is to b as c is to which word? Scored as by gensim and word2vec's compute-accuracy."""

import os
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from elmo_fast.errors import ElmoFastError
from elmo_fast.static.evaluation import bundled, rows_of, unit_rows, warn_skipped
from elmo_fast.static.vectors import Vectors
from elmo_fast.text import read_lines

Ids = npt.NDArray[np.int64]
# If the nearest word is one of the question in another case, the next ones are tried, this many in all, as in gensim.
CANDIDATES = 5


class Section(NamedTuple):
    """Some questions: how many were answered correctly, how many were asked, and how many there are.

    A question is asked if its four words have vectors.
    """

    name: str
    correct: int
    asked: int
    questions: int

    @property
    def accuracy(self) -> float | None:
        """correct / asked; None if nothing was asked."""
        return self.correct / self.asked if self.asked else None

    @property
    def coverage(self) -> float | None:
        """asked / questions: the share of the set that the accuracy is about."""
        return self.asked / self.questions if self.questions else None


class AnalogyScores(NamedTuple):
    """Each section in the file's order, and three sums; names that begin with "gram" are syntactic, others semantic."""

    sections: list[Section]
    semantic: Section
    syntactic: Section
    total: Section

    def as_dict(self) -> dict[str, Any]:
        """What JSON can hold: name -> accuracy, coverage, correct, asked, questions."""
        return {
            part.name: {"accuracy": part.accuracy, "coverage": part.coverage}
            | {name: getattr(part, name) for name in ("correct", "asked", "questions")}
            for part in self._all()
        }

    def table(self) -> str:
        """A line for each section and sum."""
        width = max(len(part.name) for part in self._all())
        lines = [f"{'analogies':<{width}}  accuracy  coverage  correct / asked / questions"]
        for part in self._all():
            shares = ["none" if share is None else f"{share:.1%}" for share in (part.accuracy, part.coverage)]
            counts = f"{part.correct} / {part.asked} / {part.questions}"
            lines.append(f"{part.name:<{width}}  {shares[0]:>8}  {shares[1]:>8}  {counts}")
        return "\n".join(lines)

    def _all(self) -> list[Section]:
        return [*self.sections, self.semantic, self.syntactic, self.total]


def evaluate_analogies(
    vectors: Vectors,
    path: str | os.PathLike[str] | None = None,
    *,
    restrict_vocab: int | None = 300_000,
    case_insensitive: bool = True,
    unknown_as_wrong: bool = False,
    batch_size: int = 256,
    device: str = "cpu",
    progress: Callable[[int, int], None] | None = None,
) -> AnalogyScores:
    """Answers each question a : b = c : ? with the nearest word to b - a + c (3CosAdd), many questions per matrix
    product.

        argmax over w of cos(w, b/|b| - a/|a| + c/|c|),    w none of a, b, c

    path: lines of four words, in sections that begin with ": NAME"; None: Google's set of 19,544 questions from gensim
        (MissingExtraError without gensim)
    restrict_vocab: use only the first N words; None: all
    case_insensitive: compare words in upper case; the first of several spellings wins
    unknown_as_wrong: count questions with unknown words as wrong (gensim's dummy4unknown); otherwise they are skipped
    batch_size: questions per product; takes 4 * batch_size * restrict_vocab bytes
    device: the device of the products
    progress: called with questions answered and the total
    Raises ElmoFastError for a file without sections or questions.
    Source: Mikolov et al. 2013 (arXiv:1301.3781), section 4; gensim's evaluate_word_analogies, whose counts these are.
    """
    names, sections, questions = _read(bundled("questions-words.txt") if path is None else os.fspath(path))
    rows, same = rows_of(questions, vectors.words[:restrict_vocab], case_insensitive)
    asked = (rows >= 0).all(1)
    right = np.zeros(len(rows), bool)
    places = np.flatnonzero(asked)
    unit = unit_rows(vectors.matrix[:restrict_vocab])
    for done, answers in _answers(unit, rows[places], same, batch_size, device):
        right[places[done : done + len(answers)]] = answers == same[rows[places[done : done + len(answers)], 3]]
        if progress is not None:
            progress(done + len(answers), len(places))
    return _scores(names, sections, right, np.ones_like(asked) if unknown_as_wrong else asked)


def _read(path: str) -> tuple[list[str], Ids, list[list[str]]]:
    """The names of the sections, the section of each question, and its four words."""
    names: list[str] = []
    sections, questions, skipped = [], [], []
    for index, line in read_lines(path):
        words = line.split()
        if line.startswith(": "):
            names.append(line.lstrip(": ").strip())
        elif not names:
            raise ElmoFastError(
                f'{path}, line {index + 1}: wanted a line ": NAME" before the first question, found {line[:60]!r}'
            )
        elif len(words) == 4:
            sections.append(len(names) - 1)
            questions.append(words)
        elif words:
            skipped.append(index + 1)
    warn_skipped(path, skipped, "four words")
    if not questions:
        raise ElmoFastError(f'{path}: wanted questions (lines of four words after a line ": NAME"), found none')
    return names, np.array(sections), questions


def _answers(unit: npt.NDArray[np.float32], rows: Ids, same: Ids, batch_size: int, device: str) -> Any:
    """Yields (first question, the answers as numbers in `same`) batch by batch."""
    import torch

    table = torch.from_numpy(unit).to(device)
    for first in range(0, len(rows), batch_size):
        a, b, c = torch.from_numpy(rows[first : first + batch_size, :3]).to(device).T
        scores = (table[b] + table[c] - table[a]) @ table.T
        each = torch.arange(len(a), device=device)
        for given in (a, b, c):
            scores[each, given] = -torch.inf
        # On the CPU numpy's argmax is faster than torch's.
        best = scores.numpy().argmax(1) if device == "cpu" else scores.argmax(1).cpu().numpy()
        answers = same[best]
        asked = same[rows[first : first + batch_size, :3]]
        for question in np.flatnonzero((answers[:, None] == asked).any(1)):
            answers[question] = _in_another_case(scores[question], asked[question], same)
        yield first, answers


def _in_another_case(scores: Any, asked: Ids, same: Ids) -> int:
    """The nearest word that is none of the asked in any case; if the first five all are, the fifth, as in gensim."""
    nearest = scores.topk(min(CANDIDATES, len(same)))
    words = [int(same[row]) for row in nearest.indices[nearest.values.isfinite()].tolist()]
    return next((word for word in words if word not in asked), words[-1] if words else -1)


def _scores(names: Sequence[str], sections: Ids, right: Any, asked: Any) -> AnalogyScores:
    def counted(name: str, here: Any) -> Section:
        return Section(name, int((right & here).sum()), int((asked & here).sum()), int(here.sum()))

    syntactic = np.array([name.startswith("gram") for name in names])[sections]
    return AnalogyScores(
        [counted(name, sections == i) for i, name in enumerate(names)],
        counted("semantic", ~syntactic),
        counted("syntactic", syntactic),
        counted("total", np.ones(len(sections), bool)),
    )
