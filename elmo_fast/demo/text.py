"""English prose that comes with Python: the topics of the language reference, and the library's docstrings."""

import ast
import hashlib
import pathlib
import re
import sysconfig
from collections.abc import Iterator

TOKEN = re.compile(r"[^\W\d]\w*(?:'[a-z]+)?|\d+|[^\w\s]")
SENTENCE_END = re.compile(r"(?<=[.!?:])\s+(?=[A-Z\"'`*(])")
# How many of 100 documents are held out.
HELDOUT_PERCENT = 6
SHORTEST = 4


def documents() -> Iterator[tuple[str, str]]:
    """Name and text of each topic, and of each module of the standard library without tests and other packages."""
    from pydoc_data.topics import topics

    yield from ((f"topic {name}", text) for name, text in topics.items())
    library = pathlib.Path(sysconfig.get_path("stdlib"))
    for path in sorted(library.rglob("*.py")):
        parts = path.relative_to(library).parts
        if {"site-packages", "dist-packages", "test", "tests", "idlelib", "lib2to3", "pydoc_data"} & set(parts):
            continue
        try:
            tree = ast.parse(path.read_text(encoding="utf-8"))
        except (SyntaxError, UnicodeDecodeError, OSError):
            continue  # files that are broken on purpose, or unreadable here, contain no documentation
        kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
        texts = [ast.get_docstring(node) for node in ast.walk(tree) if isinstance(node, kinds)]
        yield "/".join(parts), "\n\n".join(filter(None, texts))


def sentences(document: str) -> Iterator[tuple[str, ...]]:
    """The sentences of a document as tokens: paragraphs split at full stops, without code examples and drawings."""
    for paragraph in re.split(r"\n\s*\n", document):
        lines = [line.strip() for line in paragraph.splitlines()]
        if any(line.startswith((">>>", "...", "+--", "|", "==", "--", "**")) for line in lines):
            continue
        for sentence in SENTENCE_END.split(" ".join(lines)):
            tokens = tuple(TOKEN.findall(sentence))
            words = sum(token[0].isalpha() for token in tokens)
            if len(tokens) >= SHORTEST and words * 2 >= len(tokens):
                yield tokens


def is_heldout(name: str) -> bool:
    """Whether a document is excluded from training: the same choice on every machine."""
    return int(hashlib.sha256(name.encode()).hexdigest(), 16) % 100 < HELDOUT_PERCENT


def write_corpus(folder: pathlib.Path) -> tuple[pathlib.Path, pathlib.Path]:
    """Writes train.txt and heldout.txt, one sentence per line, no sentence twice, so that none is in both."""
    seen: set[tuple[str, ...]] = set()
    lines: dict[bool, list[str]] = {True: [], False: []}
    for name, document in documents():
        for tokens in sentences(document):
            if tokens not in seen:
                seen.add(tokens)
                lines[is_heldout(name)].append(" ".join(tokens))
    paths = (folder / "train.txt", folder / "heldout.txt")
    for path, heldout in zip(paths, (False, True), strict=True):
        path.write_text("\n".join(lines[heldout]) + "\n", encoding="utf-8")
    return paths
