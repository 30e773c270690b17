"""Prints the test files of what differs from the main branch, for `make check`.

A changed test is run. Of a changed elmo_fast/LAYER/FOLDER/NAME.py the tests are those of tests/LAYER with its name or a
folder's: test_NAME.py, test_FOLDER_*.py; where there is none, all of tests/LAYER. Those of csrc/FOLDER/NAME.cpp are in
any layer; where there is none, all of tests/ops. Of another file of tests/FOLDER they are those of the folder, of a
page those of all pages.
"""

import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
ALWAYS = ["tests/test_layering.py", "tests/test_public_names.py", "tests/test_tracked_files.py"]


def changed(base: str) -> list[str]:
    """Files that differ from where this branch left `base`, and those that git does not know yet."""

    def git(*words: str) -> list[str]:
        return subprocess.run(
            ["git", "-C", str(ROOT), *words], check=True, capture_output=True, text=True
        ).stdout.split()

    (fork,) = git("merge-base", base, "HEAD")
    return git("diff", "--name-only", fork) + git("ls-files", "--others", "--exclude-standard")


def tests_of(file: str) -> list[str]:
    """The test files, or the folder of tests, of one changed file."""
    path = pathlib.PurePosixPath(file)
    top, *folders = path.parts[:-1] or ("",)
    if top == "tests":
        if path.match("test_*.py"):
            return [file] if (ROOT / file).exists() else []
        return [f"tests/{folders[0]}"] if folders else []
    if path.suffix == ".md":
        return ["tests/test_docs.py"]
    if top not in ("elmo_fast", "csrc", "tools", "benchmarks"):
        return []
    if top == "elmo_fast":
        layer = "/".join(folders[:1])
    else:
        layer = "*" if top == "csrc" else top
    names = [name.strip("_") for name in (*folders, path.stem)]
    files = [each for name in names for end in ("", "_*") for each in ROOT.glob(f"tests/{layer}/test_{name}{end}.py")]
    layer = "ops" if top == "csrc" else layer
    if not files and layer and (ROOT / "tests" / layer).is_dir():
        return [f"tests/{layer}"]
    return sorted({str(each.relative_to(ROOT)) for each in files})


def main() -> None:
    base = sys.argv[1] if len(sys.argv) > 1 else "main"
    files = changed(base)
    tests = {*ALWAYS, *(test for file in files for test in tests_of(file))}
    where = f"differ from {base}" if files else f"differ from {base}: work on a branch, or give BASE=COMMIT"
    print(f"make check: tests of the {len(files)} files that {where}", file=sys.stderr)
    print(*sorted(tests), sep="\n")


if __name__ == "__main__":
    main()
