"""`elmo-fast embed` on a file: one thread and two; in parts, by one process and by two.

The small architecture embeds many lines, and its memory is watched; of the original one matrix products take nearly all
the time. Two processes with a file each that share nothing show what the machine has for two.
"""

import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import time

import pytest

from benchmarks import models
from benchmarks.machine import ROOT

SETTLED = 60.0  # seconds after which memory is to be flat
EVERY = 0.5  # seconds between looks at the memory
LINES = {"small": 50_000, "original": 1000}
ONE, TWO = "one thread", "two threads"
PART, PARTS, APART = "parts, 1 process", "parts, 2 processes", "2 files, 2 processes"


@pytest.fixture(scope="module")
def inputs(many_lines, quick, tmp_path_factory):
    """{architecture: folder with the text, its halves and a model}"""
    folders = {}
    for architecture, lines in LINES.items():
        folder = folders[architecture] = tmp_path_factory.mktemp(architecture)
        models.write_weights("small" if quick else architecture, folder)
        text = many_lines(lines // (20 if quick else 1))
        text.write(folder / "lines.txt")
        for half in range(2):
            text._replace(sentences=text.sentences[half::2]).write(folder / f"half-{half}.txt")
    return folders


def resident(process):
    """Return the resident memory of a process in MiB; 0 if it has just ended."""
    try:
        match = re.search(r"VmRSS:\s+(\d+) kB", pathlib.Path(f"/proc/{process}/status").read_text())
    except OSError:
        return 0.0
    return int(match[1]) / 1024 if match else 0.0


def embed(folder, jobs, threads):
    """Run a command per job (input, output, more arguments); return tokens/s and the first one's (seconds, MiB)."""
    model = next(path for path in folder.iterdir() if path.is_dir() and (path / "options.json").is_file())
    command = [sys.executable, "-m", "elmo_fast", "embed", "--average", "--threads", str(threads)]
    command += ["--options-file", str(model / "options.json"), "--weight-file", str(model / "weights.hdf5")]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": str(threads)}
    logs = [folder / f"log-{i}.txt" for i in range(len(jobs))]
    children = []
    for log, (source, out, *more) in zip(logs, jobs, strict=True):
        with log.open("w") as file:
            words = [*command, source, out, *more]
            children.append(subprocess.Popen(words, stdout=file, stderr=file, env=environment, cwd=folder))
    memory, begin = [], time.monotonic()
    while any(child.poll() is None for child in children):
        if size := resident(children[0].pid):
            memory.append((time.monotonic() - begin, size))
        time.sleep(EVERY)
    texts = [log.read_text(encoding="utf-8") for log in logs]
    assert not any(child.returncode for child in children), "\n".join(texts)[-2000:]
    tokens = sum(int(count) for count in re.findall(r"(\d+) tokens in", "".join(texts)))
    rates = re.findall(r"\((\d+) tok/s\)", "".join(texts))  # absent for parts: from the first file to the last
    files = sorted(path.stat().st_mtime for path in folder.glob("out*/*"))
    return sum(map(float, rates)) or tokens / (files[-1] - files[0]), memory


@pytest.mark.turns(3)
@pytest.mark.case("embed_file", "embed_parts")
@pytest.mark.parametrize("architecture", LINES)
@pytest.mark.parametrize("side", [ONE, TWO, PART, PARTS, APART])
def bench_embed_file(timed, inputs, architecture, side):
    folder, threads = inputs[architecture], 2 if side == TWO else 1
    jobs = {
        PART: [("lines.txt", "out", "--shard", "0/1")],
        PARTS: [("lines.txt", "out", "--shard", f"{i}/2") for i in range(2)],
        APART: [(f"half-{i}.txt", f"out-{i}.hdf5") for i in range(2)],
    }.get(side, [("lines.txt", "out.hdf5")])
    variant = f"embed, {architecture}"
    begin = time.monotonic()
    speed, memory = timed(
        f"{variant}, whole process", lambda: embed(folder, jobs, threads), amount=1, unit="s", threads=threads,
        warmup=0, against=ONE,
    )  # fmt: skip
    case = "embed_file" if side in (ONE, TWO) else "embed_parts"
    timed.figure(variant, side, speed, "tokens/s", threads=threads, against=ONE, case=case)
    settled = [size for at, size in memory if at >= min(SETTLED, (time.monotonic() - begin) / 2)]
    if architecture == "small" and side in (ONE, TWO, PART):
        tenth = max(1, len(settled) // 10)
        growth = statistics.median(settled[-tenth:]) - statistics.median(settled[:tenth])
        timed.figure("resident memory, small", side, statistics.median(settled), "MiB", threads=threads)
        timed.note(f"growth after the start, {side}", f"{growth:.1f} MiB")
    timed.note("lines", LINES)
    for path in folder.glob("out*"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
