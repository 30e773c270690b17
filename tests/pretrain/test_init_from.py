"""A model that goes on with another vocabulary: known words keep their rows, new ones are sampled, the biLM stays."""

import copy
import dataclasses
import math
import pathlib
import shutil

import numpy as np
import pytest
import torch
import yaml

from elmo_fast import ElmoEmbedder
from elmo_fast.checkpoints import load_checkpoint, read_adagrad_sums, save_folder, saved_steps
from elmo_fast.corpus import read_corpus
from elmo_fast.errors import ElmoFastError
from elmo_fast.pretrain.checkpoint import read_training_state
from elmo_fast.pretrain.config import PretrainConfig
from elmo_fast.pretrain.dry_run import dry_run
from elmo_fast.pretrain.evaluate import evaluate
from elmo_fast.pretrain.init_from import Origin, load_origin, move_rows
from elmo_fast.pretrain.language_model import LanguageModel, options_of
from elmo_fast.pretrain.run import pretrain
from elmo_fast.text import Vocabulary
from tests.pretrain.toy import quiet, toy_config
from tests.support.manylangs import write_model
from tests.support.tensor_bundle import arrays_of, write_checkpoint
from tests.support.weights import make_weights

OLD = ["<S>", "</S>", "<UNK>", "the", "cat", "sat", "."]
NEW = ["heart", "<UNK>", "the", "</S>", "lung", ".", "<S>", "sat"]  # the markers have other ids too
KNOWN = [word for word in NEW if word in OLD]


def adapted(read="characters", words=NEW, seed=0, **training):
    """A random state of OLD's words; that of a model of other words which goes on from it; what is said."""
    torch.manual_seed(3)
    config, lines = toy_config(input=read).model, []
    options = options_of(config, len(OLD))
    first = LanguageModel(options)
    second = LanguageModel(options_of(config, len(words), **training), counts=torch.ones(len(words)))
    torch.nn.init.normal_(first.softmax_bias)
    state = {name: tensor.clone() for name, tensor in first.checkpoint_state().items()}
    weights = {**first.checkpoint_state(), "scalar_mix_0.gamma": torch.ones(1)}
    origin = Origin(pathlib.Path("old"), weights, options, config, Vocabulary(OLD), {})
    origin.initialise(second, Vocabulary(words), seed, lines.append)
    assert all(torch.equal(tensor, state[name]) for name, tensor in first.checkpoint_state().items())
    return state, second.checkpoint_state(), lines


@pytest.mark.parametrize("read", ["characters", "words"])
def test_known_words_keep_row_and_bias_under_their_new_ids(read):
    """Also a model of word ids and its vectors, which follow the padding's; all other tensors are the same."""
    state, actual, lines = adapted(read)
    tables = {"softmax.weight": 0, "softmax.bias": 0} | ({"_word_embedding.weight": 1} if read == "words" else {})
    for name, first in tables.items():
        new, old = actual[name][first:], state[name][first:]
        assert all(torch.equal(new[NEW.index(word)], old[OLD.index(word)]) for word in KNOWN), name
        for word in set(NEW) - set(OLD):
            row = new[NEW.index(word)]
            assert not row.any() if name == "softmax.bias" else not (row == old).all(1).any(), name
    said = "6 of 8 words (75.0%) keep their row of the softmax, 2 are new, 1 rows are dropped"
    assert lines == [f"init   from old: {said}"]
    said = "0 of 8 words (0.0%) keep their row of the softmax, 8 are new, 0 rows are dropped"
    assert adapted(read, loss="hierarchical_softmax")[2] == [f"init   from old: {said}"]
    if read == "words":
        assert not actual["_word_embedding.weight"][0].any()
        drawn = actual["_word_embedding.weight"][[NEW.index(word) + 1 for word in set(NEW) - set(OLD)]]
        assert drawn.abs().max() <= (6 / 16) ** 0.5
    assert actual.keys() == state.keys()
    assert all(torch.equal(actual[name], state[name]) for name in state.keys() - tables)


def test_new_rows_are_normal_with_variance_1_over_d_and_come_from_the_seed():
    """Mean and deviation of 16,000 numbers within five standard errors."""
    words = [*OLD[:3], *(f"word{i}" for i in range(2000))]
    first, again, other = (adapted(words=words, seed=seed)[1]["softmax.weight"] for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not (first[3:] == other[3:]).any()
    rows, deviation = first[3:], 1 / math.sqrt(first.shape[1])
    assert abs(rows.mean()) < 5 * deviation / math.sqrt(rows.numel())
    assert abs(rows.std() / deviation - 1) < 5 / math.sqrt(2 * rows.numel())


def test_weights_that_were_rounded_to_int8_are_named(tmp_path):
    save_folder(tmp_path, adapted()[0], options_of(toy_config().model, len(OLD)), precision="int8")
    (tmp_path / "vocab.txt").write_text("\n".join(OLD) + "\n")
    config = toy_config()
    config.run.init_from = str(tmp_path)
    with pytest.warns(UserWarning, match="its weights were rounded to int8 when they were written"):
        load_origin(config)


@pytest.mark.parametrize("read", ["characters", "words"])
def test_a_vocabulary_of_the_same_size_is_not_taken_for_the_models_own(tmp_path, read):
    """A run's model knows a digest of its words: vocab.txt with two words exchanged is refused by all that read it."""
    run = pretrain(toy_config(tmp_path, input=read, max_steps=1), report=quiet)
    words = run.vocabulary.words
    Vocabulary([*words[:-2], *reversed(words[-2:])]).write(run.folder / "vocab.txt")
    refusal = "must have the 19 words that the model was trained with, in their order; got as many"
    with pytest.raises(ElmoFastError, match=rf"init_from: .*vocab\.txt {refusal}"):
        pretrain(toy_config(tmp_path, init_from=str(run.folder), save_dir=str(tmp_path / "new")), report=quiet)
    model = LanguageModel.from_pretrained(run.folder)
    corpus = read_corpus(str(tmp_path / "train-0.txt"), Vocabulary.read(run.folder / "vocab.txt"))
    with pytest.raises(ElmoFastError, match=refusal):
        evaluate(model, corpus)
    if read == "words":
        with pytest.raises(ElmoFastError, match=refusal):
            ElmoEmbedder.from_pretrained(run.folder)


@pytest.mark.filterwarnings("ignore:.* are outside the vocabulary")
def test_a_run_of_bilm_tf_goes_on_with_its_sums(tmp_path):
    """Weights and AdaGrad's sums are those of its checkpoint, by words where the vocabulary changes; vocab_file is its
    vocabulary where it has none beside it; sums only grow in the first steps."""
    words = [*OLD[:3], "the", "cat", "on", "rug"]
    _, weights = make_weights(
        tmp_path / "hdf5", cell=12, char_dim=5, filters=((1, 4), (2, 6)), n_highway=1, softmax=7, n_characters=261
    )
    folder = tmp_path / "tf"
    folder.mkdir()
    (tmp_path / "hdf5" / "options.json").rename(folder / "options.json")
    (tmp_path / "old.txt").write_text("\n".join(words) + "\n")
    arrays, rng = arrays_of(weights), np.random.default_rng(2)
    slots = {name: rng.uniform(1, 9, array.shape).astype("f4") for name, array in arrays.items()}
    index = write_checkpoint(folder, arrays, slots=slots)
    settings = {"init_from": str(folder), "max_steps": 2, "checkpoint_interval": 2}
    with pytest.raises(ElmoFastError, match="the vocabulary of 7 words that the model was trained with is missing"):
        pretrain(toy_config(tmp_path, **settings), report=print)
    lines = []
    run = pretrain(toy_config(tmp_path, vocab_file=str(tmp_path / "old.txt"), **settings), report=lines.append)
    assert f"init   AdaGrad's sums of {folder} are kept" in lines
    sums = read_adagrad_sums(index, load_checkpoint(folder)[1])
    after = read_training_state(saved_steps(run.folder)[-1][1]).optimizer
    pairs = [(name, after[f"sum/{STATE.get(name, f'bilm.{name}')}"]) for name in sums]
    assert all((actual >= sums[name]).all() for name, actual in pairs)
    assert all(actual.gt(sums[name]).any() for name, actual in pairs if "input_linearity" in name)
    assert after["sum/softmax_weight"][3].gt(sums["softmax.weight"][3]).any()  # "the" was a target
    (folder / "vocab.txt").write_text("\n".join(words) + "\n")
    (tmp_path / "new.txt").write_text("\n".join([*OLD[:3], "rug", "heart", "the"]) + "\n")
    adapted = {"softmax.weight": torch.full((6, sums["softmax.weight"].shape[1]), 1.5)}
    assert move_rows(sums, adapted, Vocabulary(words), Vocabulary([*OLD[:3], "rug", "heart", "the"])) == 5
    assert torch.equal(adapted["softmax.weight"][[3, 5]], sums["softmax.weight"][[6, 3]])
    assert (adapted["softmax.weight"][4] == 1.5).all()
    other = toy_config(
        tmp_path, vocab_file=str(tmp_path / "new.txt"), **settings, optimiser="adamw", save_dir=str(tmp_path / "b")
    )
    other.optimizer.learning_rate = 0.01
    pretrain(other, report=lines.append)
    assert f"init   AdaGrad's sums of {folder} are left out: the optimiser is another" in lines
    shutil.copy(weights, folder)
    assert not load_origin(other).sums, "the HDF5 file is read before a checkpoint of TensorFlow"


STATE = {"softmax.weight": "softmax_weight", "softmax.bias": "softmax_bias"}


@pytest.mark.parametrize("optimiser", ["adagrad", "adamw"])
def test_the_softmax_alone_is_trained(optimiser, tmp_path):
    """Of a model without one, so that it can predict; its vectors stay, also when the run resumes."""
    make_weights(tmp_path / "hdf5", cell=12, char_dim=5, filters=((1, 4), (2, 6)), n_highway=1)
    before, _ = load_checkpoint(tmp_path / "hdf5")
    changes = {"init_from": str(tmp_path / "hdf5"), "train_bilm": False, "optimiser": optimiser}
    tables = []
    for steps in (1, 3):
        model = pretrain(toy_config(tmp_path, max_steps=steps, **changes), report=quiet).model
        after = model.checkpoint_state()
        assert all(torch.equal(after[name], before[name]) for name in before)
        assert {name for name, _ in model.trained()} == set(STATE.values())
        tables.append(after["softmax.weight"].clone())
    assert not torch.equal(*tables)
    with pytest.raises(ElmoFastError, match=r"of another run: train_bilm was False, now True; give what it was"):
        pretrain(toy_config(tmp_path, max_steps=4, **changes | {"train_bilm": True}), report=quiet)


@pytest.mark.parametrize(("encoder", "char_dim"), [("elmo", 4), ("lstm", 0)])
def test_a_model_of_lexicons_is_refused(encoder, char_dim, tmp_path):
    """Neither its input nor, of the encoder "lstm", its LSTM can be trained here."""
    config = toy_config()
    config.run.init_from = str(write_model(tmp_path / "model", encoder, char_dim=char_dim))
    with pytest.raises(ElmoFastError, match="cannot be pretrained further: its characters and words are those of"):
        load_origin(config)
    options = load_checkpoint(config.run.init_from)[1]
    with pytest.raises(ElmoFastError, match="options must be of a model that reads bytes or word ids"):
        LanguageModel(dataclasses.replace(options, n_tokens_vocab=5))


@pytest.mark.filterwarnings("ignore:.* are outside the vocabulary")
def test_a_run_from_a_model_takes_its_architecture_and_resumes(tmp_path):
    """On the same text with other words, whatever sizes its configuration names."""
    first = pretrain(toy_config(tmp_path), report=quiet)
    (tmp_path / "words.txt").write_text("<S>\n</S>\n<UNK>\ndog\nthe\nunheard\n.\nsat\n")
    changes = {"save_dir": str(tmp_path / "second"), "vocab_file": str(tmp_path / "words.txt"), "dim": 99}
    changes |= {"init_from": str(first.folder), "learning_rate": 1e-30, "checkpoint_interval": 1}
    lines, lstm = [], "_elmo_lstm.forward_layer_0.state_linearity.weight"
    for steps in (1, 2):
        second = pretrain(toy_config(tmp_path, max_steps=steps, **changes), report=lines.append)
        old, new = (run.model.checkpoint_state() for run in (first, second))
        torch.testing.assert_close(new[lstm], old[lstm])
        row = second.vocabulary.id("dog"), first.vocabulary.id("dog")
        torch.testing.assert_close(new["softmax.weight"][row[0]], old["softmax.weight"][row[1]])
    assert sum("the architecture is that of" in line and "dim" in line for line in lines) == 1, "where it begins"
    assert sum("resumes after step 1" in line for line in lines) == 1
    assert sum("init_from and vectors_file are not read again: the run continues" in line for line in lines) == 1
    pretrain(toy_config(tmp_path, max_steps=3, **changes | {"dim": 12, "init_from": None}), report=quiet)
    assert "| started from | out |" in (second.folder / "README.md").read_text(), "also where it is not named again"


def test_a_run_completes_its_configuration_and_leaves_the_given_one_alone(tmp_path):
    """With the origin's architecture and tokenizer and a loss for few words; a dry run plans the same model."""
    first = pretrain(toy_config(tmp_path, tokenizer="basic", max_steps=1), report=quiet)
    changes = {"save_dir": str(tmp_path / "second"), "init_from": str(first.folder), "dim": 99, "max_steps": 1}
    config = toy_config(tmp_path, n_negative_samples_batch=50, **changes)
    before, planned, lines = copy.deepcopy(config), [], []
    dry_run(config, report=planned.append)
    second = pretrain(config, report=lines.append)
    assert config == before
    complete = PretrainConfig.from_flat(yaml.safe_load((second.folder / "pretrain.yaml").read_text()))
    assert (complete.model.dim, complete.data.tokenizer, complete.optimizer.loss) == (12, "basic", "full_softmax")
    for start in ("init   the architecture is that of", "loss   full_softmax: the vocabulary has", "train  "):
        (plan,), (line,) = ([line for line in each if line.startswith(start)] for each in (planned, lines))
        assert plan == line
