"""What `make demo` comes to: the held-out perplexity before and after some minutes of pretraining, on all cores."""

import os
import re
import subprocess
import sys
import tempfile

from benchmarks.cases import Settings
from benchmarks.machine import ROOT, processor
from benchmarks.results import Report, row

SAID = re.compile(r"(before|after) training: +held-out perplexity ([\d.]+) .*?over ([\d,]+) words")


def run(settings: Settings) -> Report:
    """Rows "perplexity", before and after."""
    seconds = ["--seconds", "5"] if settings.quick else []
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    environment.pop("OMP_NUM_THREADS", None)
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, str(ROOT / "examples" / "demo.py"), "--folder", folder, *seconds]
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
    said = {when: (float(value), words) for when, value, words in SAID.findall(done.stdout)}
    if len(said) != 2 or (done.returncode and not settings.quick):
        raise RuntimeError(f"{' '.join(command)} ended with status {done.returncode}:\n{done.stdout}\n{done.stderr}")
    total = re.search(r"^total: (\d+) s$", done.stdout, re.MULTILINE)
    report = Report(notes={"held-out words": said["after"][1], "preset": "tiny"})
    if total:
        report.notes["seconds in all"] = int(total[1])
    threads = processor()["cores"]
    report.rows = [
        row("held-out text", f"{when} training", [said[when][0]], threads=threads, unit="perplexity")
        for when in ("before", "after")
    ]
    return report
