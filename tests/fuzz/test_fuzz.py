"""The attacks find planted faults, and a few cases of every target find nothing."""

import importlib
import random

import pytest

from elmo_fast._runtime.threads import torch_threads
from tests.fuzz import runner
from tests.fuzz.__main__ import main

PLANTED = {
    "crash": "import ctypes; ctypes.string_at(0)",
    "hang": "while True: pass",
    "traceback": "[][rng.randrange(9)]",
    "memory": "bytearray(b'x') * (3 << 25)",
    "refused": "raise __import__('elmo_fast.errors').errors.ElmoFastError('a sentence')",
    "nothing": "",
}
# These targets test how readers take damaged files, which nothing else does at random.
FILES_OF_MODELS = ("foreign_models", "hdf5", "manylangs", "options", "safetensors_folder", "state_dict")
KINDS = {"crash": "SIGSEGV", "hang": "hang", "traceback": "IndexError", "memory": "memory", "refused": "ElmoFastError"}


@pytest.fixture
def planted(tmp_path, monkeypatch):
    """Plant targets, by name and body."""
    package = tmp_path / "planted"
    package.mkdir()
    (tmp_path / "sitecustomize.py").write_text(f"import tests.fuzz.targets as t\nt.__path__.append({str(package)!r})\n")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{runner.ROOT}")
    monkeypatch.setattr(runner, "CPU_SECONDS", 1)
    monkeypatch.setattr(runner, "MEMORY", 1 << 25)

    def plant(**bodies):
        for name, body in bodies.items():
            (package / f"{name}.py").write_text(f"def case(rng):\n    {body or 'pass'}\n")

    return plant


def test_every_kind_of_fault_is_found_and_the_worker_serves_on(planted):
    """Each runs next to a case without a finding, in one worker after the other."""
    planted(**PLANTED)
    with runner.Worker() as worker:
        for name, kind in KINDS.items():
            actual = worker.run(name, 0)
            assert actual["kind"] == kind, actual
            assert worker.run("nothing", 0) == {}


def test_each_finding_is_reported_once_and_repeated(planted, tmp_path, monkeypatch, capsys):
    """Also if the case ended its process."""
    planted(fragile="if rng.randrange(3): [][1]", crash="if rng.randrange(3): __import__('os').abort()")
    monkeypatch.setattr(runner, "CASES", 5)
    hunt = runner.Hunt(["fragile", "crash"], tmp_path / "findings", seconds=60, seed=0)
    findings = dict(zip(("fragile", "crash"), hunt, strict=False))
    assert hunt.cases["fragile"] == 5
    for name, kind in (("fragile", "IndexError"), ("crash", "SIGABRT")):
        assert findings[name]["kind"] == kind
        monkeypatch.setattr("sys.argv", ["fuzz", "--case", findings[name]["case"]])
        assert main() == 1
        assert kind in capsys.readouterr().out


@pytest.mark.parametrize("target", runner.TARGETS)
def test_fixed_cases_find_nothing(target):
    """In this process: the findings of longer runs (`make fuzz`) are tests of their own, next to the parts they hit."""
    module = importlib.import_module(f"tests.fuzz.targets.{target}")
    with torch_threads(1):
        for seed in range(60 if target in FILES_OF_MODELS else 4):
            module.case(random.Random(seed))
