"""Analogies and similarity give gensim's numbers, section by section, and say how many questions they speak of."""

import json

import numpy as np
import pytest

from elmo_fast.embed.layers import unit_rows
from elmo_fast.errors import ElmoFastError
from elmo_fast.static import Vectors, evaluate_analogies, evaluate_similarity
from elmo_fast.static.evaluation import SIMLEX999, WORDSIM353


@pytest.fixture(scope="module")
def gensim_data():
    """gensim's datapath."""
    return pytest.importorskip("gensim.test.utils", reason="gensim is not installed").datapath


@pytest.mark.parametrize("unknown", [False, True])
@pytest.mark.parametrize("case_insensitive", [True, False])
def test_equal_to_gensim_with_its_sets_as_the_default(gensim_data, unknown, case_insensitive):
    """Each option reaches gensim: counts of all sections, both correlations, and the known part of each set."""
    with open(gensim_data("questions-words.txt"), encoding="utf-8") as questions, open(gensim_data(SIMLEX999)) as pairs:
        asked = [line.split() for line in questions if line[0] != ":"]
        known = [*dict.fromkeys(word for four in asked for word in four)][::2]
        words = [
            *dict.fromkeys([*known, *map(str.lower, known[:60]), *(w for line in pairs for w in line.split()[:2])])
        ]
    matrix = np.random.default_rng(1).standard_normal((len(words), 12)).astype(np.float32)
    vectors, settings = Vectors(words, matrix), {"restrict_vocab": 300, "case_insensitive": case_insensitive}
    for a, b, *_ in asked:
        if a in vectors and b in vectors:
            matrix[vectors.index[b]] = matrix[vectors.index[a]] + 2  # so that some answers are right
    keyed = vectors.to_gensim()
    accuracy, sections = keyed.evaluate_word_analogies(
        gensim_data("questions-words.txt"), dummy4unknown=unknown, **settings
    )
    actual = evaluate_analogies(vectors, unknown_as_wrong=unknown, **settings)
    expected = [(s["section"], len(s["correct"]), len(s["correct"]) + len(s["incorrect"])) for s in sections[:-1]]
    assert [part[:3] for part in actual.sections] == expected
    assert actual.total.accuracy == accuracy > 0
    assert actual.total.correct == actual.semantic.correct + actual.syntactic.correct
    assert [part.questions for part in actual[1:]] == [8869, 10675, 19544]  # Mikolov et al. 2013, section 4.1.
    settings["restrict_vocab"] = None
    for name in (None, SIMLEX999):
        path = gensim_data(name or WORDSIM353)
        (pearson, _), (spearman, _), left_out = keyed.evaluate_word_pairs(path, dummy4unknown=unknown, **settings)
        scores = evaluate_similarity(vectors, name and path, unknown_as_zero=unknown, **settings)
        np.testing.assert_allclose((scores.pearson, scores.spearman), (pearson, spearman), atol=1e-4)
        assert scores.compared > 20
        assert 100 * (1 - scores.coverage) == pytest.approx(left_out)


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
    with pytest.warns(UserWarning, match=r"questions.txt: every question has a word without a vector"):
        nothing = evaluate_analogies(Vectors(["x"], np.ones((1, 2), np.float32)), path)
    assert nothing.total == ("total", 0, 0, 3)
    assert nothing.total.accuracy is None
    assert "    none      0.0%  0 / 0 / 3" in nothing.table()


@pytest.mark.parametrize("change", ["\ufeff{}", " {}", "{}", "\n{}"], ids=["mark", "space", "plain", "blank line"])
def test_what_is_scored_is_what_was_parsed(tmp_path, small, change):
    """A byte order mark, white space, other line ends and an empty section change no score."""
    pytest.importorskip("gensim", reason="gensim is not installed")
    path, pairs = tmp_path / "questions.txt", "rome\titaly\t3\nbig\tbigger\t1\nitaly\tfrance\t9\nbig\tsmall\t4\n"
    path.write_text(change.format(QUESTIONS + ":  none\n").replace("\n", "\r\n"), "utf-8", newline="")
    scores = evaluate_analogies(small, path)
    assert [part[1:] for part in (*scores.sections, scores.total)] == [(1, 1, 2), (1, 1, 1), (0, 0, 0), (2, 2, 3)]
    path.write_text(pairs)
    expected = evaluate_similarity(small, path)
    path.write_text(change.format(pairs), "utf-8")
    assert evaluate_similarity(small, path) == expected
    assert expected.compared == 4


PUBLISHED = {  # a few lines of each file, with the words of `small`
    "SimLex-999.txt": "word1\tword2\tPOS\tSimLex999\tconc(w1)\tconcQ\nrome\titaly\tN\t3.5\t1\t2\n"
    "big\tsmall\tA\t9\t2.72\t1\nitaly\tfrance\tV\t6.25\t4\t2\n",
    "combined.csv": "Word 1,Word 2,Human (mean)\nrome,italy,3.5\nbig,small,9\nitaly,france,6.25\n",
    "quoted.csv": 'Word 1,Word 2,"Human, mean"\n"rome","italy","3.5"\nbig,"small",9\n"italy",france,6.25\n',
    "set1.csv": "Word 1,Word 2,Human (mean),1,2\nrome,italy,3.5,9,8\nbig,small,9,1,1\nitaly,france,6.25,4,2\n",
    "combined.tab": "Word 1\tWord 2\tHuman (mean)\nrome\titaly\t3.5\nbig\tsmall\t9\nitaly\tfrance\t6.25\n",
    "wordsim_similarity_goldstandard.txt": "rome\titaly\t3.5\nbig\tsmall\t9\nitaly\tfrance\t6.25\n",
    "MEN_dataset_natural_form_full": "rome italy 3.500000\nbig small 9.000000\nitaly france 6.250000\n",
    "MEN_dataset_lemma_form_full": "rome-n italy-n 3.500000\nbig-j small-j 9.000000\nitaly-n france-v 6.250000\n",
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_pairs_are_read_as_they_come(tmp_path, small, name):
    """Every pair with its own score: in all layouts the correlation is that of the cosines with 3.5, 9 and 6.25."""
    pytest.importorskip("gensim", reason="gensim is not installed")
    (tmp_path / name).write_text(PUBLISHED[name])
    scores, unit = evaluate_similarity(small, tmp_path / name), unit_rows(small.matrix)
    pairs = [("rome", "italy"), ("big", "small"), ("italy", "france")]
    cosines = [unit[small.index[a]] @ unit[small.index[b]] for a, b in pairs]
    assert (scores.compared, scores.pairs) == (3, 3)
    assert scores.pearson == pytest.approx(np.corrcoef(cosines, [3.5, 9, 6.25])[0, 1], abs=1e-5)


@pytest.mark.filterwarnings("ignore:An input array is constant")
def test_one_hot_vectors_know_only_whether_words_are_equal(tmp_path, small):
    """No correlation; a pair of a word with itself has cosine 1. Coverage is that of the vectors."""
    pytest.importorskip("gensim", reason="gensim is not installed")
    path = tmp_path / "pairs.tsv"
    path.write_text("italy\tfrance\t3\nbig\tbigger\t1\nrome\tatlantis\t1\n")
    scores = evaluate_similarity(small, path, one_hot=True)
    assert (scores.as_dict()["spearman"], scores.compared, scores.unknown) == (None, 2, 1)
    path.write_text("italy\tfrance\t3\nbig\tbigger\t1\nRome\trome\t9\n")
    assert evaluate_similarity(small, path, one_hot=True).pearson == pytest.approx(
        np.corrcoef([0, 0, 1], [3, 1, 9])[0, 1]
    )


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
    path.write_text("rome\tatlantis\t1\n")
    with pytest.warns(UserWarning, match=r"pairs.tsv: every pair has a word without a vector"):
        assert evaluate_similarity(small, path).compared == 0
    path.write_text("rome\titaly\t3\nrome\tatlantis\t1\n")
    assert evaluate_similarity(small, path).as_dict() == {
        "pearson": None, "spearman": None, "compared": 1, "unknown": 1, "pairs": 2, "coverage": 0.5
    }  # fmt: skip
    path.write_text("rome\titaly\t3\nbig\tbigger\tmuch\nitaly\tfrance\t9\nbig\tsmall\tnan\nbig\trome\tinf\n")
    with pytest.warns(UserWarning, match=r"3 lines are not two words and a finite number .* \(line 2\)"):
        scores = evaluate_similarity(small, path)
    assert scores.pearson == pytest.approx(1)
    assert scores.compared == 2
