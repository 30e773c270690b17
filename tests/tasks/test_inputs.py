"""Inputs that a trained task needs and does not hold: a changed biLM or changed vectors are noticed."""

import contextlib
import dataclasses
import functools
import json
import pathlib
import shutil
import warnings

import numpy as np
import pytest

from elmo_fast import BiLM, Elmo, ElmoEmbedder
from elmo_fast.checkpoints import load_checkpoint, save_folder
from elmo_fast.cli.main import main
from elmo_fast.errors import ElmoFastError
from elmo_fast.tasks import load_task, read_examples
from elmo_fast.tasks.run import evaluate_task, predict_task, train_task
from elmo_fast.text.tokenizers import RAW_TEXT_ADVICE
from tests.support.weights import make_weights
from tests.tasks.toy import silent, toy_config


def test_another_bilm_of_the_same_shape_is_refused(tmp_path):
    """By eval and predict, and by a run that would go on; the old one put back, all is as it was."""
    config = toy_config(tmp_path, epochs=1, elmo="input")
    result = train_task(config, silent)
    make_weights(tmp_path / "bilm", seed=1)
    with pytest.raises(ElmoFastError, match=r"was trained with other model: what '.*bilm' holds has changed since"):
        evaluate_task(config.save_dir, config.test_path)
    with pytest.raises(ElmoFastError, match="or what model or vectors hold"):
        train_task(config, silent)
    make_weights(tmp_path / "bilm")
    assert evaluate_task(config.save_dir, config.test_path) == result.test


@pytest.mark.parametrize("train_vectors", [False, True])
def test_other_vectors_are_refused(tmp_path, train_vectors):
    """Vectors of the same width, of another one, and with other words."""
    vectors = tmp_path / "vectors.txt"
    vectors.write_text("cat 2 1\nAnn 1 2\n")
    config = toy_config(tmp_path, epochs=1, vectors=str(vectors), train_vectors=train_vectors)
    train_task(config, silent)
    for changed in ("cat 1 2\nAnn 2 1\n", "cat 1 2 3\nAnn 2 1 3\n", "Ann 1 2\ncat 2 1\nsees 1 1\n"):
        vectors.write_text(changed)
        with pytest.raises(ElmoFastError, match=r"with other vectors: what '.*vectors.txt' holds has changed"):
            evaluate_task(config.save_dir, config.test_path)


def test_a_bilm_that_was_fine_tuned_is_in_the_task(tmp_path):
    """The folder that it comes from may be gone by then."""
    config = toy_config(tmp_path, epochs=1, elmo="input", fine_tune=True)
    result = train_task(config, silent)
    (tmp_path / "bilm").rename(tmp_path / "elsewhere")
    assert evaluate_task(config.save_dir, config.test_path) == result.test
    with pytest.raises(ElmoFastError, match=r"leave out --model: .* holds its biLM"):
        load_task(config.save_dir, model=tmp_path / "elsewhere")


def test_a_fine_tuned_bilm_is_a_model_like_any_other(tmp_path):
    """Commands and classes load it from the task's folder."""
    config = toy_config(tmp_path, epochs=1, elmo="input", fine_tune=True, elmo_learning_rate=0.01)
    train_task(config, silent)
    (tmp_path / "in.txt").write_text("the cat sees Ann\n")
    paths = [str(tmp_path / name) for name in ("in.txt", "out.npz")]
    assert main(["embed", *paths, "--average", "--format", "npz", "--model", config.save_dir]) == 0
    sentence = ["the", "cat", "sees", "Ann"]
    vectors, before = (
        ElmoEmbedder.from_pretrained(model, stateful=False).embed_sentence(sentence)
        for model in (config.save_dir, config.model)
    )
    assert not (vectors == before).all(), "training moved it"
    bilm = load_task(config.save_dir).model.elmo.bilm
    layers = bilm(bilm.batch_to_ids([sentence]))["activations"]
    assert all((layers[i][0, 1:-1].detach().numpy() == vectors[i]).all() for i in range(3))
    Elmo.from_pretrained(config.save_dir)


@pytest.mark.parametrize("changes", [{"elmo": "input", "word_dim": 0}, {"vectors": "vectors.txt"}])
def test_inputs_that_have_moved_are_named_at_eval_and_predict(tmp_path, monkeypatch, capsys, changes):
    """The same content is accepted from another path, other content is not; what a task does not use is refused."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "vectors.txt").write_text("cat 2 1\nAnn 1 2\n")
    config = toy_config(tmp_path, epochs=1, **changes)
    result = train_task(config, silent)
    name, other = ("model", "vectors") if "elmo" in changes else ("vectors", "model")
    pathlib.Path(getattr(config, name)).rename("moved")
    with pytest.raises(ElmoFastError, match=rf"with {name} .*; there is no .*: name its path with --{name}"):
        evaluate_task(config.save_dir, config.test_path)
    assert evaluate_task(config.save_dir, config.test_path, **{name: "moved"}) == result.test
    assert predict_task(config.save_dir, config.test_path, "out.conll", **{name: "moved"}) == 40
    with pytest.raises(ElmoFastError, match=rf"leave out --{other}: .* was trained without {other}"):
        load_task(config.save_dir, **{name: "moved", other: "moved"})
    options = [config.save_dir, config.test_path, f"--{name}", "moved"]
    assert main(["task", "eval", *options]) == 0
    assert main(["task", "predict", *options[:2], "again.conll", *options[2:]]) == 0
    assert pathlib.Path("again.conll").read_bytes() == pathlib.Path("out.conll").read_bytes()


@pytest.mark.parametrize("named", [False, True])
def test_a_task_is_used_again_from_anywhere_and_after_a_move(tmp_path, monkeypatch, named):
    """With the name of a model, or with relative paths: from another folder, and with the whole project elsewhere."""
    project = tmp_path / "project"
    config = toy_config(project, elmo="none" if named else "input", epochs=1, word_dim=0)
    monkeypatch.chdir(project)
    changes = {f"{split}_path": f"{split}.conll" for split in ("train", "dev", "test")}
    changes |= {"model": "mini" if named else "bilm", "elmo": "input", "save_dir": "run"}
    result = train_task(dataclasses.replace(config, **changes), silent)
    for options in ([], ["--model", changes["model"]]):
        assert main(["task", "eval", "run", "test.conll", *options, "-q"]) == 0
        assert main(["task", "predict", "run", "test.conll", "out.conll", *options, "-q"]) == 0
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mini").mkdir()  # the name of training stands for the same model here too
    assert evaluate_task("project/run", "project/test.conll") == result.test
    there = {f"{split}_path": f"project/{split}.conll" for split in ("train", "dev", "test")}
    there |= {"model": changes["model"] if named else "project/bilm", "save_dir": "project/run"}
    (tmp_path / "mini").rmdir()
    again = train_task(dataclasses.replace(config, elmo="input", **there), silent)
    assert again.test == result.test
    project.rename(tmp_path / "moved")
    assert evaluate_task("moved/run", "moved/test.conll") == result.test
    if named:
        (tmp_path / "moved" / "run").rename(tmp_path / "alone")
        assert evaluate_task("alone", "moved/test.conll", model="mini") == result.test


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A cached function: changes of toy_config -> the configuration of a task that was trained with them."""

    @functools.cache
    def train(**changes):
        config = toy_config(tmp_path_factory.mktemp("task"), epochs=1, **changes)
        train_task(config, silent)
        return config

    return train


@pytest.mark.parametrize("classify", [False, True])
def test_a_sentence_without_words_has_no_tags_or_no_label(trained, classify):
    """A classifier's label is None and its probabilities are NaN, which a warning says; others are unchanged."""
    task, sentences = load_task(trained(classify=classify).save_dir), ["", "Ann sees", " ", "the cat"]
    noticed = r"2 of 4 sentences have no words, the first is sentences\[0\]: their label is None, .* are NaN"
    with pytest.warns(UserWarning, match=noticed) if classify else contextlib.nullcontext():
        labels = task.predict(sentences)
    with pytest.warns(UserWarning, match=noticed) if classify else contextlib.nullcontext():
        shares = task.predict_proba(sentences)
    assert labels[::2] == ([None, None] if classify else [[], []])
    assert labels[1::2] == task.predict(sentences[1::2])
    assert shares[0].shape == ((2,) if classify else (0, len(task.labels)))
    assert np.isnan(shares[2]).all()
    for share, alone in zip(shares[1::2], task.predict_proba(sentences[1::2]), strict=True):
        np.testing.assert_allclose(share, alone, rtol=1e-6)


@pytest.mark.parametrize("classify", [False, True])
def test_result_i_of_a_file_is_of_line_i(tmp_path, trained, classify):
    """In every format of the output; a warning says which lines are blank."""
    config, text = trained(classify=classify), tmp_path / "in.txt"
    text.write_text("Ann sees\n\nthe cat\n")

    def predicted(name):
        with pytest.warns(
            UserWarning, match=r"in\.txt: 1 of 3 lines or rows are blank, .* number 2: the output has an empty"
        ):
            assert predict_task(config.save_dir, text, tmp_path / name, format="text") == 3
        return (tmp_path / name).read_text()

    rows = [json.loads(line) for line in predicted("out.jsonl").splitlines()]
    first, last = load_task(config.save_dir).predict(["Ann sees", "the cat"])
    if classify:
        assert rows[1] == {"words": [], "label": None, "probabilities": {"named": None, "nobody": None}}
        assert predicted("out.tsv") == f"{first}\tAnn sees\n\t\n{last}\tthe cat\n"
        assert predicted("out.csv") == f"row,sentence,predicted\n1,Ann sees,{first}\n2,,\n3,the cat,{last}\n"
    else:
        assert rows[1] == {"words": [], "labels": [], "probabilities": []}
        assert predicted("out.conll") == f"Ann\t{first[0]}\nsees\t{first[1]}\n\n\nthe\t{last[0]}\ncat\t{last[1]}\n\n"


def toy_table(folder):
    """A classifier's configuration, with its files as CSV: id,message,source."""
    config = toy_config(folder, epochs=1, classify=True, column="message", label_column="source")
    paths = {f"{split}_path": str(folder / f"{split}.csv") for split in ("train", "dev", "test")}
    for name, path in paths.items():
        lines = [line.split("\t") for line in pathlib.Path(getattr(config, name)).read_text().splitlines()]
        rows = "".join(f'{row},"{text}",{label}\n' for row, (label, text) in enumerate(lines))
        pathlib.Path(path).write_text(f"id,message,source\n{rows}")
    return dataclasses.replace(config, **paths)


def test_a_classifier_of_a_table_predicts_a_table(tmp_path):
    """The same numbers as of a TSV; predictions are a column next to the others, from CSV and from Parquet."""
    config = toy_table(tmp_path)
    result = train_task(config, silent)
    tsv = toy_config(tmp_path, epochs=1, classify=True, save_dir=str(tmp_path / "tsv"))
    assert train_task(tsv, silent).test == result.test == evaluate_task(config.save_dir, config.test_path)
    renamed = tmp_path / "renamed.csv"
    renamed.write_text(pathlib.Path(config.test_path).read_text().replace("message,source", "text,label"))
    assert evaluate_task(config.save_dir, renamed, column="text", label_column="label") == result.test
    assert evaluate_task(config.save_dir, tsv.test_path, column=0) == result.test
    with pytest.raises(ElmoFastError, match="has no column '0'"):
        evaluate_task(config.save_dir, tsv.test_path, column=0, label_column="source")
    given = pathlib.Path(config.test_path).read_text().splitlines()
    labels = load_task(config.save_dir).predict([line.split('"')[1] for line in given[1:]])
    out = tmp_path / "out.csv"
    assert predict_task(config.save_dir, config.test_path, out) == 40
    expected, labels = [line.replace('"', "") for line in given], ["predicted", *labels]
    assert out.read_text().splitlines() == [f"{row},{label}" for row, label in zip(expected, labels, strict=True)]
    with pytest.raises(ElmoFastError, match=r"again\.csv: the input already has a column 'predicted'; rename it"):
        predict_task(config.save_dir, out, tmp_path / "again.csv")
    csv = pytest.importorskip("pyarrow.csv")
    table = csv.read_csv(config.test_path)
    pytest.importorskip("pyarrow.parquet").write_table(table, tmp_path / "test.parquet")
    assert predict_task(config.save_dir, tmp_path / "test.parquet", tmp_path / "again.csv") == 40
    assert (tmp_path / "again.csv").read_text() == out.read_text()


def test_outputs_and_columns_that_cannot_be_are_refused(tmp_path, trained):
    tagger, classifier = trained(classify=False), trained(classify=True)
    with pytest.raises(ElmoFastError, match=r"out\.csv: .* written as csv; give a name in \.jsonl or \.conll or \.tsv"):
        predict_task(tagger.save_dir, tagger.test_path, tmp_path / "out.csv")
    for config in (tagger, classifier):
        with pytest.raises(
            ElmoFastError, match=r"out\.parquet: labels of .* cannot be written as parquet; give a name"
        ):
            predict_task(config.save_dir, config.test_path, tmp_path / "out.parquet")
    with pytest.raises(ElmoFastError, match=r"column names the sentences of a table; .*test\.conll is read as columns"):
        predict_task(tagger.save_dir, tagger.test_path, tmp_path / "out.conll", column="text")
    for config, path, advice in (
        (tagger, classifier.test_path, r"--task tag .* a label per word, .* tsv has one per sentence; .* add --task"),
        (
            classifier,
            tagger.test_path,
            r"--task classify .* per sentence, .* columns has one per word; .* leave out --ta",
        ),
    ):
        with pytest.raises(ElmoFastError, match=advice):
            train_task(dataclasses.replace(config, train_path=path, save_dir=str(tmp_path / "new")), silent)


@pytest.mark.parametrize("tokenizer", [None, "whitespace", "basic"])
def test_raw_text_without_a_tokenizer_is_noted_in_training(tmp_path, tokenizer):
    """By the warning of `embed`."""
    config = toy_config(tmp_path, epochs=1, classify=True, tokenizer=tokenizer)
    path = pathlib.Path(config.train_path)
    path.write_text(path.read_text().replace("\n", "!\n"))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        train_task(config, silent)
    noted = f"{config.train_path}, sentence 1 {RAW_TEXT_ADVICE}"
    assert [str(each.message) for each in caught] == ([noted] if tokenizer is None else [])


@pytest.mark.parametrize("kind", ["classify", "tag", "crf"])
def test_probabilities_are_those_of_the_scores_in_memory_and_in_json_lines(tmp_path, trained, kind):
    """Of every label in Python; in a file those of a tagger's tags, and all of a classifier's."""
    classify = kind == "classify"
    config = trained(classify=True) if classify else trained(classify=False, crf=kind == "crf")
    task, out = load_task(config.save_dir), tmp_path / "out.jsonl"
    sentences = [example.words for example in read_examples(config.test_path)]
    shares, labels = task.predict_proba(sentences), task.predict(sentences)
    assert task.predict(sentences, batch_size=1) == labels
    assert task.predict([]) == []
    with pytest.raises(ElmoFastError, match="must be a list of sentences"):
        task.predict("the cat")
    for words, share, each in zip(sentences, shares, labels, strict=True):
        assert share.shape == ((len(task.labels),) if classify else (len(words), len(task.labels)))
        np.testing.assert_allclose(share.sum(-1), 1, rtol=1e-5)
        if kind != "crf":
            assert task.labels.of_ids(np.atleast_1d(share.argmax(-1)).tolist()) == ([each] if classify else each)

    assert predict_task(config.save_dir, config.test_path, out) == len(sentences)
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert [row["words"] for row in rows] == sentences
    for row, share, each in zip(rows, shares, labels, strict=True):
        if classify:
            assert row["label"] == each
            assert list(row["probabilities"]) == task.labels.names
            np.testing.assert_allclose(list(row["probabilities"].values()), share, rtol=1e-6)
        else:
            assert row["labels"] == each
            chosen = [values[task.labels.index[label]] for values, label in zip(share, each, strict=True)]
            np.testing.assert_allclose(row["probabilities"], chosen, rtol=1e-6)
    with pytest.raises(ElmoFastError, match=r"probabilities of .* as columns; give a name in \.jsonl"):
        predict_task(config.save_dir, config.test_path, tmp_path / "out.conll", probabilities=True)


def test_strings_are_split_as_raw_text_or_as_training_split_them(tmp_path, trained, capsys):
    """A tagger, which read words, splits punctuation off; a classifier without a tokenizer splits at white space."""
    tagger, classifier = trained(classify=False), trained(classify=True)
    task, sentence = load_task(tagger.save_dir), "Ann sees the cat."
    assert task.split([sentence, ["the cat"]]) == [["Ann", "sees", "the", "cat", "."], ["the cat"]]
    assert (
        task.split([sentence], "whitespace") == load_task(classifier.save_dir).split([sentence]) == [sentence.split()]
    )
    assert task.predict([sentence]) == task.predict([["Ann", "sees", "the", "cat", "."]])
    (tmp_path / "raw.txt").write_text(sentence + "\n")
    words = ["task", "predict", tagger.save_dir, str(tmp_path / "raw.txt"), "-", "--format", "text", "--probabilities"]
    for options, expected in (([], 4), (["--tokenizer", "basic"], 5)):
        assert main([*words, *options]) == 0
        assert len(json.loads(capsys.readouterr().out)["labels"]) == expected


def test_a_task_that_holds_its_bilm_needs_no_other_folder(tmp_path):
    """Moved alone; asked for after training too. Without it, training says what the folder needs."""
    config, lines = toy_config(tmp_path, elmo="both", epochs=1), []
    result = train_task(config, lines.append)
    assert lines[-2].endswith(f"needs {config.model}")
    assert not (tmp_path / "run" / "model.safetensors").exists()
    train_task(dataclasses.replace(config, copy_model=True), lines.append)
    assert lines[-2].endswith("needs no other file")
    with pytest.raises(ElmoFastError, match=r"leave out --model: .* holds its biLM"):
        load_task(config.save_dir, model=config.model)
    shutil.rmtree(config.model)
    for name in ("cache", "training"):
        shutil.rmtree(tmp_path / "run" / name)
    (tmp_path / "run").rename(tmp_path / "alone")
    assert evaluate_task(tmp_path / "alone", config.test_path) == result.test
    assert BiLM(str(tmp_path / "alone")).num_layers == 3


def test_fine_tuning_rounded_weights_warns(tmp_path):
    config = toy_config(tmp_path, epochs=1, elmo="input", fine_tune=True)
    save_folder(tmp_path / "int8", *load_checkpoint(config.model), precision="int8")
    with pytest.warns(UserWarning, match=r"int8: its weights were rounded to int8 when .* starts from the rounded"):
        train_task(dataclasses.replace(config, model=str(tmp_path / "int8")), silent)


def test_predict_never_writes_over_what_it_reads_and_asks_what_a_txt_holds(tmp_path, trained):
    config = trained(classify=False)
    before = pathlib.Path(config.test_path).read_text()
    with pytest.raises(ElmoFastError, match="out must be another file than the one that is read"):
        predict_task(config.save_dir, config.test_path, config.test_path)
    assert pathlib.Path(config.test_path).read_text() == before
    text = tmp_path / "text.txt"
    text.write_text("Ann likes the cat\n")
    with pytest.raises(ElmoFastError, match=r"a sentence or a word per line\? give --format text or --format columns"):
        predict_task(config.save_dir, text, tmp_path / "out.conll")
    assert predict_task(config.save_dir, text, tmp_path / "out.conll", format="text") == 1
    assert len((tmp_path / "out.conll").read_text().split("\n")) == 6
