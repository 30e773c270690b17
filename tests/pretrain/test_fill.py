"""Words for a gap, probabilities of tokens, sampled sentences: by hand from the model, and against its evaluation."""

import pytest
import torch

from elmo_fast.corpus import encode
from elmo_fast.errors import ElmoFastError
from elmo_fast.op_choices import LOSS_KINDS
from elmo_fast.pretrain.corpora import target_counts
from elmo_fast.pretrain.evaluate import evaluate
from elmo_fast.pretrain.language_model import LanguageModel, make_language_model
from elmo_fast.pretrain.run import pretrain
from tests.pretrain.toy import SENTENCES, quiet, toy_config, toy_corpus

WORDS = ["the", "cat", "sat", "on", "the", "rug", "."]


def model_of(loss="sampled_softmax", **changes):
    corpus = toy_corpus()
    config = toy_config(loss=loss, **changes)
    model = make_language_model(config, len(corpus.vocabulary), counts=target_counts(corpus))
    model.vocabulary = corpus.vocabulary
    for parameter in model.bilm.parameters():  # else nothing depends on the words
        parameter.data.mul_(3)
    return model


@pytest.mark.parametrize("loss", LOSS_KINDS)
def test_scores_are_those_of_the_evaluation(loss):
    """Both sum the losses of every token and of one end in each direction."""
    model = model_of(loss)
    scores = model.score(WORDS)
    expected = evaluate(model, encode([WORDS], model.vocabulary))
    assert [each.token for each in scores] == [*WORDS, "</S>"]
    for name, loss_per_word in (("forward", expected.forward_loss), ("backward", expected.backward_loss)):
        assert -sum(getattr(each, name) for each in scores) == pytest.approx(loss_per_word * 8, rel=1e-5)


@pytest.mark.parametrize("loss", LOSS_KINDS)
def test_probabilities_of_all_words_sum_to_one(loss):
    model = model_of(loss)
    torch.testing.assert_close(model.loss.log_probabilities(torch.randn(3, 8)).exp().sum(1), torch.ones(3))


@pytest.mark.parametrize("changes", [{}, {"input": "words"}])
def test_a_gap_is_filled_by_both_directions(changes):
    """The product of what either says of each word, over the words that are no markers."""
    model = model_of(**changes)
    words = [word for word in model.vocabulary.words if word not in ("<S>", "</S>", "<UNK>")]
    products = {}
    for word in words:
        each = model.score([*WORDS[:2], word, *WORDS[3:]])[2]
        products[word] = torch.tensor(each.forward + each.backward).exp().item()
    (filled,) = model.fill([*WORDS[:2], "___", *WORDS[3:]], topn=len(words))
    assert {each.word: pytest.approx(each.probability, rel=1e-4) for each in filled} == {
        word: product / sum(products.values()) for word, product in products.items()
    }
    assert [each.probability for each in filled] == sorted((each.probability for each in filled), reverse=True)
    assert model.fill(["the", "___", "on"], topn=2) == [model.fill(["the", "___", "on"])[0][:2]]


def test_a_gap_at_the_end_is_the_next_word():
    model = model_of()
    (filled,) = model.fill(["the", "___"], topn=99)
    chances = {word: model.score(["the", word])[1].forward for word in (each.word for each in filled)}
    assert max(chances, key=chances.get) == filled[0].word
    assert sum(each.probability for each in filled) == pytest.approx(1)


def test_a_sentence_is_sampled_by_the_forward_direction():
    """As often as its probability says; the model is as it was afterwards."""
    model = model_of().train()
    generator = torch.Generator().manual_seed(0)
    drawn = [[*model.sample(["the"], generator=generator), "</S>"][1] for _ in range(300)]
    inner = torch.tensor([each.forward for each in model.score(["the", "cat"])]).exp()
    assert drawn.count("cat") / 300 == pytest.approx(inner[1].item(), abs=0.08)
    assert not {"<S>", "<UNK>"} & set(drawn)
    assert model.training


def test_a_run_can_be_asked(tmp_path):
    config = toy_config(tmp_path)
    pretrain(config, report=quiet)
    model = LanguageModel.from_pretrained(tmp_path / "out")
    assert len(model.fill(["the", "___", "."])[0]) == 5
    with pytest.raises(ElmoFastError, match='tokens must have a gap, "___"'):
        model.fill(["the"])
    model.vocabulary = None
    with pytest.raises(ElmoFastError, match=r"keep vocab.txt beside"):
        model.score(["the"])


def test_each_evaluation_shows_what_the_model_puts_into_three_gaps(tmp_path):
    """Of the same sentences each time, the longest word taken out."""
    config, lines = toy_config(tmp_path, heldout_prefix=str(tmp_path / "train-*"), heldout_interval=2), []
    pretrain(config, report=lines.append)
    gaps = [line.removeprefix("gap    ") for line in lines if line.startswith("gap ")]
    assert len(gaps) == 6
    assert [line.split(":")[0] for line in gaps[:3]] == [line.split(":")[0] for line in gaps[3:]]
    sentences = {sentence.replace(max(sentence.split(), key=len), "___", 1) for sentence in SENTENCES}
    for line in gaps:
        assert line.split(":")[0] in sentences
        assert line.count("%") == 3
