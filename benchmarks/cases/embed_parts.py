"""`elmo-fast embed` in parts, by one process and by two, beside one process that writes one file; one thread each.

Two processes that know nothing of each other, each with a file of its own, show what the machine has for two: they
share its memory and caches, and no parts.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

from benchmarks import architectures, texts
from benchmarks.cases import Settings
from benchmarks.cases.embed_file import EVERY, KEPT, growth, resident, settled
from benchmarks.machine import ROOT
from benchmarks.results import Report, faster, row

GOAL_TWO, GOAL_PARTS = 1.9, 0.97  # of two processes against one file, and of the parts of one against one file
ALONE, ONE, TWO, APART = "one file", "parts, 1 process", "parts, 2 processes", "2 files, each its own process"
PROCESSES = {ALONE: 1, ONE: 1, TWO: 2, APART: 2}


def run(settings: Settings) -> Report:
    """Rows "tokens/s" of each side, the model's loading left out, and "MiB" resident of a process that writes parts."""
    sizes = {"small": (50_000, 64, 2), "original": (3000, 8, 1)}  # lines, sentences of a batch, rounds
    if settings.quick:
        sizes = {"small": (3000, 8, 1)}
    report = Report(notes={"weights": "random"})
    for architecture, (lines, batch, rounds) in sizes.items():
        text = texts.many_lines(settings.text, lines)
        report.notes |= {f"text, {architecture}": text.source, f"lines, {architecture}": f"{lines}, {rounds} times"}
        rates, memory = in_turn(architecture, text, batch, rounds)
        rows = {side: row(f"embed, {architecture}", side, rates[side], threads=1, unit="tokens/s") for side in rates}
        faster(rows[ONE], rows[ALONE], GOAL_PARTS)
        faster(rows[TWO], rows[ALONE], GOAL_TWO)
        faster(rows[APART], rows[ALONE])
        report.rows += rows.values()
        if architecture == "small":
            after = settled(memory)
            series = memory[:: -(-len(memory) // KEPT)]
            report.notes["growth after the start"] = f"{growth(after):.1f} MiB"
            report.notes["seconds: MiB"] = {f"{at:.0f}": f"{size:.0f}" for at, size in series}
            report.rows.append(row("resident memory, small", ONE, after, threads=1, unit="MiB"))
    return report


def in_turn(
    architecture: str, text: texts.Text, batch: int, rounds: int
) -> tuple[dict[str, list[float]], list[tuple[float, float]]]:
    """tokens/s of each side, and (seconds, MiB) of the longest run of parts by one process."""
    rates: dict[str, list[float]] = {side: [] for side in PROCESSES}
    memory: list[tuple[float, float]] = []
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        options_file, weight_file = architectures.write(architecture, folder)
        text.write(folder / "lines.txt")
        for half in range(2):
            text._replace(sentences=text.sentences[half::2]).write(folder / f"half-{half}.txt")
        words = ["--average", "--no-stateful", "--threads", "1"]
        words += ["--options-file", str(options_file), "--weight-file", str(weight_file), "--batch-size", str(batch)]
        for _ in range(rounds):
            for side in PROCESSES:
                rate, watched = measured(side, words, folder)
                rates[side].append(rate)
                memory = max(memory, watched, key=len) if side == ONE else memory
    return rates, memory


def measured(side: str, words: list[str], folder: pathlib.Path) -> tuple[float, list[tuple[float, float]]]:
    """Runs the processes of a side; tokens/s, and the first one's memory. RuntimeError when one fails."""
    count, out, log = PROCESSES[side], folder / "out", folder / "log.txt"
    files = [["lines.txt", "out"]] * count if side != APART else [[f"half-{n}.txt", f"out-{n}"] for n in range(count)]
    shards = [["--shard", f"{index}/{count}"] if side in (ONE, TWO) else [] for index in range(count)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    memory: list[tuple[float, float]] = []
    with log.open("w") as said:
        command = [sys.executable, "-m", "elmo_fast", "embed", *words]
        children = [
            subprocess.Popen([*command, *both, *shard], stdout=said, stderr=said, env=environment, cwd=folder)
            for both, shard in zip(files, shards, strict=True)
        ]
        start = time.monotonic()
        while any(child.poll() is None for child in children):
            if size := resident(children[0].pid):
                memory.append((time.monotonic() - start, size))
            time.sleep(EVERY)
    told = log.read_text(encoding="utf-8")
    if any(child.returncode for child in children):
        raise RuntimeError(f"{side} failed:\n{told[-2000:]}")
    if side in (ALONE, APART):
        for _, name in files:
            (folder / name).unlink()
        return sum(float(rate) for rate in re.findall(r"\((\d+) tok/s\)", told)), memory
    # From the plan, which the first process writes when its model is loaded, to the manifest, when all parts are there.
    seconds = (out / "manifest.json").stat().st_mtime - (out / "parts.json").stat().st_mtime
    tokens = sum(int(found) for found in re.findall(r"parts, (\d+) tokens in", told))
    shutil.rmtree(out)
    return tokens / seconds, memory
