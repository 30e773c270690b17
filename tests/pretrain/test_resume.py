"""Going on from a checkpoint: which one, and what is refused."""

import json
import os
import pathlib
import signal

import pytest

from elmo_fast.checkpoints import saved_steps, step_name
from elmo_fast.errors import CheckpointError, ElmoFastError
from elmo_fast.pretrain.checkpoint import read_training_state, remove_older
from elmo_fast.pretrain.language_model import LanguageModel
from elmo_fast.pretrain.run import pretrain
from tests.pretrain.toy import during_step, quiet, rows, same, toy_config


def longer(tmp_path, steps, **changes):
    settings = {"n_epochs": 1000, "checkpoint_interval": 2, "dropout": 0.1, "max_steps": steps}
    return toy_config(tmp_path, **settings | changes)


def weights(folder):
    return LanguageModel.from_pretrained(folder).checkpoint_state()


@pytest.mark.parametrize(
    ("changes", "stops"),
    [
        ({}, (3,)),
        ({}, (1, 4, 6)),
        ({"optimiser": "adamw"}, (1, 4, 5)),
        ({"loss": "negative_sampling"}, (3,)),
        ({"loss": "hierarchical_softmax"}, (3,)),
        ({"loss": "full_softmax"}, (3,)),
        ({"input": "words"}, (3,)),
    ],
)
def test_a_run_in_pieces_is_the_run_in_one(tmp_path, changes, stops):
    """Bit for bit, with dropout, a schedule, and stops between checkpoints and at them."""
    changes = {"schedule": "linear", "n_train_tokens": 15, "n_epochs": 8} | changes
    whole = pretrain(longer(tmp_path, 8, save_dir=str(tmp_path / "whole"), **changes), report=quiet)
    lines = []
    for steps in (*stops, 8):
        # The plan is eight steps throughout, so that the schedule is the same; each sitting is cut short.
        config = longer(tmp_path, 8, save_dir=str(tmp_path / "pieces"), **changes)
        pieces = _until(config, steps, lines.append)
    assert same(weights(pieces.folder), weights(whole.folder))
    assert sum("resumes after step" in line for line in lines) == len(stops)
    assert [row["step"] for row in rows(pieces.folder) if row.get("event") == "resume"] == list(stops)
    assert reports(pieces.folder) == reports(whole.folder)


def _until(config, steps, report):
    """A sitting that a signal ends after step `steps` of the run, if that is not its last."""
    taken = max((step for step, _ in saved_steps(pathlib.Path(config.run.save_dir))), default=0)
    with during_step(steps - taken, lambda: steps < config.run.max_steps and os.kill(os.getpid(), signal.SIGTERM)):
        return pretrain(config, report=report)


def test_a_finished_run_does_nothing_more_and_a_longer_one_goes_on(tmp_path):
    first = pretrain(longer(tmp_path, 4), report=quiet)
    before = weights(first.folder)
    for _ in range(2):
        again = pretrain(longer(tmp_path, 4, heldout_prefix=str(tmp_path / "train-1*")), report=quiet)
    records = rows(first.folder)
    assert [row["step"] for row in records if row.get("event") == "heldout"] == [4]
    assert (again.steps, again.stopped_by) == (4, "steps")
    assert same(weights(first.folder), before)
    more = pretrain(longer(tmp_path, 6), report=quiet)
    assert more.steps == 6
    assert not same(weights(first.folder), before)


def reports(folder):
    """Return the fields of the rows that do not depend on the clock."""
    records = rows(folder)
    return [(row["step"], row["loss"], row["gradient_norm"], row["learning_rate"]) for row in records if "loss" in row]


def test_a_resumed_run_that_takes_no_step_reports_and_leaves_its_model(tmp_path):
    """The step it reports is reported again, with those after it, when the run goes on: as of one sitting."""
    plan = {"schedule": "linear", "n_train_tokens": 15, "n_epochs": 8, "log_interval": 3}
    whole = pretrain(longer(tmp_path, 8, save_dir=str(tmp_path / "whole"), **plan), report=quiet)

    def die(line):
        if "after step 4" in line:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pretrain(longer(tmp_path, 8, **plan), report=die)
    assert len(read_training_state(saved_steps(tmp_path / "out")[-1][1]).position.unreported) == 1
    lines = []
    done = pretrain(longer(tmp_path, 4, **plan), report=lines.append)
    assert (done.steps, done.stopped_by) == (4, "steps")
    assert any("resumes after step 4: nothing is left to do" in line for line in lines)
    assert same(weights(done.folder), read_training_state(saved_steps(done.folder)[-1][1]).weights)
    assert [step for step, *_ in reports(done.folder)] == [3, 4]
    on = pretrain(longer(tmp_path, 8, **plan), report=quiet)
    assert same(weights(on.folder), weights(whole.folder))
    assert reports(on.folder) == reports(whole.folder)
    assert len(reports(on.folder)) == 3


def test_a_damaged_newest_checkpoint_is_named_and_the_one_before_used(tmp_path):
    run = pretrain(longer(tmp_path, 6), report=quiet)
    expected = weights(run.folder)
    os.truncate(run.folder / "checkpoints" / "step-0000006" / "model.safetensors", 7)
    lines = []
    with pytest.warns(UserWarning, match="step-0000006 is not used: ") as caught:
        pretrain(longer(tmp_path, 6), report=lines.append)
    assert len(caught) == 1
    assert any("resumes after step 4" in line for line in lines)
    assert same(weights(run.folder), expected)
    read_training_state(run.folder / "checkpoints" / "step-0000006")


def test_a_checkpoint_without_a_manifest_is_not_checked_but_its_position_is(tmp_path):
    """What was not checked is reported; of position.json, values of other types are named."""
    folder = saved_steps(pretrain(longer(tmp_path, 4), report=quiet).folder)[-1][1]
    (folder / "manifest.json").unlink()
    with pytest.warns(
        UserWarning, match=r"no manifest\.json: whether position\.json, .* changed since could not be checked"
    ) as record:
        assert read_training_state(folder).position.step == 4
    assert len(record) == 1
    content = json.loads((folder / "position.json").read_text())
    position = content["position"]
    for changed, sentence in (
        (content | {"version": 2}, "version: wanted 1, found 2"),
        (content | {"position": position | {"model": {"dim": []}}}, "dim: wanted a whole number, found a list"),
    ):
        (folder / "position.json").write_text(json.dumps(changed))
        with pytest.raises(CheckpointError, match=sentence):
            read_training_state(folder)


def test_when_all_are_damaged_nothing_is_overwritten(tmp_path):
    run = pretrain(longer(tmp_path, 4), report=quiet)
    for _, path in saved_steps(run.folder):
        (path / "position.json").write_text("{")
    before = (run.folder / "metrics.jsonl").read_bytes()
    with (
        pytest.warns(UserWarning, match="step-000000[24] is not used: "),
        pytest.raises(ElmoFastError, match=r"found 2 that cannot .*; restore one, or give another save_dir"),
    ):
        pretrain(longer(tmp_path, 4), report=quiet)
    assert (run.folder / "metrics.jsonl").read_bytes() == before


def test_another_run_is_refused_by_what_differs(tmp_path):
    run = pretrain(longer(tmp_path, 2), report=quiet)
    before = (run.folder / "pretrain.yaml").read_bytes()
    for change, sentence in (
        ({"dim": 16}, "dim was 12, now 16"),
        ({"batch_size": 2}, "batch_size was 3, now 2"),
        ({"seed": 4}, "seed was 0, now 4"),
        ({"optimiser": "adamw"}, "optimiser was 'adagrad', now 'adamw'"),
        ({"loss": "full_softmax"}, "loss was 'sampled_softmax', now 'full_softmax'"),
        ({"input": "words"}, "input was 'characters', now 'words'"),
    ):
        with pytest.raises(ElmoFastError, match=sentence):
            pretrain(longer(tmp_path, 4, **change), report=quiet)
    assert (run.folder / "pretrain.yaml").read_bytes() == before


def test_a_damaged_configuration_is_named_and_may_be_deleted(tmp_path):
    run = pretrain(longer(tmp_path, 2), report=quiet)
    for text in (b"seed: [1, 2", b"a list\n", b"\xff"):
        (run.folder / "pretrain.yaml").write_bytes(text)
        with pytest.raises(ElmoFastError, match=r"pretrain\.yaml: not the YAML that this run wrote.* delete it"):
            pretrain(longer(tmp_path, 4), report=quiet)
    (run.folder / "pretrain.yaml").unlink()
    assert pretrain(longer(tmp_path, 4), report=quiet).steps == 4


def test_a_run_resumes_after_a_move_of_its_text(tmp_path):
    """Whatever the path of the text is; a text of another size is refused."""
    pretrain(longer(tmp_path, 2), report=quiet)
    (tmp_path / "moved").mkdir()
    for name in ("train-0.txt", "train-1.txt"):
        (tmp_path / name).rename(tmp_path / "moved" / name)
    settings = longer(None, 4, train_prefix=str(tmp_path / "moved" / "train-*"), save_dir=str(tmp_path / "out"))
    assert pretrain(settings, report=quiet).steps == 4
    (tmp_path / "moved" / "train-1.txt").write_text("another text altogether .\n")
    expected = r"is not as this run prepared it: bytes of text was.* --allow_other_corpus true"
    with pytest.raises(ElmoFastError, match=expected):
        pretrain(settings, report=quiet)


@pytest.mark.filterwarnings("ignore:.* are outside the vocabulary")
def test_a_run_without_a_checkpoint_is_not_bound_to_its_text(tmp_path):
    """Stopped after the text was prepared: another text, vocabulary or min_count is prepared in its place."""
    config = longer(tmp_path, 2)
    (tmp_path / "words.txt").write_text("<S>\n</S>\n<UNK>\nthe\n")
    for changes in ({}, {"min_count": 2}, {"vocab_file": str(tmp_path / "words.txt")}):
        with pytest.raises(ZeroDivisionError), during_step(1, lambda: 1 / 0):
            pretrain(longer(tmp_path, 2, **changes), report=quiet)
    (tmp_path / "train-0.txt").write_text("another text altogether .\n" * 3)
    lines = []
    run = pretrain(config, report=lines.append)
    assert [line for line in lines if "is prepared again: " in line]
    assert "altogether" in run.vocabulary
    lines.clear()
    config.run.max_steps = 3
    assert pretrain(config, report=lines.append).steps == 3
    assert not [line for line in lines if line.startswith(("vocab ", "data   this run"))], "not prepared again"


def test_another_corpus_is_refused_unless_told_otherwise(tmp_path):
    """In another vocabulary all the same: of as many words, whose rows of the softmax would belong to others."""
    first = pretrain(longer(tmp_path, 4), report=quiet)
    (tmp_path / "other.txt").write_text("the cat saw the dog .\na dog sat on the mat .\n" * 3)
    words = first.vocabulary.words
    (tmp_path / "words.txt").write_text("\n".join([*words[:3], *reversed(words[3:])]) + "\n")
    changes = {"train_prefix": str(tmp_path / "other.txt"), "resume": str(first.folder / "checkpoints/step-0000004")}

    def again(vocabulary, **more):
        config = longer(
            tmp_path, 3, save_dir=str(tmp_path / vocabulary.stem), vocab_file=str(vocabulary), **changes | more
        )
        return pretrain(config, report=quiet)

    with pytest.raises(ElmoFastError, match="trained on another corpus or vocabulary"):
        again(first.folder / "vocab.txt")
    second = again(first.folder / "vocab.txt", allow_other_corpus=True)
    assert second.steps == 3
    assert not same(weights(second.folder), weights(first.folder))
    with pytest.raises(ElmoFastError, match="the words to predict have changed"):
        again(tmp_path / "words.txt", allow_other_corpus=True)


def test_another_vocabulary_for_the_same_text_is_refused(tmp_path):
    """The settings that prepared the run's folder count, and a flag that contradicts them is not ignored."""
    pretrain(longer(tmp_path, 2), report=quiet)
    (tmp_path / "words.txt").write_text("<S>\n</S>\n<UNK>\nthe\n")
    with pytest.raises(ElmoFastError, match="prepared with a different vocabulary"):
        pretrain(longer(tmp_path, 4, vocab_file=str(tmp_path / "words.txt")), report=quiet)
    with pytest.raises(ElmoFastError, match=r"is not as this run prepared it: min_count was 1, now 2; give"):
        pretrain(longer(tmp_path, 4, min_count=2), report=quiet)


def test_a_branch_from_a_named_checkpoint_goes_on_by_the_same_command(tmp_path):
    """Begun from a step of another run, in a folder of its own; the same command resumes from its own newest."""
    first = pretrain(longer(tmp_path, 6, keep_checkpoints=9), report=quiet)
    lines, branch = [], {"save_dir": str(tmp_path / "branch"), "resume": str(first.folder / "checkpoints/step-0000002")}
    for steps in (4, 6):
        run = pretrain(longer(tmp_path, steps, **branch), report=lines.append)
    assert [line.split("resumes after step ")[1][0] for line in lines if "resumes after" in line] == ["2", "4"]
    assert any("has checkpoints of its own" in line for line in lines)
    assert same(weights(run.folder), weights(first.folder))
    with pytest.raises(CheckpointError, match=r"position\.json: cannot be read"):
        pretrain(longer(tmp_path, 2, resume=str(tmp_path), save_dir=str(tmp_path / "none")), report=quiet)


def test_the_checkpoint_just_written_is_never_removed(tmp_path):
    """Checkpoints of higher numbers, left by an earlier branch, do not push it out."""
    for step in (35, 40, 22, 23, 24):
        (tmp_path / "checkpoints" / step_name(step)).mkdir(parents=True)
        remove_older(tmp_path, 2, step)
    assert [step for step, _ in saved_steps(tmp_path)] == [23, 24, 35, 40]
