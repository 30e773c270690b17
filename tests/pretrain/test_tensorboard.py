"""The same rows in TensorBoard's files, read back by TensorBoard itself; without the package, one sentence."""

import sys

import pytest

from elmo_fast.errors import ElmoFastError
from elmo_fast.pretrain.evaluate import Perplexity
from elmo_fast.pretrain.log import RunLog, open_tensorboard

REPORT = {"seconds": 1.5, "words": 100, "loss": 4.0, "sampled_perplexity": 54.5}


def logged(folder, steps, resumed=None, loss=4.0):
    """Write reports on some steps, and one evaluation, as a run does."""
    with RunLog(folder, lambda line: None, step=resumed, tensorboard=True) as log:
        for step in steps:
            log.step({"step": step, **REPORT, "loss": loss}, "")
        log.saved(folder, steps[0], 1.0, 1.0)
        log.heldout(Perplexity(0.0, 0.0, 10), steps[0], 100)


def test_rows_become_scalars_and_a_resumed_run_takes_back_what_lies_beyond_its_step(tmp_path):
    """Steps up to the one resumed at stay; those after it are the new process's."""
    pytest.importorskip("tensorboard", reason='the package tensorboard is absent (pip install "elmo-fast[tb]")')
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    logged(tmp_path, (2, 4, 6))
    logged(tmp_path, (8,), resumed=4, loss=2.0)
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    found = {tag: {one.step: one.value for one in events.Scalars(tag)} for tag in events.Tags()["scalars"]}
    assert found["train/loss"] == {2: 4.0, 4: 4.0, 8: 2.0}
    assert found["heldout/perplexity"] == {2: 1.0, 8: 1.0}
    heldout = {f"heldout/{name}" for name in ("words", "perplexity", "perplexity_forward", "perplexity_backward")}
    assert found.keys() == {f"train/{name}" for name in REPORT} | heldout


def test_without_the_package_one_sentence_says_what_to_install(tmp_path, monkeypatch):
    for name in [name for name in sys.modules if name.startswith("torch.utils.tensorboard")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(ElmoFastError, match=r'needs its package \(.*: pip install .*"SOURCE\[tb\]"') as caught:
        open_tensorboard(tmp_path, None)
    assert len(str(caught.value).splitlines()) == 1
    assert list(tmp_path.iterdir()) == []
