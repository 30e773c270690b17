"""ElmoVectorizer: scikit-learn's own checks, pipelines, grid search, clones, pickles, and texts of every kind."""

import pickle
import warnings

import numpy as np
import pytest

sklearn = pytest.importorskip("sklearn", reason="needs scikit-learn, which is not installed")
from sklearn.base import clone
from sklearn.exceptions import NotFittedError, SkipTestWarning
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import check_estimator

from elmo_fast import ElmoEmbedder
from elmo_fast.errors import ElmoFastError
from elmo_fast.integrations.sklearn import ElmoVectorizer

TEXTS = ["I like Berlin", "So do I .", "rain and wind", "", "sun", "wind  and\train"]


class OfNumbers(ElmoVectorizer):
    """The vectorizer for scikit-learn's checks, which hand out tables of numbers: each number becomes a word."""

    def _sentences(self, texts, vectors):
        from sklearn.utils.validation import validate_data

        table = validate_data(self, texts, reset=self._fitting, dtype=np.float64)
        return super()._sentences([[f"{number:.3g}" for number in row] for row in table], vectors)

    _fitting = False

    def fit(self, X, y=None):
        type(self)._fitting = True
        try:
            return super().fit(X)
        finally:
            type(self)._fitting = False

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.string, tags.input_tags.two_d_array, tags.requires_fit = False, True, True
        return tags


def test_scikit_learns_checks_of_a_transformer(model):
    """All of check_estimator's, on the class that spells numbers as words; those that fail are as many as named."""
    expected = {"check_transformers_unfitted": "stateless: transform needs no fit, as of HashingVectorizer"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = check_estimator(OfNumbers(model), on_fail=None, expected_failed_checks=expected)
    failed = {result["check_name"]: result["exception"] for result in results if result["status"] == "failed"}
    assert failed == {}
    assert {result["check_name"] for result in results if result["status"] == "xfail"} == set(expected)
    assert sum(result["status"] == "passed" for result in results) > 40


def test_scikit_learns_checks_of_the_class_itself(model):
    """scikit-learn can clone it and reports that it has no texts, as for any vectorizer of texts."""
    with pytest.warns(SkipTestWarning, match="Can't test estimator ElmoVectorizer"):
        results = check_estimator(ElmoVectorizer(model))
    assert {result["status"] for result in results} == {"passed"}


@pytest.mark.parametrize("pool", ["mean", "max"])
@pytest.mark.parametrize("layers", ["average", "top", "all"])
def test_vectors_are_the_pooled_ones_of_the_tokens(model, truth, layers, pool):
    got = ElmoVectorizer(model, layers=layers, pool=pool, batch_size=2).fit_transform(TEXTS)
    expected = [getattr(truth(t.split(), layers), pool)(axis=0) if t else np.zeros(got.shape[1]) for t in TEXTS]
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)


def test_texts_token_lists_and_arrays_are_the_same(model):
    vectorizer = ElmoVectorizer(model)
    expected = vectorizer.transform(TEXTS)
    for same in ([t.split() for t in TEXTS], tuple(TEXTS), np.array(TEXTS), np.array(TEXTS, object), iter(TEXTS)):
        np.testing.assert_array_equal(vectorizer.transform(same), expected)
    np.testing.assert_array_equal(vectorizer.transform(["So do I."]), expected[1:2])
    for tokenizer in (str.split, "whitespace"):
        by_space = ElmoVectorizer(model, tokenizer=tokenizer)
        np.testing.assert_array_equal(by_space.transform(["So do I."]), by_space.transform([["So", "do", "I."]]))
    with pytest.raises(ElmoFastError, match=r"tokenizer must be one of .*; got 'white'"):
        ElmoVectorizer(model, tokenizer="white").fit(TEXTS)
    by_letter = ElmoVectorizer(model, tokenizer=list).transform(["abc"])
    np.testing.assert_array_equal(by_letter, vectorizer.transform([["a", "b", "c"]]))
    assert vectorizer.transform([]).shape == (0, 16)


def test_pipeline_and_grid_search(model):
    """A search over the layers finds the way that separates, and the names of the columns come through."""
    texts, labels = ["good day"] * 6 + ["bad night"] * 6, [1] * 6 + [0] * 6
    pipeline = make_pipeline(ElmoVectorizer(model), LogisticRegression())
    search = GridSearchCV(pipeline, {"elmovectorizer__layers": ["top", "all"]}, cv=2).fit(texts, labels)
    assert search.best_score_ == 1
    names = search.best_estimator_[:-1].get_feature_names_out()
    assert list(names[:2]) == ["elmo_0", "elmo_1"]
    assert len(names) == search.best_estimator_[:-1].transform(texts).shape[1]


def test_a_table_of_vectors_is_that_of_encode(model):
    """The columns and, of a Series, the index; names are known after fit."""
    pandas = pytest.importorskip("pandas")
    texts = pandas.Series(TEXTS, index=list("uvwxyz"))
    vectorizer = ElmoVectorizer(model, pool="max").set_output(transform="pandas")
    with pytest.raises(NotFittedError):
        vectorizer.get_feature_names_out()
    expected = ElmoEmbedder.from_pretrained(model).encode(texts, "max", "pandas")
    pandas.testing.assert_frame_equal(vectorizer.fit_transform(texts), expected, rtol=1e-5)


def test_clone_and_pickle_hold_no_weights(model):
    fitted = ElmoVectorizer(str(model), pool="max").fit(TEXTS)
    data = pickle.dumps(fitted)
    assert len(data) < 1000
    for again in (pickle.loads(data), clone(fitted)):
        assert again.get_params() == fitted.get_params()
        np.testing.assert_array_equal(again.transform(TEXTS), fitted.transform(TEXTS))


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        ("one text", "X must be a list of sentences, each a string or a list of words; got the string 'one text'"),
        (["a", None], r"X\[1\] must be a string or a list of words; got None"),
    ],
)
def test_what_is_no_text(model, texts, words):
    for method in ("fit", "transform"):
        with pytest.raises(ElmoFastError, match=words):
            getattr(ElmoVectorizer(model), method)(texts)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"model": None}, "ElmoVectorizer needs a model"),
        ({"model": "nowhere"}, "nowhere: wanted a folder"),
        ({"pool": "sum"}, "pool must be one of mean, max, first_last; got 'sum'"),
    ],
)
def test_arguments_out_of_range(model, arguments, words):
    """Said by fit, as scikit-learn wants it, and not by the constructor."""
    vectorizer = ElmoVectorizer(**{"model": model, **arguments})
    with pytest.raises(ElmoFastError, match=words):
        vectorizer.fit(TEXTS)
