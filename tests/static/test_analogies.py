"""Analogies and similarity give gensim's numbers, section by section, and say how many questions they speak of."""

import json

import numpy as np
import pytest

from elmo_fast.errors import ElmoFastError
from elmo_fast.static import Vectors, evaluate_analogies, evaluate_similarity
from elmo_fast.static.evaluation import SIMLEX999, WORDSIM353
from elmo_fast.static.neighbours import unit_rows


@pytest.fixture(scope="module")
def gensim_data():
    """gensim's datapath."""
    return pytest.importorskip("gensim.test.utils", reason="gensim is not installed").datapath


def words_of_the_sets(datapath):
    """Words of the three sets, in files' order, most of them, some in more than one case."""
    words = []
    for name in ("questions-words.txt", WORDSIM353, SIMLEX999):
        with open(datapath(name), encoding="utf-8") as file:
            words += [word for line in file if line[0] not in "#:" for word in line.split()[:4] if word[0].isalpha()]
    words = [word for i, word in enumerate(dict.fromkeys(words)) if i % 9]
    return words + [word.lower() for word in words[:90:3] if word.lower() not in words]


@pytest.fixture(scope="module")
def vectors(gensim_data):
    """Half random vectors: every pair of a section's shares an offset, so that some questions come out right."""
    words = words_of_the_sets(gensim_data)
    rng = np.random.default_rng(1)
    matrix = rng.standard_normal((len(words), 12)).astype(np.float32)
    index = {word: row for row, word in enumerate(words)}
    with open(gensim_data("questions-words.txt"), encoding="utf-8") as file:
        for line in file:
            if line.startswith(":"):
                offset = rng.standard_normal(12)
                continue
            a, b = (index.get(word) for word in line.split()[:2])
            if a is not None and b is not None:
                matrix[b] = matrix[a] + offset + 0.3 * rng.standard_normal(12)
    for row, word in enumerate(words):  # other cases of a word lie so near that they come first
        if word.capitalize() in index and word != word.capitalize():
            matrix[row] = matrix[index[word.capitalize()]] + 0.05 * rng.standard_normal(12)
    return Vectors(words, matrix * rng.uniform(0.5, 2, (len(words), 1)).astype(np.float32))


@pytest.mark.parametrize(
    ("restrict", "case_insensitive", "unknown_as_wrong"),
    [(300_000, True, False), (300_000, False, True), (500, True, True), (40, False, False)],
)
def test_equal_to_gensims_analogies(tmp_path, gensim_data, vectors, restrict, case_insensitive, unknown_as_wrong):
    """Counts of every section and the total, over each seventh of Google's questions, with each rule on and off."""
    with open(gensim_data("questions-words.txt"), encoding="utf-8") as file:
        lines = [line for number, line in enumerate(file) if line.startswith(":") or number % 7 == 0]
    path = tmp_path / "questions.txt"
    path.write_text("".join(lines))
    settings = {"restrict_vocab": restrict, "case_insensitive": case_insensitive}
    accuracy, sections = vectors.to_gensim().evaluate_word_analogies(path, dummy4unknown=unknown_as_wrong, **settings)
    ours = evaluate_analogies(vectors, path, unknown_as_wrong=unknown_as_wrong, **settings)
    wanted = [(s["section"], len(s["correct"]), len(s["correct"]) + len(s["incorrect"])) for s in sections[:-1]]
    assert [part[:3] for part in ours.sections] == wanted
    assert (ours.total.accuracy or 0.0) == accuracy
    assert ours.total.questions == sum(part.questions for part in ours.sections) == len(lines) - 14
    assert ours.total.correct == ours.semantic.correct + ours.syntactic.correct
    if restrict > 1000:
        assert 0.2 < accuracy < 0.95  # or the test would say little
        assert 0.4 < ours.total.asked / ours.total.questions <= 1


@pytest.mark.parametrize("name", [WORDSIM353, SIMLEX999])
@pytest.mark.parametrize("unknown_as_zero", [True, False])
@pytest.mark.parametrize("case_insensitive", [True, False])
def test_equal_to_gensims_similarity(gensim_data, vectors, name, unknown_as_zero, case_insensitive):
    """Both correlations, and the share of unknown pairs."""
    path = gensim_data(name)
    settings = {"case_insensitive": case_insensitive, "restrict_vocab": 800}
    (their_pearson, _), (spearman, _), unknown = vectors.to_gensim().evaluate_word_pairs(
        path, dummy4unknown=unknown_as_zero, **settings
    )
    ours = evaluate_similarity(vectors, path, unknown_as_zero=unknown_as_zero, **settings)
    assert ours.pearson == pytest.approx(their_pearson, abs=1e-6)
    assert ours.spearman == pytest.approx(spearman, abs=1e-4)  # ties within float32's rounding
    assert 100 * (1 - ours.coverage) == pytest.approx(unknown)
    assert 0 < ours.unknown < ours.pairs


def test_the_bundled_sets_are_the_default(gensim_data, vectors):
    scores = evaluate_analogies(vectors, restrict_vocab=100)
    assert scores == evaluate_analogies(vectors, gensim_data("questions-words.txt"), restrict_vocab=100)
    # Mikolov et al. 2013, section 4.1.
    assert [part.questions for part in scores[1:]] == [8869, 10675, 19544]
    assert evaluate_similarity(vectors) == evaluate_similarity(vectors, gensim_data(WORDSIM353))


QUESTIONS = ": capitals\nrome italy paris france\nrome italy oslo norway\n: gram1\nbig bigger small smaller\n"


@pytest.fixture
def small():
    """Four pairs of countries and adjectives with an exact offset each, and no vector for norway."""
    words = ["rome", "italy", "paris", "france", "oslo", "big", "bigger", "small", "smaller"]
    matrix = np.eye(9, 12, dtype=np.float32)
    matrix[[1, 3], 10] = matrix[[6, 8], 11] = 5
    return Vectors(words, matrix)


def test_by_hand(tmp_path, small):
    """Sections, sums, coverage, table and JSON."""
    path = tmp_path / "questions.txt"
    path.write_text(QUESTIONS)
    scores = evaluate_analogies(small, path)
    assert scores.semantic == ("semantic", 1, 1, 2)
    assert scores.syntactic == ("syntactic", 1, 1, 1)
    assert scores.total.accuracy == 1
    assert scores.total.coverage == pytest.approx(2 / 3)
    assert scores.table().splitlines()[-1] == "total        100.0%     66.7%  2 / 2 / 3"
    assert json.loads(json.dumps(scores.as_dict()))["capitals"] == {
        "accuracy": 1.0, "coverage": 0.5, "correct": 1, "asked": 1, "questions": 2
    }  # fmt: skip
    assert evaluate_analogies(small, path, unknown_as_wrong=True).total.accuracy == pytest.approx(2 / 3)
    nothing = evaluate_analogies(Vectors(["x"], np.ones((1, 2), np.float32)), path)
    assert nothing.total == ("total", 0, 0, 3)
    assert nothing.total.accuracy is None
    assert "    none      0.0%  0 / 0 / 3" in nothing.table()


def test_bad_files_of_questions(tmp_path, small):
    """No section, no question; lines that are not four words are left out, and said."""
    path = tmp_path / "questions.txt"
    path.write_text("rome italy paris france\n")
    with pytest.raises(ElmoFastError, match='line 1: wanted a line ": NAME" before the first question, found'):
        evaluate_analogies(small, path)
    path.write_text(": one\n")
    with pytest.raises(ElmoFastError, match=r"wanted questions .* found none"):
        evaluate_analogies(small, path)
    path.write_text(QUESTIONS + "rome italy paris\n\n")
    with pytest.warns(UserWarning, match=r"1 lines are not four words, and are skipped \(line 6\)"):
        assert evaluate_analogies(small, path).total.questions == 3


def test_bad_files_of_pairs(tmp_path, small):
    path = tmp_path / "pairs.tsv"
    path.write_text("# nothing\n")
    with pytest.raises(ElmoFastError, match=r"wanted pairs .* found none"):
        evaluate_similarity(small, path)
    path.write_text("rome\titaly\t3\nrome\tatlantis\t1\n")
    scores = evaluate_similarity(small, path)
    assert scores.as_dict() == {
        "pearson": None, "spearman": None, "compared": 1, "unknown": 1, "pairs": 2, "coverage": 0.5
    }  # fmt: skip
    path.write_text("rome\titaly\t3\nbig\tbigger\tmuch\nitaly\tfrance\t9\n")
    with pytest.warns(UserWarning, match=r"1 lines are not two words and a number .* \(line 2\)"):
        scores = evaluate_similarity(small, path)
    assert scores.pearson == pytest.approx(1)
    assert scores.compared == 2


def test_unit_rows():
    """In float64 to the last place; zeros stay zeros."""
    matrix = np.random.default_rng(0).standard_normal((9, 300)).astype(np.float32)
    matrix[4] = 0
    unit = unit_rows(matrix)
    wide = matrix.astype(np.float64)
    norms = np.linalg.norm(wide, axis=1, keepdims=True)
    np.testing.assert_allclose(unit, wide / np.where(norms, norms, 1), rtol=3e-7)
    assert not unit[4].any()
