"""Every case runs in its quick form, but for those that take long even so."""

import importlib
import os
import random
import subprocess
import sys

import pytest
import torch

from benchmarks.cases import CASES, Settings

LONG = ("pretrain", "demo", "static_quality", "scaling", "exact_shards", "embed_parts")


@pytest.mark.parametrize("case", [case for case in CASES if case not in LONG])
def test_a_quick_case_gives_rows(case, tmp_path):
    """Numbers above zero for each side that is there, on a text of 300 sentences."""
    random.seed(0)
    text = tmp_path / "text.txt"
    words = [f"word{i}" for i in range(400)]
    text.write_text("".join(" ".join(random.choices(words, k=random.randint(1, 30))) + "\n" for _ in range(300)))
    report = importlib.import_module(f"benchmarks.cases.{case}").run(Settings(quick=True, text=text, peer_python=None))
    assert len(report.rows) >= 2
    assert all(row.median > 0 for row in report.rows)
    assert not report.failures


@pytest.mark.skipif(torch.backends.cpu.get_cpu_capability() not in ("AVX2", "AVX512"), reason="this CPU has no AVX2")
@pytest.mark.parametrize(("held", "wanted"), [("avx2", "AVX2"), ("", torch.backends.cpu.get_cpu_capability())])
def test_a_measurement_with_avx2_holds_torch_to_it(held, wanted):
    """torch reads the environment once: the package sets it before anything imports torch."""
    program = "import benchmarks.run, torch; print(torch.backends.cpu.get_cpu_capability())"
    given = {name: value for name, value in os.environ.items() if name != "ATEN_CPU_CAPABILITY"}
    environment = given | {"ELMO_FAST_ISA": held}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment, check=True)
    assert done.stdout.strip() == wanted
