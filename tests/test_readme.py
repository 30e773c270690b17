"""README.md does what it says: every snippet is run in one empty folder, in order, and prints what stands below it."""

import pathlib
import re

import pytest

from tests.snippets import check, make_folder, snippets

ROOT = pathlib.Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def folder(tmp_path_factory, commands):
    """A folder as the page supposes it."""
    return make_folder(tmp_path_factory.mktemp("readme"), commands)


@pytest.mark.slow
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
    """Only commands that need the network are left out."""
    _, left_out = snippets(README)
    for line in "".join(left_out).splitlines():
        assert line.startswith("pip install ") or line in ("elmo-fast info",), line


def test_make_targets_and_cases_that_are_named_exist():
    """`make X` and `CASE=X`, wherever this page or one of docs/ names them."""
    from benchmarks.table import cases as all_cases

    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    text = "".join([README, *(page.read_text(encoding="utf-8") for page in (ROOT / "docs").glob("*.md"))])
    targets, cases = (
        set(re.findall(r"`make (\w[\w-]*)", text)),
        set(re.findall(r"make bench CASE=([a-z_]+)", text)),
    )
    assert targets
    assert [target for target in targets if not re.search(rf"^{target}:", makefile, re.MULTILINE)] == []
    assert cases
    assert cases <= set(all_cases())


def test_the_page_is_short():
    """One screen or two: what belongs elsewhere is in docs/."""
    assert len(README.splitlines()) <= 150


def test_linked_files_exist():
    """Files of the repository that the page links to."""
    names = set(re.findall(r"\]\(([\w./-]+)\)", README))
    assert len(names) > 10
    for name in names:
        assert (ROOT / name).exists(), name
