"""Which mutants there are, which tests judge them, which are left out, and which are known to change nothing."""

import collections
import fnmatch
import pathlib
import random
import tomllib
from typing import Any

from tools.mutants.sites import Mutation, cpp_mutations, python_mutations

HERE = pathlib.Path(__file__).parent
SOURCES = (
    "csrc/**/*.cpp",
    "csrc/**/*.h",
    "elmo_fast/ops/**/*.py",
    *(f"elmo_fast/static/{op}/*.py" for op in ("cooccurrences", "glove", "vector_text")),
)


class Plan:
    """table.toml and equivalents.toml over the sources of `root`; `flags`: what the CPU has."""

    def __init__(self, root: pathlib.Path, flags: list[str], here: pathlib.Path = HERE) -> None:
        self.root = root
        table = tomllib.loads((here / "table.toml").read_text(encoding="utf-8"))
        self._tests: dict[str, list[str]] = table["tests"]
        self._every_op: list[str] = table.get("every_op", [])
        self.left_out = [each for each in table["left_out"] if each.get("unless_cpu_has") not in flags]
        self.known = tomllib.loads((here / "equivalents.toml").read_text(encoding="utf-8")).get("equivalent", [])
        self._refuse_stale()

    def tests_of(self, file: str) -> list[str]:
        """The test files that judge mutants of a file."""
        fitting = [beginning for beginning in self._tests if file.startswith(beginning)]
        if not fitting:
            raise KeyError(f"{file} has no tests in tools/mutants/table.toml: name some there, or leave the file out")
        names = self._tests[max(fitting, key=len)]
        alone = any("::" in name for name in names)  # a program of tests/csrc: no op is made of it
        return [f"tests/{name}" for name in (names if alone else [*names, *self._every_op])]

    def _ranges(self, file: str, source: str) -> list[range]:
        """The lines of a file that are left out, from 1."""
        lines, found = source.splitlines(), []
        for entry in self.left_out:
            if not any(fnmatch.fnmatch(file, pattern) for pattern in entry["files"]):
                continue
            if "from" not in entry:
                return [range(1, len(lines) + 1)]
            begins = [i for i, line in enumerate(lines) if entry["from"] in line]
            if not begins:
                raise ValueError(f"tools/mutants/table.toml leaves out what is not in {file}: {entry['from']}")
            for begin in begins:
                end = next(i for i, line in enumerate(lines) if i > begin and entry["until"] in line)
                found.append(range(begin + 1, end + 1))
        return found

    def mutations(self) -> dict[tuple[str, int], list[Mutation]]:
        """All mutations, by file and line."""
        found: dict[tuple[str, int], list[Mutation]] = {}
        for path in sorted({path for pattern in SOURCES for path in self.root.glob(pattern)}):
            file, source = path.relative_to(self.root).as_posix(), path.read_text(encoding="utf-8")
            ranges = self._ranges(file, source)
            if path.suffix != ".py":
                these = cpp_mutations(file, source, ranges)
            else:
                these = [each for each in python_mutations(file, source) if not any(each.line in r for r in ranges)]
            for each in these:
                found.setdefault((file, each.line), []).append(each)
        return found

    def drawn(self, seed: int) -> list[Mutation]:
        """One mutation of each line, in an order by chance that a change elsewhere leaves as it is."""
        seen: collections.Counter[tuple[str, str]] = collections.Counter()
        placed = []
        for (file, _), mutations in sorted(self.mutations().items()):
            text = mutations[0].before.strip()
            seen[file, text] += 1
            generator = random.Random(f"{seed} {file} {text} {seen[file, text]}")
            placed.append((generator.random(), generator.choice(mutations)))
        return [mutation for _, mutation in sorted(placed)]

    def reason(self, mutation: Mutation) -> str | None:
        """Why a mutant is known to change nothing that a test may see, or None."""
        said = mutation.file, mutation.before.strip(), mutation.after.strip()
        return next((k["why"] for k in self.known if (k["file"], k["before"], k["after"]) == said), None)

    def _refuse_stale(self) -> None:
        """Raises where a line that equivalents.toml speaks of is no longer there."""
        for entry in self.known:
            path = self.root / entry["file"]
            lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
            if entry["before"] not in (line.strip() for line in lines):
                raise ValueError(
                    f"tools/mutants/equivalents.toml is stale: {entry['file']} has no line {entry['before']!r}"
                )


def record(mutation: Mutation, **more: Any) -> dict[str, Any]:
    """A mutation as the result file has it."""
    before, after = mutation.before.strip(), mutation.after.strip()
    return {"file": mutation.file, "line": mutation.line, "before": before, "after": after, **more}
