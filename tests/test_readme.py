"""README.md does what it says: every snippet is run in one empty folder, in order, and prints what stands below it."""

import io
import os
import pathlib
import re
import shlex
import subprocess
import sys
from contextlib import redirect_stdout

import pytest

from tests.weights import make_weights

ROOT = pathlib.Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCK = re.compile(
    r"(<!-- not run: [^\n]*-->\n)?^```(\w*)\n(.*?)^```\n(?:```text\n(.*?)^```\n)?", re.MULTILINE | re.DOTALL
)
ORIGINAL_FILTERS = ((1, 32), (2, 32), (3, 64), (4, 128), (5, 256), (6, 512), (7, 1024))


def snippets():
    """(language, code, printed) of each block that is run, and the code of those that are not."""
    found, left_out = [], []
    for skipped, language, code, printed in BLOCK.findall(README):
        if skipped:
            left_out.append(code)
        else:
            found.append((language, code, printed))
    return found, left_out


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with options.json and weights.hdf5 of the published small size, random, and elmo-fast on the PATH."""
    path = tmp_path_factory.mktemp("readme")
    make_weights(path, cell=1024, proj=128, filters=ORIGINAL_FILTERS, char_dim=16, n_highway=1, scale=0.5)
    (path / "bin").mkdir()
    for name, words in (("elmo-fast", "-m elmo_fast"), ("python", "")):
        script = path / "bin" / name
        script.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {words} "$@"\n')
        script.chmod(0o755)
    return path


def run_shell(code, folder):
    """What `bash -e` prints for the code, with no network and this checkout's package."""
    environment = {
        **os.environ,
        "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep),
        "PYTHONWARNINGS": "error",
        **dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), "http://127.0.0.1:9"),
    }
    done = subprocess.run(["bash", "-euc", code], cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, f"{code}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def test_every_snippet_runs_and_prints_what_the_readme_says(folder, monkeypatch):
    """Python and shell blocks, in the order of the page, each Python block on its own."""
    monkeypatch.chdir(folder)
    found, _ = snippets()
    assert {language for language, _, _ in found} == {"python", "sh"}
    for language, code, printed in found:
        if language == "python":
            out = io.StringIO()
            with redirect_stdout(out):
                exec(compile(code, "README.md", "exec"), {"__name__": "__main__"})
            output = out.getvalue()
        else:
            output = run_shell(code, folder)
        if printed:
            assert output == printed, code


def test_no_block_is_of_another_kind_or_left_open():
    """Every fence is read by this file: none would slip past for its spelling."""
    found, left_out = snippets()
    fences = len(re.findall(r"^```", README, re.MULTILINE))
    assert fences == 2 * (len(found) + len(left_out)) + 2 * sum(bool(printed) for _, _, printed in found)


def test_what_is_not_run_only_installs():
    """Only commands that need the network, or several GPUs, are left out."""
    _, left_out = snippets()
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
