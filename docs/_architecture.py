"""Draws docs/architecture.svg, packages above those that they import: `python docs/_architecture.py`."""

import ast
import itertools
import pathlib
from functools import cache

import _svg

PACKAGE = pathlib.Path(__file__).resolve().parents[1] / "elmo_fast"
PICTURE = pathlib.Path(__file__).with_name("architecture.svg")
CAPTIONS = {
    "_C": "C++ kernels",
    "ops": "C++, Triton",
    "checkpoints": "model files",
    "text": "sentences, tokenizers",
    "corpus": "text as numbers",
    "modules": "ELMo, BiLM, losses",
    "embed": "text to vectors",
    "static": "GloVe, word2vec",
    "tokens": "nearest tokens",
    "tasks": "tagger, classifier",
    "pretrain": "training runs",
    "pictures": "plots",
    "report": "does ELMo help",
    "compat": "older names",
    "integrations": "spaCy, flair, ...",
    "cli": "elmo-fast",
}
CORE = {"_C", "ops", "checkpoints", "text", "corpus", "modules", "embed", "pretrain", "cli"}  # blue; the others grey
HEIGHT, WIDTH, GAP, ROW = _svg.HEIGHT, 150, 12, 92  # of a box, between boxes, from row to row
LANE = 16  # width of the gap in a row through which a line passes
SWEEPS = 20
Line = list[str]  # a box, the lanes of the rows between, a box


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


def lanes(levels: list[list[str]], edges: list[tuple[str, str]]) -> tuple[list[list[str]], list[Line]]:
    """Return the rows with a lane for each line that passes through them, and the lines, each from above."""
    row_of = {name: row for row, names in enumerate(levels) for name in names}
    wide, lines = [list(names) for names in levels], []
    for name, target in edges:
        between = range(row_of[name] - 1, row_of[target], -1)
        line = [name, *(f"{name} {target} {row}" for row in between), target]
        for row, lane in zip(between, line[1:], strict=False):
            wide[row].append(lane)
        lines.append(line)
    return wide, lines


def spread(middles: list[float], apart: list[float]) -> list[float]:
    """Return the numbers nearest to `middles` (least squares), each at least `apart` from the one before."""
    offsets = [0.0, *itertools.accumulate(apart)]
    pools: list[tuple[float, int]] = []  # (mean, how many) of neighbours that would overlap
    for middle, offset in zip(middles, offsets, strict=True):
        mean, count = middle - offset, 1
        while pools and pools[-1][0] > mean:
            other, more = pools.pop()
            mean, count = (mean * count + other * more) / (count + more), count + more
        pools.append((mean, count))
    return [mean + offset for (mean, offset) in zip((m for m, n in pools for _ in range(n)), offsets, strict=True)]


def middles(levels: list[list[str]], lines: list[Line]) -> dict[str, float]:
    """Return the middle of each box and lane, near what it is connected to; rows are ordered by this too."""
    near: dict[str, list[str]] = {name: [] for names in levels for name in names}
    for line in lines:
        for above, below in itertools.pairwise(line):
            near[above].append(below)
            near[below].append(above)
    x = {name: 100.0 * (place - len(names) / 2) for names in levels for place, name in enumerate(names)}
    for sweep in range(SWEEPS):
        for names in levels if sweep % 2 else levels[::-1]:
            ideal = {name: sum(x[other] for other in near[name]) / max(1, len(near[name])) for name in names}
            if sweep < SWEEPS // 2:
                names.sort(key=ideal.__getitem__)
            sizes = [LANE if " " in name else WIDTH for name in names]
            apart = [(left + right) / 2 + GAP for left, right in itertools.pairwise(sizes)]
            x.update(zip(names, spread([ideal[name] for name in names], apart), strict=True))
    left = min(x[name] for names in levels for name in names if " " not in name) - WIDTH / 2 - GAP
    return {name: round(middle - left) for name, middle in x.items()}


def ports(lines: list[Line], x: dict[str, float], end: int) -> dict[tuple[str, str], float]:
    """Return where each line leaves a box (end 0) or arrives (end -1): next to each other, in their order."""
    next_to = 1 if end == 0 else -2
    places = {}
    for name in {line[end] for line in lines}:
        here = sorted((line for line in lines if line[end] == name), key=lambda line: x[line[next_to]])
        for number, line in enumerate(here):
            places[line[0], line[-1]] = x[name] + (number - (len(here) - 1) / 2) * LANE
    return places


def picture() -> str:
    """Return the picture as SVG: boxes and arrows for the direct imports, which pass between boxes."""
    graph = imports()
    levels, lines = lanes(rows(graph), direct(graph))
    x = middles(levels, lines)
    y = {
        name: (len(levels) - row - 1) * ROW + (ROW - HEIGHT) // 2 for row, names in enumerate(levels) for name in names
    }
    width, height = max(x[name] for name in graph) + WIDTH // 2 + GAP, len(levels) * ROW
    leaves, arrives = ports(lines, x, 0), ports(lines, x, -1)
    drawn = []
    for name, *between, target in lines:
        passed = [f"{x[lane]:g} {y[lane]} V{y[lane] + HEIGHT}" for lane in between]
        points = [f"{leaves[name, target]:g} {y[name] + HEIGHT}", *passed, f"{arrives[name, target]:g} {y[target] - 2}"]
        drawn.append(_svg.arrow(" L".join(points)))
    drawn += [
        _svg.box(x[name] - WIDTH / 2, y[name], WIDTH, name, CAPTIONS[name], core=name in CORE, bold=True)
        for name in graph
    ]
    return _svg.page(width, height, drawn)


if __name__ == "__main__":
    PICTURE.write_text(picture(), encoding="utf-8")
