"""Prints the test files of what differs from the main branch, for `make check`.

A changed test is run, and of a conftest.py its folder. Of another Python file they are the tests nearest to it: those
that import it or, if there are none, those that import its importers, and so on. What is loaded by its name counts for
those who load it: a command for tests/cli, a backend's kernels for its op, C++ for its op or for `_native.py`. A data
file counts for its folder of tests, a page for all pages, a file of the build for its tests.
"""

import functools
import pathlib
import subprocess
import sys

from tools.imports import file_of, imported

ROOT = pathlib.Path(__file__).resolve().parents[1]
ALWAYS = ["tests/test_layering.py", "tests/test_public_names.py", "tests/test_tracked_files.py"]


def git(*words: str) -> list[str]:
    return subprocess.run(["git", "-C", str(ROOT), *words], check=True, capture_output=True, text=True).stdout.split()


def changed(base: str) -> list[str]:
    """Files that differ from where this branch left `base`, and those that git does not know yet."""
    (fork,) = git("merge-base", base, "HEAD")
    return git("diff", "--name-only", fork) + git("ls-files", "--others", "--exclude-standard")


@functools.cache
def importers() -> dict[str, set[str]]:
    """File -> the files that import it."""
    result: dict[str, set[str]] = {}
    for file in git("ls-files", "--cached", "--others", "--exclude-standard", "*.py"):
        for _, name in imported(ROOT / file, ROOT) if (ROOT / file).exists() else ():
            if (target := file_of(name, ROOT)) is not None:
                result.setdefault(str(target.relative_to(ROOT)), set()).add(file)
    return result


def is_test(file: str) -> bool:
    name = pathlib.PurePosixPath(file).name
    return file.startswith("tests/") and (name == "conftest.py" or name.startswith("test_"))


def importing(file: str) -> list[str]:
    """The tests nearest to a file by imports."""
    seen, nearest = {file}, {file}
    while nearest:
        nearest = set[str]().union(*(importers().get(each, ()) for each in nearest)) - seen
        seen |= nearest
        if tests := sorted(filter(is_test, nearest)):
            return [str(pathlib.PurePosixPath(test).parent) if test.endswith("conftest.py") else test for test in tests]
    return []


def tests_of(file: str) -> list[str]:
    """The test files, or the folders of tests, of one changed file."""
    path = pathlib.PurePosixPath(file)
    top, *folders = path.parts[:-1] or ("",)
    if path.name == "conftest.py":
        return [str(path.parent)]
    if is_test(file):
        return [file] if (ROOT / file).exists() else []
    if path.suffix == ".md" or top == "docs":
        return ["tests/test_docs.py"]
    if top == "csrc":
        op = f"elmo_fast/ops/{folders[0] if folders else path.stem}/__init__.py"
        return importing(op if (ROOT / op).exists() else "elmo_fast/ops/_native.py")
    if path.suffix == ".py" and (tests := importing(file)):
        return [*tests, "tests/cli"] if top == "elmo_fast" and folders == ["cli"] else tests
    if path.suffix == ".py" and top == "elmo_fast" and path.stem != "__init__":
        return tests_of(str(path.with_name("__init__.py")))
    for folder in (f"tests/{'/'.join(folders[:1])}", f"tests/{top}"):
        if folder != "tests/" and (ROOT / folder).is_dir():
            return [folder]
    if top == "elmo_fast":
        return importing("elmo_fast/__init__.py")
    return [] if top else ["tests/test_setup.py", "tests/test_wheel.py"]


def main() -> None:
    base = sys.argv[1] if len(sys.argv) > 1 else "main"
    files = changed(base)
    tests = {*ALWAYS, *(test for file in files for test in tests_of(file))}
    where = f"differ from {base}" if files else f"differ from {base}: work on a branch, or give BASE=COMMIT"
    print(f"make check: tests of the {len(files)} files that {where}", file=sys.stderr)
    print(*sorted(tests), sep="\n")


if __name__ == "__main__":
    main()
