"""`make check` finds the tests of a changed file by its name."""

import subprocess

import pytest

from tools import changed_tests


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        ("elmo_fast/ops/unique_rows/__init__.py", ["tests/ops/test_unique_rows.py"]),
        ("csrc/highway.cpp", ["tests/ops/test_highway.py"]),
        ("elmo_fast/memory.py", ["tests/test_memory.py"]),
        ("elmo_fast/text/vocabulary.py", ["tests/text/test_vocabulary.py"]),
        ("elmo_fast/text/no_test_has_this_name.py", ["tests/text"]),
        ("tests/text/test_vocabulary.py", ["tests/text/test_vocabulary.py"]),
        ("docs/design.md", ["tests/test_docs.py"]),
        ("csrc/common/philox.h", ["tests/ops"]),
        ("tests/kernels/scalar_mix.json", ["tests/kernels"]),
        ("LICENSE", []),
    ],
)
def test_tests_of_a_file(file, expected):
    assert changed_tests.tests_of(file) == expected


def test_what_differs_from_the_branch_is_found(tmp_path, monkeypatch):
    """Committed or not, and what git does not know yet; not what has changed on the main branch meanwhile."""
    monkeypatch.setattr(changed_tests, "ROOT", tmp_path)
    for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"):  # a hook's
        monkeypatch.delenv(name, raising=False)

    def git(*words):
        who = ["-c", "user.name=a", "-c", "user.email=a@b.invalid"]
        subprocess.run(["git", "-C", str(tmp_path), *who, *words], check=True, capture_output=True)

    def commit(name):
        (tmp_path / name).write_text("a")
        git("add", name)
        git("commit", "-m", name)

    git("init", "-b", "main")
    commit("old")
    git("checkout", "-b", "work")
    commit("committed")
    git("checkout", "main")
    commit("elsewhere")
    git("checkout", "work")
    (tmp_path / "old").write_text("b")
    (tmp_path / "unknown").write_text("c")
    assert sorted(changed_tests.changed("main")) == ["committed", "old", "unknown"]
