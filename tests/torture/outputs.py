"""What replaces its output or goes on with it: `prepare`, `embed`, a task."""

import json
import pathlib
import random
from collections.abc import Sequence

from elmo_fast.cli.main import main
from elmo_fast.corpus import open_corpus, prepare
from elmo_fast.tasks import train_task
from tests.tasks.toy import silent, toy_config, weights_of
from tests.torture.works import UNDISTURBED, Work
from tests.weights import make_weights


class Preparing(Work):
    """`prepare`, which replaces a corpus; also: a killed one leaves a whole corpus, or none where there was none."""

    def __init__(self, folder: pathlib.Path) -> None:
        super().__init__(folder)
        chance = random.Random(0)
        words = [f"word{n}" for n in range(3000)]
        for part in range(3):
            lines = (" ".join(chance.choices(words, k=chance.randint(1, 30))) for _ in range(3000))
            (folder / f"text-{part}.txt").write_text("\n".join(lines) + "\n")

    def run(self, name: str, count: int) -> None:
        text = str(self.folder / "text-*")
        prepare(text, self.folder / name, processes=1, min_count=2, shard_tokens=1 << 16, overwrite=True)

    def whole(self, name: str) -> str:
        place = self.folder / name
        return self.of_files(name) if place.exists() and open_corpus(place) else ""

    def of_files(self, name: str) -> str:
        ours, wanted = (
            {path.name: path.read_bytes() for path in (self.folder / each).iterdir()} for each in (name, UNDISTURBED)
        )
        return ", ".join(sorted(each for each in ours.keys() | wanted if ours.get(each) != wanted.get(each)))

    def differences(self, name: str, sittings: Sequence[tuple[int, int]]) -> list[str]:
        left = [path.name for path in self.folder.glob(".*")]
        return [*filter(None, [self.of_files(name)]), *left]


class Embedding(Work):
    """`embed`, which replaces its output; also: a killed one leaves the old file whole, or none."""

    def __init__(self, folder: pathlib.Path) -> None:
        super().__init__(folder)
        make_weights(folder / "model")
        chance, words = random.Random(1), [f"word{n}" for n in range(500)]
        lines = (" ".join(chance.choices(words, k=20)) for _ in range(1000))
        (folder / "in.txt").write_text("\n".join(lines) + "\n")

    def run(self, name: str, count: int) -> None:
        form = ["--average", "-q", "--model", str(self.folder / "model")]
        assert main(["embed", str(self.folder / "in.txt"), str(self.folder / name), *form]) == 0

    def whole(self, name: str) -> str:
        ours, wanted = self.folder / name, self.folder / UNDISTURBED
        same = not ours.exists() or ours.read_bytes() == wanted.read_bytes()
        return "" if same else name

    def differences(self, name: str, sittings: Sequence[tuple[int, int]]) -> list[str]:
        left = [path.name for path in self.folder.glob(".*")]
        missing = [] if (self.folder / name).exists() else [f"no {name}"]
        return [*filter(None, [self.whole(name)]), *missing, *left]


class Sharing(Embedding):
    """`embed` in parts, by one to three processes, another number at each start; also: a part is whole, or absent."""

    counts = (1, 2, 3)

    def run(self, name: str, count: int) -> None:
        form = ["--average", "-q", "--model", str(self.folder / "model")]
        form += ["--batch-size", "2", "--part-lines", "64", *["--shard", "0/1"] * (count == 1)]
        assert main(["embed", str(self.folder / "in.txt"), str(self.folder / name), *form]) == 0

    def files(self, name: str) -> dict[pathlib.Path, bytes]:
        """All files that are under their own names; a killed one leaves others."""
        place = self.folder / name
        paths = {path.relative_to(place): path for path in place.rglob("*") if path.is_file()}
        return {inner: path.read_bytes() for inner, path in paths.items() if not str(inner).startswith(".")}

    def whole(self, name: str) -> str:
        ours, wanted = self.files(name), self.files(UNDISTURBED)
        found = {inner.parts[0] for inner in ours}
        complete = {inner: content for inner, content in wanted.items() if inner.parts[0] in found}
        return "" if ours == complete else name

    def differences(self, name: str, sittings: Sequence[tuple[int, int]]) -> list[str]:
        left = [path.name for path in self.folder.glob(f"{name}/.*")]
        same = self.files(name) == self.files(UNDISTURBED)
        merged = self.folder / "merged"
        assert main(["merge", str(self.folder / name), str(merged), "-q"]) == 0
        form = ["--average", "-q", "--model", str(self.folder / "model"), "--batch-size", "2"]
        if not (self.folder / "alone").exists():
            assert main(["embed", str(self.folder / "in.txt"), str(self.folder / "alone"), *form]) == 0
        alone = merged.read_bytes() == (self.folder / "alone").read_bytes()
        return [*[name] * (not same), *["merged"] * (not alone), *left]


class Task(Work):
    """A tagger over ELMo: its weights, and the loss and score of every epoch."""

    share = 0.4

    def config(self, name: str):
        return toy_config(
            self.folder / "task", save_dir=str(self.folder / name), elmo="input", crf=True, patience=0, epochs=5
        )

    def run(self, name: str, count: int) -> None:
        train_task(self.config(name), silent)

    def told(self, name: str) -> tuple[object, ...]:
        results = json.loads((self.folder / name / "results.json").read_text())
        rows = [{key: row[key] for key in ("epoch", "loss", "score", "best")} for row in results["epochs"]]
        return rows, results["dev"], results["test"]

    def differences(self, name: str, sittings: Sequence[tuple[int, int]]) -> list[str]:
        ours, wanted = (weights_of(self.config(each)) for each in (name, UNDISTURBED))
        compared = {
            "weights": ours.keys() == wanted.keys() and all(ours[key].equal(wanted[key]) for key in wanted),
            "scores": self.told(name) == self.told(UNDISTURBED),
        }
        return [what for what, same in compared.items() if not same]
