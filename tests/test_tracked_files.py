"""Files are whole: no stray blanks or conflict marks (git's own check); YAML, TOML and JSON parse; nothing is large."""

import json
import pathlib
import subprocess
import tomllib

import pytest
import yaml

ROOT = pathlib.Path(__file__).resolve().parents[1]
LARGEST = 500_000  # bytes
EMPTY = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"  # git's name of a tree without files
PARSERS = {".json": json.loads, ".ipynb": json.loads, ".toml": tomllib.loads}
PARSERS |= dict.fromkeys((".yaml", ".yml", ".cff"), yaml.safe_load)


def git(*words):
    done = subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True)
    if "not a git repository" in done.stderr:
        pytest.skip("not a git checkout")
    return done


def test_every_tracked_file_is_whole():
    done = git("-c", "core.whitespace=blank-at-eol,blank-at-eof", "diff", "--check", EMPTY)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    for path in (ROOT / name for name in git("ls-files", "-z").stdout.split("\0") if name):
        if path.is_file():
            assert path.stat().st_size <= LARGEST or path.is_relative_to(ROOT / "elmo_fast" / "models"), path
            PARSERS.get(path.suffix, len)(path.read_text("utf-8") if path.suffix in PARSERS else "")
