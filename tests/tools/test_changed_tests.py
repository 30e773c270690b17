"""`make check` finds the tests of a changed file by imports."""

import pytest

from tools import changed_tests


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        ("elmo_fast/_io/atomic_file.py", "tests/_io/test_atomic_file.py"),
        ("elmo_fast/embed/embedder.py", "tests/embed/test_embedder.py"),  # as a name that the package passes on
        ("elmo_fast/ops/highway/kernels.py", "tests/ops/test_highway.py"),  # by a name in a string
        ("elmo_fast/cli/embed.py", "tests/cli"),  # by a name in a table
        ("elmo_fast/pretrain/presets/tiny.yaml", "tests/pretrain"),
        ("csrc/highway.cpp", "tests/ops/test_highway.py"),
        ("csrc/common/parallel.h", "tests/ops/test_parallel.py"),
        ("tests/ops/output_layer.py", "tests/ops/test_full_softmax.py"),
        ("tests/support/interpreter.py", "tests"),  # which tests/conftest.py imports
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
