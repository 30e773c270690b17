"""info: versions, CPU, ops, and what a model is."""

import pytest

from elmo_fast.cli import info
from elmo_fast.cli.main import main
from elmo_fast.ops import PRECISIONS, op_names
from tests.cli.conftest import pair
from tests.manylangs import write_model


@pytest.fixture
def model(toy):
    return [*pair(toy)]


def test_info_tells_every_op_and_precision(capsys, monkeypatch):
    assert main(["info"]) == 0
    out = capsys.readouterr().out
    for name in [*op_names(), *PRECISIONS, "torch ", "CPU: "]:
        assert name in out


def test_info_tells_an_arm_cpu_what_it_has(monkeypatch, tmp_path):
    (tmp_path / "cpuinfo").write_text("processor\t: 0\nFeatures\t: fp asimd bf16\nCPU part\t: 0xd49\n")
    monkeypatch.setattr(info, "CPUINFO", tmp_path / "cpuinfo")
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    assert info.machine()[3] == "     has asimd bf16 | lacks i8mm"


def test_info_tells_what_a_model_is(model, tmp_path, capsys):
    """Of any format, read and checked as a whole; a damaged one is refused."""
    folder = write_model(tmp_path / "lexicons", encoder="lstm")
    for words, wanted in (
        (model, ["characters: vectors of", "clips: cell 3"]),
        (
            ["--model", str(folder)],
            ["lexicons: 13 characters and 8 words", "reads both directions", "clips: cell none"],
        ),
    ):
        assert main(["info", *words]) == 0
        out = capsys.readouterr().out
        assert [each for each in wanted if each not in out] == []
    (folder / "encoder.pkl").write_bytes(b"")
    assert main(["info", "--model", str(folder)]) == 2
    assert "encoder.pkl: not a torch.save file, or damaged" in capsys.readouterr().err


def test_info_says_that_its_speeds_are_another_cpus(capsys, monkeypatch):
    """Nothing is said of the speed of a precision except under the name of the CPU that was measured."""
    from elmo_fast.ops import _cpu_products, _native

    if _native.C is None:
        pytest.skip(str(_native.WHY_NOT))
    monkeypatch.setattr(_native.C, "isa", lambda: "avx512_bf16")
    assert main(["info"]) == 0
    before, after = capsys.readouterr().out.split(
        f"speeds of this instruction set on {_cpu_products.MEASURED_ON} (this CPU"
    )
    assert "was not measured):\n    bfloat16: 1.8 times as fast as float32 in batches of 32" in after
    assert "as fast as" not in before


def test_info_tells_whether_there_are_cuda_kernels(capsys, monkeypatch):
    """That the extension holds them, or in one sentence why not."""
    from elmo_fast.ops import _native

    if _native.C is None:
        pytest.skip(str(_native.WHY_NOT))
    for built, wanted in ((True, "CUDA C++ kernels: in it"), (False, "CUDA C++ kernels: none: nvcc was away")):
        monkeypatch.setattr(_native.C, "has_cuda", built)
        monkeypatch.setattr(_native.C, "why_no_cuda", None if built else "nvcc was away")
        assert main(["info"]) == 0
        assert wanted in capsys.readouterr().out


def test_info_says_why_the_extension_is_missing(capsys, monkeypatch):
    """Once, above the ops, each of which says that there is none."""
    from elmo_fast.ops import _native

    monkeypatch.setattr(_native, "C", None)
    monkeypatch.setattr(_native, "WHY_NOT", "no compiler was found")
    assert main(["info"]) == 0
    out = capsys.readouterr().out
    assert "C++ extension: no: no compiler was found" in out
    assert out.count("no compiler was found") == 1
    assert out.count("reference (not native: no C++ extension)\n") >= 14
