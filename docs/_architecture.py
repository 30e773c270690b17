"""Draws docs/architecture.svg, packages above those that they import: `python docs/_architecture.py`."""

import ast
import pathlib
from functools import cache

PACKAGE = pathlib.Path(__file__).resolve().parents[1] / "elmo_fast"
PICTURE = pathlib.Path(__file__).with_name("architecture.svg")
CAPTIONS = {
    "_C": "C++ kernels",
    "ops": "C++, CUDA, Triton",
    "checkpoints": "model files",
    "text": "sentences, tokenizers",
    "token_files": "files of vectors",
    "corpus": "text as numbers",
    "modules": "ELMo, BiLM, losses",
    "static": "GloVe, word2vec",
    "parts": "many processes",
    "tokens": "nearest tokens",
    "tasks": "tagger, classifier",
    "pretrain": "training runs",
    "pictures": "plots",
    "report": "does ELMo help",
    "compat": "older names",
    "integrations": "spaCy, flair, ...",
    "cli": "elmo-fast",
}
WIDTH, HEIGHT, GAP, ROW = 150, 44, 12, 82  # of a box, between boxes, from row to row


def imports() -> dict[str, set[str]]:
    """Return the packages that each package imports, at the top of a file or in a function, and `_C` for `ops`."""
    packages: dict[str, set[str]] = {name: set() for name in CAPTIONS}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        if parts[0] not in packages:
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                above = ["elmo_fast", *parts[:-1]][: len(parts) + 1 - node.level] if node.level else []
                module = ".".join([*above, *filter(None, [node.module])])
                names = [f"{module}.{alias.name}" for alias in node.names]
            for name in names:
                target = [*name.split("."), ""][1]
                if name.startswith("elmo_fast.") and target in packages and target != parts[0]:
                    packages[parts[0]].add(target)
    packages["ops"].add("_C")
    return packages


def rows(graph: dict[str, set[str]]) -> list[list[str]]:
    """Return the packages from the lowest row to the highest; each is one row above the highest that it imports."""

    @cache
    def level(name: str) -> int:
        return 1 + max(map(level, graph[name]), default=-1)

    levels = {name: level(name) for name in graph}
    return [[name for name in graph if levels[name] == row] for row in range(max(levels.values()) + 1)]


def direct(graph: dict[str, set[str]]) -> list[tuple[str, str]]:
    """Return the imports that no longer path of imports stands for."""

    @cache
    def reached(name: str) -> frozenset[str]:
        return frozenset(graph[name]).union(*map(reached, graph[name]))

    return [
        (name, target)
        for name, targets in graph.items()
        for target in sorted(targets)
        if not any(target in reached(other) for other in targets if other != target)
    ]


def picture() -> str:
    """Return the picture as SVG: boxes and the direct imports between them."""
    graph = imports()
    levels = rows(graph)
    width = max(map(len, levels)) * (WIDTH + GAP) + GAP
    height = len(levels) * ROW
    corners = {}
    for row, names in enumerate(levels):
        left = (width - len(names) * (WIDTH + GAP) + GAP) / 2
        for column, name in enumerate(names):
            corners[name] = left + column * (WIDTH + GAP), height - (row + 1) * ROW + (ROW - HEIGHT) / 2
    lines = []
    for name, target in direct(graph):
        (x, y), (below, under) = corners[name], corners[target]
        lines.append(f'<path d="M{x + WIDTH / 2:g} {y + HEIGHT:g} L{below + WIDTH / 2:g} {under:g}" stroke="#9aa0a6"/>')
    for name, (x, y) in corners.items():
        middle = x + WIDTH / 2
        lines += [
            f'<rect x="{x:g}" y="{y:g}" width="{WIDTH}" height="{HEIGHT}" rx="5" fill="#eaf1fb" stroke="#4c78a8"/>',
            f'<text x="{middle:g}" y="{y + 19:g}" text-anchor="middle" font-weight="bold">{name}</text>',
            f'<text x="{middle:g}" y="{y + 35:g}" text-anchor="middle" font-size="11">{CAPTIONS[name]}</text>',
        ]
    style = 'font-family="sans-serif" font-size="13"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" {style}>'
    return "\n".join([head, f'<rect width="{width}" height="{height}" fill="white"/>', *lines, "</svg>\n"])


if __name__ == "__main__":
    PICTURE.write_text(picture(), encoding="utf-8")
