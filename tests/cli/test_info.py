"""info: versions, CPU, ops, and what a model is."""

import pytest

from elmo_fast.ops import PRECISIONS, _dispatch, _native, _sources, op_names
from tests.cli.conftest import pair, ran, refused
from tests.support.command_line import elmo_fast
from tests.support.manylangs import write_model

needs_extension = pytest.mark.skipif(_native.C is None, reason=str(_native.WHY_NOT))


def test_info_tells_every_op_and_precision():
    output = ran("info").stdout
    assert [name for name in [*op_names(), *PRECISIONS, "torch ", "CPU: "] if name not in output] == []


def test_info_tells_what_a_model_is(toy, tmp_path):
    """Models of any format are read and checked as a whole; a damaged one is an error."""
    model = ["--model", write_model(tmp_path / "lexicons", encoder="lstm")]
    for words, expected in (
        (pair(toy), ["characters: vectors of", "clips: cell 3"]),
        (model, ["lexicons: 13 characters and 8 words", "reads both directions", "clips: cell none"]),
    ):
        output = ran("info", *words).stdout
        assert [each for each in expected if each not in output] == []
    (model[1] / "encoder.pkl").write_bytes(b"")
    refused(elmo_fast("info", *model), "encoder.pkl: not a torch.save file, or damaged")


@needs_extension
def test_info_names_the_extension_and_says_that_it_is_stale(monkeypatch):
    """A script runs it without a word, so this is where someone who changed csrc/ looks."""
    line = f"C++ extension: {_native.C.__file__}\n"
    output = ran("info").stdout
    assert line in output
    assert "rebuild it" not in output
    monkeypatch.setattr(_sources, "DIGEST", "elmo_fast/absent")
    assert "as they are now; rebuild it: pip install " in ran("info").stdout


def test_info_says_why_the_extension_is_missing(monkeypatch):
    """Once, above the ops, each of which says that there is none."""
    monkeypatch.setattr(_native, "C", None)
    monkeypatch.setattr(_native, "WHY_NOT", "no compiler was found")
    output = ran("info", "--device", "cpu").stdout
    assert "C++ extension: no: no compiler was found" in output
    assert output.count("no compiler was found") == 1
    of_cpu = [op for op in op_names() if "native" in _dispatch.backends_of(op)]
    assert output.count("reference (not native: no C++ extension)\n") == len(of_cpu) > 5
    assert "scalar_mix            reference (plain torch is as fast here)\n" in output
