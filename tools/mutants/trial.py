"""One mutant after the other in a copy of its own: changed, built, tested, put back."""

import dataclasses
import hashlib
import json
import os
import pathlib

from tools.mutants import judge
from tools.mutants.build import ROOT, Copy, Refused, Whole
from tools.mutants.plan import Plan
from tools.mutants.sites import Mutation

KILLED, SURVIVED, REFUSED, SAME = "killed", "survived", "refused", "same"


@dataclasses.dataclass
class Outcome:
    """What became of a mutant: KILLED (`by` a test or signal), SURVIVED, or none: REFUSED by the compiler, the SAME."""

    outcome: str
    by: str = ""
    seconds: float = 0.0


class Trial:
    """Judges mutants in one copy. `seconds`: a folder that tells how long each test file takes without one."""

    def __init__(self, copy: Copy, plan: Plan, seconds: pathlib.Path) -> None:
        self.copy, self.plan, self._seconds = copy, plan, seconds

    def limit(self, tests: list[str]) -> float:
        """Seconds of CPU time after which a run has hung; RuntimeError where the tests fail without a mutant."""
        total = 0.0
        for test in tests:
            file = self._seconds / test.replace("/", "_")
            if not file.is_file():
                verdict = judge.run(self.copy.tree, [test])
                if not verdict.passed:
                    raise RuntimeError(f"without a mutant {verdict.by} fails: see {self.copy.tree}/build/run.log")
                file.write_text(f"{verdict.seconds:.1f}", encoding="utf-8")
            total += float(file.read_text(encoding="utf-8"))
        return 30 + 3 * total

    def __call__(self, mutation: Mutation) -> Outcome:
        """Changes the line, builds, runs the tests, and puts all back."""
        tests, path = self.plan.tests_of(mutation.file), self.copy.tree / mutation.file
        source = path.read_text(encoding="utf-8")
        lines = source.splitlines(keepends=True)
        lines[mutation.line - 1] = mutation.after + "\n"
        limit = self.limit(tests)
        path.write_text("".join(lines), encoding="utf-8")
        try:
            if path.suffix == ".py":
                compile(path.read_bytes(), path, "exec")
            elif self.copy.whole.objects_of(mutation.file) and not self.copy.rebuilt(mutation.file):
                return Outcome(SAME)
            verdict = judge.run(self.copy.tree, tests, limit)
        except (Refused, SyntaxError):
            return Outcome(REFUSED)
        finally:
            path.write_text(source, encoding="utf-8")
            if path.suffix != ".py":
                self.copy.put_back()
        return Outcome(SURVIVED if verdict.passed else KILLED, verdict.by, verdict.seconds)


class Journal:
    """What was found, in a file: a kill holds while the source is as it was, a survivor while its tests are too."""

    def __init__(self, path: pathlib.Path, plan: Plan) -> None:
        self._path, self._plan = path, plan
        self._known: dict[str, Outcome] = {}
        if path.is_file():
            for line in path.read_text(encoding="utf-8").splitlines():
                entry = json.loads(line)
                key = entry.pop("key")
                self._known[key] = Outcome(**entry)

    def _key(self, root: pathlib.Path, mutation: Mutation, outcome: str) -> str:
        read = [root / mutation.file]
        if outcome == SURVIVED:
            read += [root / test.partition("::")[0] for test in self._plan.tests_of(mutation.file)]
        sources = b"".join(path.read_bytes() for path in read)
        said = f"{outcome} {mutation.file} {mutation.line} {mutation.after}"
        return hashlib.sha256(sources + said.encode()).hexdigest()

    def known(self, mutation: Mutation) -> Outcome | None:
        """What is known of a mutant, or None."""
        kinds = (KILLED, SURVIVED, REFUSED, SAME)
        return next((found for kind in kinds if (found := self._known.get(self._key(ROOT, mutation, kind)))), None)

    def add(self, root: pathlib.Path, mutation: Mutation, outcome: Outcome) -> None:
        """Remembers what was found with the sources and tests of `root`, while the checkout may change."""
        entry = {"key": self._key(root, mutation, outcome.outcome), **dataclasses.asdict(outcome)}
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")


_trial: Trial | None = None


def begin(whole: Whole, plan: Plan, folder: pathlib.Path) -> None:
    """Of a worker: a copy of its own."""
    global _trial
    _trial = Trial(Copy(whole, folder / f"worker{os.getpid()}"), plan, folder / "seconds")


def judged(mutation: Mutation) -> Outcome:
    """Of a worker: one mutant."""
    if _trial is None:
        raise RuntimeError("begin() comes first")
    return _trial(mutation)
