"""`make check` finds the tests of a changed file by imports."""

import subprocess

import pytest

from tools import changed_tests


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        ("elmo_fast/text/vocabulary.py", "tests/text/test_vocabulary.py"),
        ("elmo_fast/_io/atomic_file.py", "tests/_io/test_atomic_file.py"),  # of another name
        ("elmo_fast/embed/embedder.py", "tests/embed/test_embedder.py"),  # as a name that the package passes on
        ("elmo_fast/ops/highway/kernels.py", "tests/ops/test_highway.py"),  # by a name in a string
        ("elmo_fast/cli/embed.py", "tests/cli"),  # by a name in a table
        ("elmo_fast/cli/main.py", "tests/cli/test_embed.py"),  # through a helper of tests
        ("elmo_fast/models/mini/config.json", "tests/checkpoints/test_bundled.py"),
        ("elmo_fast/pretrain/presets/tiny.yaml", "tests/pretrain"),
        ("csrc/highway.cpp", "tests/ops/test_highway.py"),
        ("csrc/common/philox.h", "tests/ops/test_log_uniform_sample.py"),
        ("tools/release.py", "tests/tools/test_release.py"),
        ("benchmarks/bench_ops.py", "tests/benchmarks"),
        ("tests/text/test_vocabulary.py", "tests/text/test_vocabulary.py"),
        ("tests/ops/output_layer.py", "tests/ops/test_full_softmax.py"),
        ("tests/kernels/scalar_mix.json", "tests/kernels"),
        ("tests/ops/conftest.py", "tests/ops"),
        ("tests/conftest.py", "tests"),
        ("tests/support/interpreter.py", "tests"),  # which that one imports
        ("docs/design.md", "tests/test_docs.py"),
    ],
)
def test_tests_of_a_file(file, expected):
    assert expected in changed_tests.tests_of(file)


def test_no_file_of_the_package_or_of_its_build_is_without_tests():
    files = changed_tests.git("ls-files", "elmo_fast", "csrc", "tools", "benchmarks/*.py")
    files += ["CMakeLists.txt", "setup.py", "pyproject.toml", "constraints.txt", "Makefile", "tests/conftest.py"]
    selected = {file: changed_tests.tests_of(file) for file in files}
    assert [file for file, tests in selected.items() if not tests] == []
    assert {test for tests in selected.values() for test in tests if not (changed_tests.ROOT / test).exists()} == set()


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
