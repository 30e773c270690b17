"""`elmo-fast embed` on a file: one thread and two; in parts, by one process and by two.

Of the original architecture matrix products take nearly all the time. Two processes with a file each that share nothing
show what the machine has for two.
"""

import os
import re
import shutil
import subprocess
import sys

import pytest

from benchmarks.inputs import write_weights
from benchmarks.machine import ROOT

LINES = {"small": 50_000, "original": 1000}
ONE, TWO = "one thread", "two threads"
PART, PARTS, APART = "parts, 1 process", "parts, 2 processes", "2 files, 2 processes"


@pytest.fixture(scope="module")
def inputs(text, quick, tmp_path_factory):
    """{architecture: folder with the text, its halves and a model}"""
    folders = {}
    for architecture, lines in LINES.items():
        folder = folders[architecture] = tmp_path_factory.mktemp(architecture)
        write_weights("small" if quick else architecture, folder)
        lines = text.repeated(lines // (20 if quick else 1))
        lines.write(folder / "lines.txt")
        for half in range(2):
            lines._replace(sentences=lines.sentences[half::2]).write(folder / f"half-{half}.txt")
    return folders


# The command line, and at its end the peak of its memory: ru_maxrss would count pytest's, from which it was started.
PROGRAM = """
import atexit, runpy
atexit.register(lambda: print(open("/proc/self/status").read(), flush=True))
runpy.run_module("elmo_fast", run_name="__main__")
"""


def embed(folder, jobs, threads):
    """Run a command per job (input, output, more arguments); return tokens/s and the first one's peak memory in MiB."""
    model = next(path.parent for path in folder.glob("*/options.json"))
    command = [sys.executable, "-c", PROGRAM, "embed", "--average", "--threads", str(threads)]
    command += ["--options-file", str(model / "options.json"), "--weight-file", str(model / "weights.hdf5")]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": str(threads)}
    logs = [folder / f"log-{i}.txt" for i in range(len(jobs))]
    children = []
    for log, words in zip(logs, jobs, strict=True):
        with log.open("w") as file:
            child = subprocess.Popen([*command, *words], stdout=file, stderr=file, env=environment, cwd=folder)
            children.append(child)
    failed = [child.returncode for child in children if child.wait()]
    output = "".join(log.read_text(encoding="utf-8") for log in logs)
    assert not failed, output[-2000:]
    tokens = sum(int(count) for count in re.findall(r"(\d+) tokens in", output))
    rates = re.findall(r"\((\d+) tok/s\)", output)  # absent for parts: from the first file to the last
    files = sorted(path.stat().st_mtime for path in folder.glob("out*/*"))
    (peak,) = re.findall(r"VmHWM:\s+(\d+) kB", output)
    return sum(map(float, rates)) or tokens / (files[-1] - files[0]), int(peak) / 1024


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
    variant, how = f"embed, {architecture}", {"threads": threads, "against": ONE}
    run = lambda: embed(folder, jobs, threads)  # noqa: E731
    speed, memory = timed(f"{variant}, whole process", run, amount=1, unit="s", warmup=0, **how)
    case = "embed_file" if side in (ONE, TWO) else "embed_parts"
    timed.figure(variant, side, speed, "tokens/s", case=case, **how)
    if architecture == "small" and side in (ONE, TWO, PART):
        timed.figure("resident memory, small", side, memory, "MiB", threads=threads)
    timed.note("lines", LINES)
    for path in folder.glob("out*"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
