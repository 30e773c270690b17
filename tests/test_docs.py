"""README.md and docs/: every snippet does what it shows, names and links exist, Sphinx builds all pages."""

import importlib
import importlib.util
import inspect
import re
import shlex
import subprocess
import sys
import zlib

import pytest

from benchmarks.table import MARKED
from tests.support.snippets import ROOT, check, make_folder, snippets

DOCS = ROOT / "docs"
README = ROOT / "README.md"
PAGES = [README, *sorted(DOCS.rglob("*.md"))]

NOT_SHOWN = {"yaml", "math", "text", "{toctree}", "{eval-rst}", ""}


def name_of(page):
    return str(page.relative_to(ROOT))


def without_other_blocks(text):
    """A page less its blocks of other kinds than python, sh and text, whose fences would be taken for those of code."""
    return re.sub(
        r"^```([^\n]*)\n.*?^```\n",
        lambda block: block[0] if block[1] in ("python", "sh", "text") else "",
        text,
        flags=re.MULTILINE | re.DOTALL,
    )


WITH_CODE = [page for page in PAGES if snippets(without_other_blocks(page.read_text(encoding="utf-8")))[0]]


@pytest.mark.slow
@pytest.mark.parametrize("page", WITH_CODE, ids=name_of)
def test_every_snippet_runs_and_prints_what_the_page_says(page, tmp_path, monkeypatch, commands):
    """In order, in one folder that holds a model's two files; each Python block on its own."""
    text = page.read_text(encoding="utf-8")
    for extra in re.findall(r"^<!-- needs: (\w+) -->$", text, re.MULTILINE):
        pytest.importorskip(extra, reason=f"{name_of(page)} shows what needs {extra}")
    monkeypatch.chdir(make_folder(tmp_path, commands))
    check(without_other_blocks(text), name_of(page), tmp_path)


def test_no_block_of_code_is_lost_beside_blocks_of_other_kinds():
    """Every kind of block of code reaches the runner, whatever stands before and after it."""
    code = "```python\nprint(1)\n```\n```text\n1\n```\n"
    page = f"{code}\n```{{toctree}}\na\n```\n\n```yaml\nb: 1\n```\n{code}\n```sh\ntrue\n```\n"
    actual = snippets(without_other_blocks(page))[0]
    assert [(each.language, each.printed) for each in actual] == [("python", "1\n"), ("python", "1\n"), ("sh", "")]


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_no_block_is_of_an_unknown_kind(page):
    """A block whose language is misspelt would not be run."""
    kinds = set(re.findall(r"^```(\S*)\n(?:.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL))
    assert kinds <= {"python", "sh"} | NOT_SHOWN


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The folder of built pages, and what Sphinx said, with warnings as errors."""
    if importlib.util.find_spec("sphinx") is None:
        pytest.skip("needs the extra docs")
    folder = tmp_path_factory.mktemp("docs")
    # Neither pages of highlighted sources nor the theme of `make docs`, whose pages take twice as long to write.
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html", "-D", "html_theme=basic"]
    command += ["-D", "extensions=myst_parser,sphinx.ext.autodoc,sphinx.ext.napoleon", "-d", folder / "trees"]
    command += [DOCS, folder / "html"]
    return folder / "html", subprocess.run(command, capture_output=True, text=True, cwd=ROOT)


def test_the_pages_build_without_a_warning(built):
    """A page that no table of contents names is a warning too."""
    assert built[1].returncode == 0, built[1].stderr
    assert (built[0] / "index.html").is_file()


def entries(pages):
    """Return the link targets of the built pages: (name, kind) of each entry of Sphinx's inventory."""
    packed = (pages / "objects.inv").read_bytes().split(b"\n", 4)[4]
    lines = zlib.decompress(packed).decode().splitlines()
    return {re.match(r"(.+?) (\S+:\S+) ", line).groups() for line in lines}


def test_every_public_function_and_class_can_be_linked_to(built):
    """Names of ops, compat.allennlp and the other packages of the page: each is an entry, as fields of named tuples
    are."""
    actual = {name for name, kind in entries(built[0]) if kind.startswith("py:")}
    for package in ("ops", "tasks", "static", "pictures", "checkpoints", "compat.allennlp"):
        module = importlib.import_module(f"elmo_fast.{package}")
        public = [name for name in module.__all__ if not name.startswith("_")]
        public = [name for name in public if inspect.isroutine(each := getattr(module, name)) or inspect.isclass(each)]
        absent = [name for name in public if f"elmo_fast.{package}.{name}" not in actual]
        assert public
        assert [name for name in absent if f"elmo_fast.{name}" not in actual] == []  # compat.allennlp has some of these
    assert {"elmo_fast.ops.LSTMWeights.weight_ih", "elmo_fast.ops.HuffmanTree.codes"} <= actual


def test_the_signatures_on_the_page_are_those_of_the_code():
    """GitHub shows no others: text without line breaks, annotations left out, the settings of a biLM named once."""
    from elmo_fast import BiLM, Elmo, ElmoEmbedder

    def listed(function, names):
        parameters = [inspect.signature(function).parameters[name] for name in names]
        return [each.replace(annotation=each.empty) for each in parameters]

    parameters = inspect.signature(BiLM).parameters.values()
    settings = [each.name for each in parameters if each.kind is each.KEYWORD_ONLY and each.name != "stateful"]
    rest = inspect.Parameter("settings", inspect.Parameter.VAR_KEYWORD)
    expected = ["settings: " + ", ".join(map(str, listed(BiLM, settings)))]
    for kind in (Elmo, ElmoEmbedder):
        own = [name for name in inspect.signature(kind).parameters if name not in settings]
        expected.append(f"{kind.__name__}{inspect.Signature([*listed(kind, own), rest])}")
    page = " ".join((DOCS / "api.md").read_text(encoding="utf-8").replace("Elmo(\n", "Elmo(").split())
    assert [each for each in expected if each not in page] == []


def test_every_command_has_a_page_with_an_entry_for_each_of_its_options(built):
    """Also commands of two words; each one's page is created from its parser."""
    from elmo_fast.cli.main import parsers

    actual = entries(built[0])
    for name, parser in parsers().items():
        assert (built[0] / "commands" / f"{name.replace(' ', '-') or 'index'}.html").is_file()
        if parser._subcommands_action is None:
            options = {f"{parser.prog.replace(' ', '-')}.{option}" for option in parser._option_string_actions}
            assert {option for option in options if (option, "std:cmdoption") not in actual} == set()


def test_the_picture_of_the_architecture_is_that_of_the_code(monkeypatch):
    """Every package but those under all of them is in the picture, above those that it imports; so is the network."""
    monkeypatch.syspath_prepend(DOCS)
    network = importlib.import_module("_network")
    drawn = network.picture(network.ModelConfig())
    assert network.PICTURE.read_text(encoding="utf-8") == drawn, "run `python docs/_network.py`"
    architecture = importlib.import_module("_architecture")
    packages = {path.parent.name for path in (ROOT / "elmo_fast").glob("*/__init__.py")}
    assert packages - architecture.CAPTIONS.keys() == {"_io", "_runtime"}
    assert architecture.PICTURE.read_text(encoding="utf-8") == architecture.picture(), (
        "run `python docs/_architecture.py`"
    )


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
        actual = {}
        exec(line, actual)
        assert all(callable(actual[name.strip()]) for name in line.split(" import ")[1].split(","))
    else:
        from elmo_fast.cli.main import command_of, normalised, parser_of

        name, words = command_of(shlex.split(line)[1:])
        assert parser_of(name).values(normalised(words))


def test_files_that_pages_name_exist():
    """But for the generated tables: a result names the files of its own commit."""
    for page in PAGES:
        written = MARKED.sub("", page.read_text())
        for name in re.findall(r"`((?:benchmarks|docs|elmo_fast|tests|tools|csrc)/[\w./-]+\.\w+)`", written):
            assert (ROOT / name).exists(), f"{name_of(page)}: {name}"


def test_make_targets_and_cases_that_are_named_exist():
    from benchmarks.table import cases as all_cases

    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES if page.parent in (ROOT, DOCS))
    targets, cases = set(re.findall(r"`make (\w[\w-]*)", text)), set(re.findall(r"make bench CASE=([a-z_]+)", text))
    assert targets
    assert [target for target in targets if not re.search(rf"^{target}:", makefile, re.MULTILINE)] == []
    assert cases
    assert cases <= set(all_cases())


def test_the_readme_is_short_and_links_to_files():
    text = README.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 150
    names = set(re.findall(r"\]\(([\w./-]+)\)", text))
    assert len(names) > 10
    assert [name for name in names if not (ROOT / name).exists()] == []
