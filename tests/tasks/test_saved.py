"""The folder of a trained task: changed since it was written, of an older version, or with what no task wrote in it."""

import json
import shutil

import pytest

from elmo_fast.errors import CheckpointError, ElmoFastError
from elmo_fast.tasks.run import evaluate_task, load_task, train_task
from tests.tasks.toy import as_older_version, silent, toy_config


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("task")
    train_task(toy_config(folder, epochs=1), silent)
    return folder / "run"


@pytest.fixture
def folder(whole, tmp_path):
    shutil.copytree(whole, tmp_path / "run")
    return tmp_path / "run"


@pytest.mark.parametrize("name", ["task.safetensors", "labels.json", "words.json", "task.json"])
def test_a_flipped_byte_is_refused_in_every_file_that_is_read(folder, name):
    content = bytearray((folder / name).read_bytes())
    content[-20] ^= 1
    (folder / name).write_bytes(content)
    with pytest.raises(CheckpointError, match=rf"{name}: (damaged, or changed after|not JSON text)"):
        load_task(folder)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("labels.json", lambda value: value[::-1]),
        ("words.json", lambda value: value[::-1]),
        ("task.json", lambda value: value | {"pooling": "max"}),
    ],
)
def test_another_content_is_refused_and_believed_where_the_manifest_is_removed(folder, name, change):
    value = change(json.loads((folder / name).read_text()))
    (folder / name).write_text(json.dumps(value))
    with pytest.raises(CheckpointError, match=rf"{name}: damaged, or changed .* delete \S*manifest\.json"):
        load_task(folder)
    (folder / "manifest.json").unlink()
    with pytest.warns(UserWarning, match=r"whether task\.json, labels\.json, words\.json, .* could not be checked"):
        load_task(folder)


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("labels.json", "{}", r"labels\.json: wanted a list, found an object"),
        ("labels.json", "[1]", r"labels\.json: \[0\]: wanted a string, found 1"),
        ("labels.json", "[" * 100_000, r"labels\.json: not JSON text, or damaged"),
        ("words.json", "{}", r"words\.json: wanted a list, found an object"),
        ("words.json", "[null]", r"words\.json: \[0\]: wanted a string, found null"),
        ("task.json", "[]", r"task\.json: wanted an object, found a list"),
        ("task.json", '{"task": 3}', r"task\.json: task: wanted a string, found 3"),
        (
            "task.json",
            '{"task": "tag", "hidden": "a"}',
            r"task\.json: hidden: wanted a whole number from 1 to 2\^24, found ",
        ),
        ("task.json", '{"task": "tag", "hiden": 3}', r"task\.json: hiden: unknown key; did you mean hidden\?"),
        ("task.safetensors", "", r"task\.safetensors: damaged"),
    ],
)
@pytest.mark.filterwarnings("ignore:.* has no manifest.json")
def test_wrong_types_in_a_folder_of_an_older_version_are_named(folder, name, content, sentence):
    (folder / "manifest.json").unlink()
    (folder / name).write_text(content)
    with pytest.raises(ElmoFastError, match=sentence):
        load_task(folder)


@pytest.mark.parametrize("changes", [{}, {"elmo": "input"}, {"elmo": "both", "fine_tune": True}])
@pytest.mark.filterwarnings("ignore:.* has no manifest.json")
def test_a_task_of_an_older_version_is_read_and_replaced(tmp_path, changes):
    """The same scores; trained on, its folder has the present files alone."""
    config = toy_config(tmp_path, epochs=1, **changes)
    result = train_task(config, silent)
    before = sorted(path.name for path in (tmp_path / "run").iterdir())
    as_older_version(tmp_path / "run")
    assert evaluate_task(config.save_dir, config.test_path) == result.test
    train_task(config, silent)
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == before
