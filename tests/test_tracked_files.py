"""Files are whole: one newline at the end, no stray blanks or conflict marks, YAML, TOML and JSON parse, nothing large.

A pre-commit hook too: `python tests/test_tracked_files.py FILE ...` prints what is wrong and exits with 1.
"""

import json
import pathlib
import re
import subprocess
import sys
import tomllib

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[1]
LARGEST = 500_000  # bytes
MODELS = ROOT / "elmo_fast" / "models"  # what the package brings along
CONFLICT = re.compile(rb"^(<{7} |>{7} |={7}$)", re.MULTILINE)
PARSERS = {".json": json.loads, ".ipynb": json.loads, ".toml": tomllib.loads}


def faults(path):
    """Return what is wrong with one file, in words."""
    content = path.read_bytes()
    actual = []
    if len(content) > LARGEST and not path.is_relative_to(MODELS):
        actual.append(f"{len(content)} bytes, more than {LARGEST}")
    if b"\0" in content:
        return actual
    if CONFLICT.search(content):
        actual.append("holds the marks of a merge conflict")
    if b"\r\n" in content:
        actual.append("lines end with CR LF")
    if content and (not content.endswith(b"\n") or content.endswith(b"\n\n")):
        actual.append("does not end with exactly one newline")
    if re.search(rb"[ \t]+$", content, re.MULTILINE):
        actual.append("blanks at the end of a line")
    try:
        text = content.decode("utf-8")
        if path.suffix in (".yaml", ".yml", ".cff"):
            import yaml

            yaml.safe_load(text)
        elif path.suffix in PARSERS:
            PARSERS[path.suffix](text)
    except Exception as error:  # noqa: BLE001 (whatever a parser raises is the finding)
        actual.append(f"does not parse: {error}")
    return actual


def tracked():
    """The files of this checkout that git knows, or None outside a checkout."""
    done = subprocess.run(["git", "-C", str(ROOT), "ls-files", "-z"], capture_output=True)
    return None if done.returncode else [ROOT / name for name in done.stdout.decode().split("\0") if name]


def test_every_tracked_file_is_whole():
    files = tracked()
    if files is None:
        pytest.skip("not a git checkout")
    assert {str(path.relative_to(ROOT)): actual for path in files if path.is_file() and (actual := faults(path))} == {}


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.py", b"x = 1", "newline"),
        ("a.py", b"x = 1\n\n", "newline"),
        ("a.py", b"x = 1 \n", "blanks"),
        ("a.py", b"x = 1\r\n", "CR LF"),
        ("a.py", b"<<<<<<< mine\nx = 1\n", "conflict"),
        ("a.yaml", b"a: [1\n", "parse"),
        ("a.toml", b"a = \n", "parse"),
        ("a.json", b"{'a': 1}\n", "parse"),
        ("a.txt", b"\xff\n", "parse"),
        ("a.bin", b"\0" * (LARGEST + 1), "bytes"),
    ],
)
def test_each_fault_is_found(tmp_path, name, content, words):
    (tmp_path / name).write_bytes(content)
    assert any(words in fault for fault in faults(tmp_path / name))


def main(names):
    wrong = [f"{name}: {fault}" for name in names for fault in faults(pathlib.Path(name))]
    print("\n".join(wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
