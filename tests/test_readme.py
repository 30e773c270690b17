"""README.md does what it says: every snippet is run in one empty folder, in order, and prints what stands below it."""

import pathlib
import re
import shlex

import pytest

from tests.snippets import check, make_folder, snippets

ROOT = pathlib.Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder as the page supposes it."""
    return make_folder(tmp_path_factory.mktemp("readme"))


def test_every_snippet_runs_and_prints_what_the_readme_says(folder, monkeypatch):
    """Python and shell blocks, in the order of the page, each Python block on its own."""
    monkeypatch.chdir(folder)
    assert {snippet.language for snippet in snippets(README)[0]} == {"python", "sh"}
    check(README, "README.md", folder)


def test_no_block_is_of_another_kind_or_left_open():
    """Every fence is read by this file: none would slip past for its spelling."""
    found, left_out = snippets(README)
    fences = len(re.findall(r"^```", README, re.MULTILINE))
    assert fences == 2 * (len(found) + len(left_out)) + 2 * sum(bool(printed) for _, _, printed in found)


def test_what_is_not_run_only_installs():
    """Only commands that need the network, or several GPUs, are left out."""
    _, left_out = snippets(README)
    for line in "".join(left_out).splitlines():
        assert line.startswith(("pip install ", "torchrun ")) or line in ("elmo-fast info",), line


def test_make_targets_and_cases_that_are_named_exist():
    """`make X` and `--case X`, wherever the page names them."""
    from benchmarks.cases import CASES

    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in set(re.findall(r"`make (\w+)`", README)):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
    for case in set(re.findall(r"--case ([a-z_]+)", README)):
        assert case in CASES, case


def table_of_old_and_new():
    """The right-hand cells of the table for those who come from other libraries."""
    rows = re.findall(r"^\| .*? \| `((?:from elmo_fast|elmo-fast)[^`]*)` \|$", README, re.MULTILINE)
    assert len(rows) > 10
    return rows


@pytest.mark.parametrize("line", [row for row in table_of_old_and_new() if row.startswith("from")])
def test_new_imports_of_the_table_work(line):
    found = {}
    exec(line, found)
    names = [name.strip() for name in line.split(" import ")[1].split(",")]
    assert all(callable(found[name]) for name in names)


@pytest.mark.parametrize("line", [row for row in table_of_old_and_new() if row.startswith("elmo-fast")])
def test_new_commands_of_the_table_are_understood(line):
    """The command's own parser takes the line as it stands."""
    from elmo_fast.cli.main import command_module, normalised

    name, *words = shlex.split(line)[1:]
    arguments = command_module(name).build_parser().parse_args(normalised(words))
    assert arguments is not None


def test_linked_files_exist():
    """Files of the repository that the page names in code marks."""
    for name in set(re.findall(r"`([\w./-]+\.(?:txt|md|py|toml))`", README)) - {"text.txt"}:
        assert (ROOT / name).exists(), name
