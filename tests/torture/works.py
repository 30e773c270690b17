"""Works that are killed and started again until they end, then compared: pretraining, `prepare`, `embed`, a task."""

import hashlib
import json
import os
import pathlib
import random
import shutil
import signal
from collections.abc import Sequence

from elmo_fast._io import atomic_folder
from elmo_fast.checkpoints import saved_steps
from elmo_fast.cli.main import main
from elmo_fast.corpus import open_corpus, prepare
from elmo_fast.pretrain import checkpoint
from elmo_fast.pretrain.config import PretrainConfig
from elmo_fast.pretrain.run import pretrain
from elmo_fast.tasks import train_task
from tests.pretrain.toy import toy_config
from tests.support.weights import make_weights
from tests.tasks import toy as tagging
from tests.torture.children import all_finish, fork_group

UNDISTURBED = "undisturbed"


class Work:
    """One kind of work in a folder: run under a name by some processes, and compared with a run that nothing disturbed.

    share: of the time of an undisturbed run, within which it is killed; counts: of processes.
    """

    share, counts = 1.0, (1,)
    moment = 0  # at which `Saving` kills itself
    moments = 250  # at which its saves touch the disk

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder, self.log = folder, folder.parent / f"{folder.name}-log.txt"
        folder.mkdir(parents=True)

    def run(self, name: str, count: int, *more: int) -> None:
        """Does the work, in a process of its own."""
        raise NotImplementedError

    def start(self, name: str, count: int, *more: int) -> list[int]:
        """The processes that do the work."""
        return fork_group(lambda: self.run(name, count, *more), count, self.log)

    def whole(self, name: str) -> str:
        """Return what is wrong with the files of a killed run; nothing if they are right."""
        return ""

    def differences(self, name: str, sittings: Sequence[tuple[int, int]]) -> list[str]:
        """Return the differences between the ended run and the undisturbed one; sittings: (step begun at, processes) of
        each."""
        raise NotImplementedError

    def step(self, name: str) -> int:
        """Return the step from which a run would resume."""
        return 0


STEPS, INTERVAL, BEST = 120, 7, "/checkpoints/best"


def digest(folder: pathlib.Path, name: str) -> str:
    """Digest of the file of the weights."""
    return hashlib.sha256((folder / name / "model.safetensors").read_bytes()).hexdigest()


class Training(Work):
    """Pretraining in one process: last and best weights, reports and held-out figures, and which checkpoints stay.

    patience: after the evaluations of steps 70, 80 and 90 it ends the run, if it is 3.
    """

    share = 0.5
    patience: int | None = 3

    def __init__(self, folder: pathlib.Path) -> None:
        super().__init__(folder)
        toy_config(folder)  # writes the text, once

    def config(self, name: str, steps: int = STEPS) -> PretrainConfig:
        return toy_config(
            train_prefix=str(self.folder / "train-*"), max_steps=steps, n_epochs=1000, batch_size=6, unroll_steps=3,
            checkpoint_interval=INTERVAL, log_interval=5, dropout=0.2, state_reset=0.05,
            save_dir=str(self.folder / name), heldout_prefix=str(self.folder / "train-1*"), heldout_interval=10,
            keep_best=True, patience=self.patience,
        )  # fmt: skip

    def run(self, name: str, count: int, steps: int = STEPS) -> None:
        pretrain(self.config(name, steps), report=lambda line: None)

    def step(self, name: str) -> int:
        return max((step for step, _ in saved_steps(self.folder / name)), default=0)

    def rows(self, name: str) -> list[tuple[object, ...]]:
        """Return the fields of the rows that do not depend on the clock."""
        message = ("event", "step", "words", "loss", "loss_forward", "gradient_norm", "learning_rate", "perplexity")
        lines = (self.folder / name / "metrics.jsonl").read_text().splitlines()
        actual = [tuple(row.get(key) for key in message) for row in map(json.loads, lines)]
        return [row for row in actual if row[0] in (None, "heldout")]

    def left(self, name: str) -> list[str]:
        run = self.folder / name
        saves = [path for path in run.rglob("*") if path.name == ".new-files" or path.parent.name == "checkpoints"]
        return sorted(os.fspath(path.relative_to(run)) for path in saves)

    def best(self, name: str) -> list[checkpoint.BestEvaluation]:
        """Return what the newest and the best checkpoint know of the evaluations."""
        newest = max(saved_steps(self.folder / name))[1]
        return [checkpoint.read_training_state(at).position.best for at in (newest, newest.parent / "best")]

    def differences(self, name: str, sittings: Sequence[tuple[int, int]]) -> list[str]:
        compared = {
            "weights": digest(self.folder, name) == digest(self.folder, UNDISTURBED),
            "best weights": digest(self.folder, name + BEST) == digest(self.folder, UNDISTURBED + BEST),
            "reports": self.rows(name) == self.rows(UNDISTURBED),
            "checkpoints": self.left(name) == self.left(UNDISTURBED),
            "evaluations": self.best(name) == self.best(UNDISTURBED),
        }
        return [what for what, same in compared.items() if not same]


def dying_at(moment: int) -> None:
    """Makes this process kill itself when it touches the disk for a save for the `moment`-th time."""
    touched = 0

    def wrap(module, name):
        original = getattr(module, name)

        def touching(*arguments, **named):
            nonlocal touched
            touched += 1
            if touched == moment:
                os.kill(os.getpid(), signal.SIGKILL)
            return original(*arguments, **named)

        setattr(module, name, touching)

    for module, name in (
        (os, "rename"), (os, "replace"), (os, "link"), (shutil, "rmtree"), (atomic_folder, "flush"),
        (atomic_folder, "sha256_of"), (checkpoint, "saved_steps"),
    ):  # fmt: skip
        wrap(module, name)


class Saving(Training):
    """Pretraining that kills itself at one of the moments at which a save touches the disk."""

    def run(self, name: str, count: int, steps: int = STEPS) -> None:
        if self.moment:
            dying_at(self.moment)
        super().run(name, count, steps)


class Ending(Saving):
    """Like `Saving`, but only the last saves count: of the last step, of the best evaluation, of both, of the model."""

    patience, moments = None, 60

    def run(self, name: str, count: int, steps: int = STEPS) -> None:
        at_the_end = f"step {steps:>6} ", f"resumes after step {steps}:"

        def report(line: str) -> None:
            if self.moment and any(each in line for each in at_the_end):
                dying_at(self.moment)

        pretrain(self.config(name, steps), report=report)


class Resuming(Training):
    """Pretraining that is killed while it begins or goes on."""

    share = 0.1


class Joined(Training):
    """Pretraining in one, two or three processes, another number at each start.

    Sums are added up in another order then, so that the run that nothing disturbed has the same schedule: as many
    processes from each step to the next. Besides, the losses are those of one process to 1e-4.
    """

    counts = (1, 2, 3)
    patience = None  # the same steps with other sums

    def differences(self, name: str, sittings: Sequence[tuple[int, int]]) -> list[str]:
        again = f"{name}-again"
        for (first, count), (last, _) in zip(sittings, [*sittings[1:], (STEPS, 0)], strict=True):
            if last > first:
                assert all_finish(self.start(again, count, last), self.log)
        compared = {"weights": digest(self.folder, name) == digest(self.folder, again)}
        alone = [row[3:6] for row in self.rows(UNDISTURBED) if row[0] is None]
        actual = [row[3:6] for row in self.rows(name) if row[0] is None]
        compared["losses"] = len(actual) == len(alone) and all(
            abs(x - y) <= 1e-4 * abs(y)
            for mine, expected in zip(actual, alone, strict=True)
            for x, y in zip(mine, expected, strict=True)
        )
        compared["checkpoints"] = self.left(name) == self.left(UNDISTURBED)
        return [what for what, same in compared.items() if not same]


class Writing(Work):
    """A command that replaces its output; also: a killed one leaves the old output whole, or none."""

    def files(self, name: str) -> dict[pathlib.Path, bytes]:
        """The output's files that are under their own names; a killed one leaves others."""
        place = self.folder / name
        paths = {path.relative_to(place): path for path in (place, *place.rglob("*")) if path.is_file()}
        return {
            inner: path.read_bytes() for inner, path in paths.items() if not str(inner).startswith(".") or path == place
        }

    def expected(self, name: str) -> dict[pathlib.Path, bytes]:
        """The files of a whole output; none where there is none."""
        return self.files(UNDISTURBED) if (self.folder / name).exists() else {}

    def whole(self, name: str) -> str:
        return "" if self.files(name) == self.expected(name) else name

    def differences(self, name: str, sittings: Sequence[tuple[int, int]]) -> list[str]:
        left = [path.name for path in (*self.folder.glob(".*"), *self.folder.glob(f"{name}/.*"))]
        if not (self.folder / name).exists():
            return [f"no {name}", *left]
        return [*[name] * (self.files(name) != self.files(UNDISTURBED)), *left]


class Preparing(Writing):
    """`prepare`, which replaces the corpus of a shorter text."""

    def __init__(self, folder: pathlib.Path) -> None:
        super().__init__(folder)
        chance = random.Random(0)
        words = [f"word{n}" for n in range(3000)]
        for part in range(3):
            lines = (" ".join(chance.choices(words, k=chance.randint(1, 30))) for _ in range(3000))
            (folder / f"text-{part}.txt").write_text("\n".join(lines) + "\n")
        self.run("before", 1, "text-0.txt")

    def run(self, name: str, count: int, text: str = "text-*") -> None:
        text = str(self.folder / text)
        prepare(text, self.folder / name, processes=1, min_count=2, shard_tokens=1 << 16, overwrite=True)

    def start(self, name: str, count: int, *more: int) -> list[int]:
        if name != UNDISTURBED and not (self.folder / name).exists():
            shutil.copytree(self.folder / "before", self.folder / name)
        return super().start(name, count, *more)

    def expected(self, name: str) -> dict[pathlib.Path, bytes]:
        before = self.files("before")
        return before if self.files(name) == before else super().expected(name)

    def whole(self, name: str) -> str:
        if (self.folder / name).exists():
            open_corpus(self.folder / name)
            atomic_folder.finish_folder(self.folder / name)  # as the next writer does
        return super().whole(name)


class Embedding(Writing):
    """`embed` into a file."""

    def __init__(self, folder: pathlib.Path) -> None:
        super().__init__(folder)
        make_weights(folder / "model")
        chance, words = random.Random(1), [f"word{n}" for n in range(500)]
        lines = (" ".join(chance.choices(words, k=20)) for _ in range(1000))
        (folder / "in.txt").write_text("\n".join(lines) + "\n")

    def embed(self, name: str, *more: str) -> None:
        words = [str(self.folder / "in.txt"), str(self.folder / name), "--model", str(self.folder / "model")]
        assert main(["embed", *words, "--average", "-q", *more]) == 0

    def run(self, name: str, count: int) -> None:
        self.embed(name)


class Sharing(Embedding):
    """`embed` in parts, by one to three processes, another number at each start; also: a part is whole, or absent."""

    counts = (1, 2, 3)

    def run(self, name: str, count: int) -> None:
        self.embed(name, "--batch-size", "2", "--part-lines", "64", *["--shard", "0/1"] * (count == 1))

    def expected(self, name: str) -> dict[pathlib.Path, bytes]:
        present = {inner.parts[0] for inner in self.files(name)}
        return {inner: content for inner, content in self.files(UNDISTURBED).items() if inner.parts[0] in present}

    def differences(self, name: str, sittings: Sequence[tuple[int, int]]) -> list[str]:
        merged, alone = self.folder / "merged", self.folder / "alone"
        assert main(["merge", str(self.folder / name), str(merged), "-q"]) == 0
        if not alone.exists():
            self.embed("alone", "--batch-size", "2")
        return [*super().differences(name, sittings), *["merged"] * (merged.read_bytes() != alone.read_bytes())]


class Task(Work):
    """A tagger over ELMo: its weights, and the loss and score of every epoch."""

    share = 0.4

    def config(self, name: str):
        return tagging.toy_config(
            self.folder / "task", save_dir=str(self.folder / name), elmo="input", crf=True, patience=0, epochs=5
        )

    def run(self, name: str, count: int) -> None:
        train_task(self.config(name), tagging.silent)

    def results(self, name: str) -> tuple[object, ...]:
        saved = json.loads((self.folder / name / "results.json").read_text())
        noted = map(json.loads, (self.folder / name / "metrics.jsonl").read_text().splitlines())
        keys = ("epoch", "loss", "score", "best")
        rows = [[{key: row[key] for key in keys} for row in rows] for rows in (saved["epochs"], noted)]
        return rows, saved["dev"], saved["test"]

    def differences(self, name: str, sittings: Sequence[tuple[int, int]]) -> list[str]:
        actual, expected = (tagging.weights_of(self.config(each)) for each in (name, UNDISTURBED))
        compared = {
            "weights": actual.keys() == expected.keys() and all(actual[key].equal(expected[key]) for key in expected),
            "scores": self.results(name) == self.results(UNDISTURBED),
        }
        return [what for what, same in compared.items() if not same]
