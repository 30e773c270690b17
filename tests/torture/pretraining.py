"""Pretraining that is killed: while it trains, saves, goes on, and in changing numbers of processes."""

import json
import pathlib
from collections.abc import Callable, Sequence

from elmo_fast.checkpoints import saved_steps
from elmo_fast.pretrain.config import PretrainConfig
from elmo_fast.pretrain.run import pretrain
from tests.pretrain.killed_worker import digest, dying_at
from tests.pretrain.toy import toy_config
from tests.torture.works import UNDISTURBED, Work

STEPS, INTERVAL, BEST = 120, 7, "/checkpoints/best"


class Training(Work):
    """Pretraining in one process: last and best weights, reports and held-out figures, and which checkpoints stay."""

    share = 0.5

    def __init__(self, folder: pathlib.Path) -> None:
        super().__init__(folder)
        toy_config(folder)  # writes the text, once

    def config(self, name: str, steps: int = STEPS) -> PretrainConfig:
        return toy_config(
            train_prefix=str(self.folder / "train-*"), max_steps=steps, n_epochs=1000, batch_size=6, unroll_steps=3,
            checkpoint_interval=INTERVAL, log_interval=5, dropout=0.2, state_reset=0.05,
            save_dir=str(self.folder / name), heldout_prefix=str(self.folder / "train-1*"), heldout_interval=30,
            keep_best=True,
        )  # fmt: skip

    def run(self, name: str, count: int, steps: int = STEPS) -> None:
        pretrain(self.config(name, steps), report=lambda line: None)

    def step(self, name: str) -> int:
        return max((step for step, _ in saved_steps(self.folder / name)), default=0)

    def rows(self, name: str) -> list[tuple[object, ...]]:
        """What the rows tell that does not depend on the clock."""
        told = ("event", "step", "words", "loss", "loss_forward", "gradient_norm", "learning_rate", "perplexity")
        lines = (self.folder / name / "metrics.jsonl").read_text().splitlines()
        found = [tuple(row.get(key) for key in told) for row in map(json.loads, lines)]
        return [row for row in found if row[0] in (None, "heldout")]

    def left(self, name: str) -> list[str]:
        return sorted(path.name for path in (self.folder / name / "checkpoints").iterdir())

    def differences(self, name: str, sittings: Sequence[tuple[int, int]]) -> list[str]:
        compared = {
            "weights": digest(self.folder, name) == digest(self.folder, UNDISTURBED),
            "best weights": digest(self.folder, name + BEST) == digest(self.folder, UNDISTURBED + BEST),
            "reports": self.rows(name) == self.rows(UNDISTURBED),
            "checkpoints": self.left(name) == self.left(UNDISTURBED),
        }
        return [what for what, same in compared.items() if not same]


class Saving(Training):
    """Pretraining that kills itself at one of the moments at which a save touches the disk."""

    moment = 0

    def run(self, name: str, count: int, steps: int = STEPS) -> None:
        if self.moment:
            dying_at(self.moment)
        super().run(name, count, steps)


class Resuming(Training):
    """Pretraining that is killed while it begins or goes on."""

    share = 0.1


class Joined(Training):
    """Pretraining in one, two or three processes, another number at each start.

    Sums are added up in another order then, so that the run that nothing disturbed has the same schedule: as many
    processes from each step to the next. Beside that, the losses are those of one process to 1e-4.
    """

    counts = (1, 2, 3)

    def differences(self, name: str, sittings: Sequence[tuple[int, int]]) -> list[str]:
        again = f"{name}-again"
        for (first, count), (last, _) in zip(sittings, [*sittings[1:], (STEPS, 0)], strict=True):
            if last > first:
                self.together(again, count, last)
        compared = {"weights": digest(self.folder, name) == digest(self.folder, again)}
        alone = [row[3:6] for row in self.rows(UNDISTURBED) if row[0] is None]
        ours = [row[3:6] for row in self.rows(name) if row[0] is None]
        compared["losses"] = len(ours) == len(alone) and all(
            abs(x - y) <= 1e-4 * abs(y)
            for mine, wanted in zip(ours, alone, strict=True)
            for x, y in zip(mine, wanted, strict=True)
        )
        compared["checkpoints"] = self.left(name) == self.left(UNDISTURBED)
        return [what for what, same in compared.items() if not same]

    together: Callable[[str, int, int], None]
