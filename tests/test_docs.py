"""The documentation builds without a warning, every page is reached, and every snippet does what it shows."""

import importlib.util
import pathlib
import re
import shlex
import subprocess
import sys

import pytest

from tests.snippets import ROOT, check, make_folder, snippets

DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
WITH_CODE = [page for page in PAGES if snippets(page.read_text(encoding="utf-8"))[0]]
NOT_SHOWN = {"yaml", "text", "{toctree}", "{eval-rst}", ""}


def name_of(page):
    return str(page.relative_to(DOCS))


def runnable(text):
    """A page without the blocks that are no code: settings, directives."""
    return [snippet for snippet in snippets(text)[0] if snippet.language in ("python", "sh")]


def without_other_blocks(text):
    """A page less its blocks of other kinds than python, sh and text, whose fences would be taken for those of code."""
    return re.sub(
        r"^```([^\n]*)\n.*?^```\n",
        lambda block: block[0] if block[1] in ("python", "sh", "text") else "",
        text,
        flags=re.MULTILINE | re.DOTALL,
    )


@pytest.mark.parametrize("page", [p for p in WITH_CODE if runnable(p.read_text(encoding="utf-8"))], ids=name_of)
def test_every_snippet_runs_and_prints_what_the_page_says(page, tmp_path, monkeypatch):
    """In order, in one folder that holds a model's two files, as in the README."""
    text = page.read_text(encoding="utf-8")
    for extra in re.findall(r"^<!-- needs: (\w+) -->$", text, re.MULTILINE):
        pytest.importorskip(extra, reason=f"{name_of(page)} shows what needs {extra}")
    monkeypatch.chdir(make_folder(tmp_path))
    check(without_other_blocks(text), name_of(page), tmp_path)


def test_no_block_of_code_is_lost_beside_blocks_of_other_kinds():
    """Every kind of block of code reaches the runner, whatever stands before and after it."""
    code = "```python\nprint(1)\n```\n```text\n1\n```\n"
    page = f"{code}\n```{{toctree}}\na\n```\n\n```yaml\nb: 1\n```\n{code}\n```sh\ntrue\n```\n"
    found = snippets(without_other_blocks(page))[0]
    assert [(each.language, each.printed) for each in found] == [("python", "1\n"), ("python", "1\n"), ("sh", "")]


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_no_block_is_of_an_unknown_kind(page):
    """A block whose language is misspelt would not be run."""
    kinds = set(re.findall(r"^```(\S*)\n(?:.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL))
    assert kinds <= {"python", "sh"} | NOT_SHOWN


def test_the_pages_build_without_a_warning(tmp_path):
    """Sphinx with warnings as errors; a page that no table of contents names is a warning too."""
    if importlib.util.find_spec("sphinx") is None:
        pytest.skip('the documentation is built with Sphinx: pip install "elmo-fast[docs]"')
    command = [
        sys.executable,
        "-m",
        "sphinx",
        "-W",
        "--keep-going",
        "-q",
        "-b",
        "html",
        str(DOCS),
        str(tmp_path / "html"),
    ]
    done = subprocess.run([*command, "-d", str(tmp_path / "trees")], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "html" / "index.html").is_file()


def old_and_new():
    """The right-hand cells of the tables for those who come from other libraries."""
    text = (DOCS / "coming_from.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `.*?` .*?\| `((?:from elmo_fast|elmo-fast)[^`]*)` \|$", text, re.MULTILINE)
    assert len(rows) == len(re.findall(r"^\| `", text, re.MULTILINE)) > 10
    return rows


@pytest.mark.parametrize("line", old_and_new())
def test_new_lines_work(line):
    """An import imports callables; a command's own parser takes the line as it stands."""
    if line.startswith("from"):
        module = line.split()[1].rpartition(".")[2]
        if "integrations" in line:
            pytest.importorskip(module, reason=f"the line needs {module}")
        found = {}
        exec(line, found)
        assert all(callable(found[name.strip()]) for name in line.split(" import ")[1].split(","))
    else:
        from elmo_fast.cli.main import command_module, normalised

        name, *words = shlex.split(line)[1:]
        assert command_module(name).build_parser().parse_args(normalised(words)) is not None


def test_files_that_pages_name_exist():
    for page in PAGES:
        for name in re.findall(r"`((?:benchmarks|docs|elmo_fast|tests|tools|csrc)/[\w./-]+\.\w+)`", page.read_text()):
            assert (ROOT / name).exists(), f"{name_of(page)}: {name}"


def test_the_list_of_pages_is_not_empty():
    """The parametrised tests above would pass on no page at all."""
    assert pathlib.Path(DOCS / "index.md") in PAGES
    assert len(WITH_CODE) > 2
