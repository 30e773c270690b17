"""`elmo-fast embed` on a file, one thread and two in turn: 100,000 lines with the architecture small, whose memory is
watched, and 1000 lines with the original one, whose matrix products take nearly all the time."""

import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time
from typing import NamedTuple

from benchmarks import architectures, texts
from benchmarks.cases import Settings
from benchmarks.machine import ROOT
from benchmarks.results import Report, Row, faster, row

SETTLED = 60.0  # seconds after which memory is to be flat
EVERY = 0.5  # seconds between looks at the memory
KEPT = 24  # points of the series that are kept
GOAL = 1.8
SIDE = "elmo-fast embed"


class Watched(NamedTuple):
    """A finished command: tokens/s as it says itself (loading left out), and (seconds, MiB resident) over time."""

    rate: float
    memory: list[tuple[float, float]]


def run(settings: Settings) -> Report:
    """Rows "tokens/s" with one and two threads, and "MiB" resident after the first minute, or the first half."""
    sizes = {"small": (100_000, 3), "original": (1000, 2)}  # lines, rounds
    if settings.quick:
        sizes = {"small": (2000, 1)}
    report = Report(notes={"weights": "random"})
    memory: list[Row] = []
    for architecture, (lines, rounds) in sizes.items():
        text = texts.many_lines(settings.text, lines)
        report.notes |= {f"text, {architecture}": text.source, f"lines, {architecture}": f"{lines}, {rounds} times"}
        watched = in_turn(architecture, text, rounds)
        variant = f"embed, {architecture}"
        one, two = (
            row(variant, SIDE, [each.rate for each in runs], threads=threads, unit="tokens/s")
            for threads, runs in watched.items()
        )
        faster(two, one, GOAL)
        two.against = "one thread"
        report.rows += [one, two]
        if architecture == "small":
            memory = [memory_row(threads, runs, report) for threads, runs in watched.items()]
    report.rows += memory
    return report


def in_turn(architecture: str, text: texts.Text, rounds: int) -> dict[int, list[Watched]]:
    """The finished commands by their number of threads."""
    watched: dict[int, list[Watched]] = {1: [], 2: []}
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        options_file, weight_file = architectures.write(architecture, folder)
        source = folder / "lines.txt"
        text.write(source)
        words = [str(source), str(folder / "out.hdf5"), "--average", "--file-friendly-logging"]
        words += ["--options-file", str(options_file), "--weight-file", str(weight_file)]
        for _ in range(rounds):
            for threads in watched:
                watched[threads].append(watch([*words, "--threads", str(threads)], threads, folder))
                (folder / "out.hdf5").unlink()
    return watched


def memory_row(threads: int, runs: list[Watched], report: Report) -> Row:
    """The resident memory of the longest run; its course and its growth go into the notes."""
    longest = max(runs, key=lambda each: each.memory[-1][0])
    after = settled(longest.memory)
    report.notes[f"growth after the start, {threads} thr"] = f"{growth(after):.1f} MiB"
    series = longest.memory[:: -(-len(longest.memory) // KEPT)]
    report.notes[f"seconds: MiB, {threads} thr"] = {f"{at:.0f}": f"{size:.0f}" for at, size in series}
    return row("resident memory, small", SIDE, after, threads=threads, unit="MiB")


def watch(words: list[str], threads: int, folder: pathlib.Path) -> Watched:
    """Runs `elmo-fast embed` and looks at its resident memory until it ends; RuntimeError when it fails."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": str(threads)}
    log = folder / "log.txt"
    memory: list[tuple[float, float]] = []
    with log.open("w") as out:
        command = [sys.executable, "-m", "elmo_fast", "embed", *words]
        child = subprocess.Popen(command, stdout=out, stderr=out, env=environment)
        start = time.monotonic()
        while child.poll() is None:
            size = resident(child.pid)
            if size:
                memory.append((time.monotonic() - start, size))
            time.sleep(EVERY)
    said = log.read_text(encoding="utf-8")
    rate = re.search(r"sentences, \d+ tokens in \S+ \((\d+) tok/s\)", said)
    if child.returncode or rate is None:
        raise RuntimeError(f"{' '.join(command)} ended with status {child.returncode}:\n{said[-2000:]}")
    return Watched(float(rate[1]), memory)


def resident(process: int) -> float:
    """Resident memory of a process in MiB; 0 when it has just ended."""
    try:
        found = re.search(r"VmRSS:\s+(\d+) kB", pathlib.Path(f"/proc/{process}/status").read_text())
    except OSError:
        return 0.0
    return int(found[1]) / 1024 if found else 0.0


def settled(memory: list[tuple[float, float]]) -> list[float]:
    """MiB after the first minute or, of a run shorter than two, in its second half."""
    from_here = min(SETTLED, memory[-1][0] / 2)
    return [size for at, size in memory if at >= from_here]


def growth(sizes: list[float]) -> float:
    """MiB by which the last tenth lies above the first tenth, medians."""
    tenth = max(1, len(sizes) // 10)
    return statistics.median(sizes[-tenth:]) - statistics.median(sizes[:tenth])
