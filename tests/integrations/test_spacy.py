"""The component "elmo_fast" in real pipelines: vectors, hooks, other components' things, files, odd Docs."""

import numpy as np
import pytest
import torch

spacy = pytest.importorskip("spacy", reason="needs spaCy, which is not installed")
from spacy.language import Language
from spacy.tokens import Doc

from elmo_fast.errors import CheckpointError, ElmoFastError
from elmo_fast.integrations import spacy as integration

TEXTS = ["I like Berlin.", "", "So  do\n\nI", " \n ", "Rain and wind, wind and rain. Sun!"]


def pipeline(model, *before, **config):
    """A blank English pipeline with the component behind those of `before`."""
    nlp = spacy.blank("en")
    for name in before:
        nlp.add_pipe(name)
    nlp.add_pipe("elmo_fast", config={"model": str(model), **config})
    return nlp


def expected(doc, truth, layers="average"):
    """Return the expected doc.tensor: each sentence by itself without its white space, which has zeros."""
    table = np.zeros((len(doc), len(truth(["a"], layers)[0])))
    for span in doc.sents if doc.has_annotation("SENT_START") else [doc]:
        words = [token for token in span if not token.is_space]
        if words:
            table[[token.i for token in words]] = truth([token.text for token in words], layers)
    return table


@Language.component("own_tensor")
def own_tensor(doc):
    doc.tensor = np.full((len(doc), 3), 7, np.float32)
    return doc


@Language.component("own_hook")
def own_hook(doc):
    doc.user_token_hooks["vector"] = lambda token: np.full(2, 5.0)
    return doc


@pytest.mark.parametrize("before", [(), ("sentencizer",)])
@pytest.mark.parametrize("layers", ["average", "all"])
def test_tensor_and_vectors(model, truth, before, layers):
    """By nlp and by nlp.pipe; empty Docs, white space alone and between words; with sentences and without."""
    nlp = pipeline(model, *before, layers=layers)
    for docs in ([nlp(text) for text in TEXTS], list(nlp.pipe(TEXTS, batch_size=2))):
        assert [doc.text for doc in docs] == TEXTS
        for doc in docs:
            table = expected(doc, truth, layers)
            np.testing.assert_allclose(doc.tensor, table, rtol=1e-5, atol=1e-5)
            assert doc.tensor.dtype == np.float32
            mean = table.mean(axis=0) if len(table) else np.zeros(table.shape[1])
            np.testing.assert_allclose(doc.vector, mean, rtol=1e-5, atol=1e-5)
            for token in doc:
                np.testing.assert_array_equal(token.vector, doc.tensor[token.i])
    assert len(list(docs[-1].sents)) == 2 if before else True
    np.testing.assert_allclose(docs[-1][1:3].vector, docs[-1].tensor[1:3].mean(axis=0), rtol=1e-5)


@pytest.mark.parametrize("before", [(), ("own_tensor",)])
@pytest.mark.filterwarnings("ignore:.*W109")
def test_a_doc_that_lost_its_hooks_has_the_same_vectors(model, before):
    """From to_bytes, as with n_process=2; the vectors behind another's tensor, and similarity, after set_hooks."""
    nlp = pipeline(model, *before)
    docs = [nlp("So  do\n\nI"), nlp("I like Berlin")]
    bare = [Doc(nlp.vocab).from_bytes(doc.to_bytes()) for doc in docs]
    if before:
        for doc in bare:
            integration.set_hooks(doc)
    for doc, actual in zip(docs, bare, strict=True):
        for part, same in ((doc, actual), (doc[1:4], actual[1:4]), (doc[0], actual[0])):
            np.testing.assert_allclose(same.vector, part.vector, rtol=1e-6)
    integration.set_hooks(bare[0])
    assert bare[0].similarity(bare[1]) == docs[0].similarity(docs[1])
    with pytest.raises(ElmoFastError, match="this Doc of 3 tokens has no vectors of elmo_fast"):
        integration.set_hooks(nlp.make_doc("I like Berlin"))


def test_a_tensor_of_another_component_stays(model, truth):
    """Then the vectors are behind the hooks and in user_data; a Doc cut out of it has none and says so."""
    doc = pipeline(model, "own_tensor")("I like Berlin")
    assert (doc.tensor == 7).all()
    np.testing.assert_allclose([token.vector for token in doc], expected(doc, truth), rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(doc.user_data["elmo_fast"][2], doc[2].vector)
    np.testing.assert_allclose(doc.vector, expected(doc, truth).mean(axis=0), rtol=1e-5, atol=1e-5)
    with pytest.raises(ElmoFastError, match="this Doc of 2 tokens was made from another after elmo_fast had run"):
        _ = doc[1:].as_doc()[0].vector


def test_a_hook_of_another_component_stays_and_a_warning_says_so(model, truth):
    nlp = pipeline(model, "own_hook")
    with pytest.warns(
        UserWarning, match=r"another component has set the vector hook of token: left as it is; .*tensor"
    ):
        doc = nlp("I like Berlin")
    assert doc[0].vector.tolist() == [5, 5]
    np.testing.assert_allclose(doc.tensor, expected(doc, truth), rtol=1e-5, atol=1e-5)


def test_docs_that_are_cut_merged_or_run_again(model):
    """Hooks read doc.tensor, which spaCy cuts and merges itself; running the component twice changes nothing."""
    nlp = pipeline(model)
    doc = nlp("I like New York")
    before = doc.tensor.copy()
    np.testing.assert_array_equal(doc[2:].as_doc()[0].vector, before[2])
    nlp.get_pipe("elmo_fast")(doc)
    np.testing.assert_array_equal(np.stack([token.vector for token in doc]), before)
    with doc.retokenize() as retokenizer:
        retokenizer.merge(doc[2:4])
    np.testing.assert_array_equal(doc[2].vector, doc.tensor[2])


def test_similarity_is_the_cosine_of_the_vectors_without_a_warning(model):
    """Similarity of Docs, spans and tokens, also for one word in two contexts; 0 for white space and for nothing."""
    nlp = pipeline(model)
    one, two, blank = nlp("I like Berlin"), nlp("Berlin like I"), nlp(" \n ")
    for a, b in ((one, two), (one[:2], two[1:]), (one[2], two[0]), (one[0], two), (two[1:], one[1]), (one[1], two[1])):
        expected = np.dot(a.vector, b.vector) / np.linalg.norm(a.vector) / np.linalg.norm(b.vector)
        assert a.similarity(b) == pytest.approx(expected, rel=1e-5)
        assert a.has_vector
        assert a.similarity(a) == pytest.approx(1, rel=1e-5)
        assert a.similarity(b) < 0.9999
    assert one.similarity(blank) == one[0].similarity(blank[0]) == nlp("").similarity(one) == 0
    assert not blank[0].has_vector
    other = pipeline(model, layers="all")("I like Berlin")
    with pytest.raises(ElmoFastError, match="has 16, 'I like Berlin' has 48; run the same elmo_fast on both"):
        one.similarity(other)


def test_a_saved_pipeline_holds_the_model(model, tmp_path):
    """to_disk, then spacy.load where the configuration's folder is gone; layers and all come back."""
    gone = tmp_path / "gone"
    gone.symlink_to(model)
    nlp = pipeline(gone, "sentencizer", layers=[2, 0])
    nlp.to_disk(tmp_path / "saved")
    gone.unlink()
    again = spacy.load(tmp_path / "saved")
    for text in TEXTS:
        np.testing.assert_array_equal(again(text).tensor, nlp(text).tensor)
    again.to_disk(tmp_path / "saved")  # over the files that it was read from
    np.testing.assert_array_equal(spacy.load(tmp_path / "saved")(TEXTS[0]).tensor, nlp(TEXTS[0]).tensor)


def test_a_model_that_is_not_there(tmp_path):
    """Said at the first Doc: until then from_disk may still bring the model."""
    nlp = pipeline(tmp_path / "typo")
    for process in (nlp, lambda text: list(nlp.pipe([text]))):
        with pytest.raises(CheckpointError, match="typo: wanted a folder"):
            process("a b")


def test_the_pipelines_error_handler_decides(model, monkeypatch):
    """As with spaCy's own components, a batch that fails goes to the handler, and the others come through."""
    nlp, failed = pipeline(model), []
    component = nlp.get_pipe("elmo_fast")
    annotate = component._annotate
    nlp.set_error_handler(lambda name, proc, docs, error: failed.append((name, [d.text for d in docs], str(error))))

    def sometimes(docs):
        if docs[0].text == "b":
            raise ElmoFastError("no")
        annotate(docs)

    monkeypatch.setattr(component, "_annotate", sometimes)
    assert [doc.text for doc in nlp.pipe(["a", "b", "c"], batch_size=1)] == ["a", "c"]
    assert failed == [("elmo_fast", ["b"], "no")]


def test_a_forked_process_cannot_use_the_gpu_and_says_so(model, monkeypatch):
    """As with n_process=2 once this process has used CUDA; with the CPU it can."""
    monkeypatch.setattr(torch.cuda, "_is_in_bad_fork", lambda: True)
    with pytest.raises(
        ElmoFastError, match=r"n_process starts processes by fork, in which CUDA cannot .* n_process at 1"
    ):
        pipeline(model, device="cuda")("a b")
    assert pipeline(model)("a b").tensor.any()
