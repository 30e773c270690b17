"""The perplexity of held-out text before and after `make demo`, on all cores."""

import os
import re
import subprocess
import sys

from benchmarks.machine import ROOT

LINE = re.compile(r"(before|after) training: +held-out perplexity ([\d.]+) .*?over ([\d,]+) words")


def bench_demo(timed, tmp_path):
    seconds = ["--seconds", "5"] if timed.quick else []
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    environment.pop("OMP_NUM_THREADS", None)
    command = [sys.executable, str(ROOT / "examples" / "demo.py"), "--folder", str(tmp_path), *seconds]
    run = lambda: subprocess.run(command, env=environment, capture_output=True, text=True)  # noqa: E731
    ended = timed("make demo", run, amount=1, unit="s", threads=os.cpu_count(), warmup=0)
    lines = {when: (float(value), words) for when, value, words in LINE.findall(ended.stdout)}
    assert len(lines) == 2, f"{ended.stdout}\n{ended.stderr}"
    assert timed.quick or not ended.returncode, ended.stderr
    for when, (value, words) in lines.items():
        timed.figure("held-out text", f"{when} training", value, "perplexity", threads=os.cpu_count())
        timed.note("held-out words", words)
    total = re.search(r"^total: (\d+) s$", ended.stdout, re.MULTILINE)
    timed.note("seconds in all", int(total[1]) if total else 0)
