"""The same rows in TensorBoard's files, read back by TensorBoard itself; without the package, one sentence."""

import sys
from contextlib import closing

import pytest

from elmo_fast.errors import ElmoFastError
from elmo_fast.pretrain.log import TensorBoard

REPORT = {"step": 2, "seconds": 1.5, "words": 100, "loss": 4.0, "sampled_perplexity": 54.5}
HELDOUT = {"event": "heldout", "step": 2, "words": 100, "perplexity": 60.0, "perplexity_forward": 61.0}


@pytest.fixture
def scalars():
    """folder -> {tag: {step: value}}, as TensorBoard shows them."""
    pytest.importorskip("tensorboard", reason='the package tensorboard is absent (pip install "elmo-fast[tb]")')
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    def read(folder):
        events = EventAccumulator(str(folder))
        events.Reload()
        return {tag: {one.step: one.value for one in events.Scalars(tag)} for tag in events.Tags()["scalars"]}

    return read


def test_rows_become_scalars_over_the_steps(scalars, tmp_path):
    folder = tmp_path / "events"
    with closing(TensorBoard(folder)) as board:
        assert not folder.exists()
        for row in (REPORT, HELDOUT, {"event": "checkpoint", "step": 2, "seconds": 1.0}, REPORT | {"step": 4}):
            board.write(row)
    assert scalars(folder) == {
        **{f"train/{name}": {2: value, 4: value} for name, value in REPORT.items() if name != "step"},
        "heldout/words": {2: 100},
        "heldout/perplexity": {2: 60.0},
        "heldout/perplexity_forward": {2: 61.0},
    }


def test_a_resumed_run_takes_back_what_lies_beyond_its_step(scalars, tmp_path):
    """Steps up to the one resumed at stay; those after it are the new process's."""
    with closing(TensorBoard(tmp_path)) as board:
        for step in (2, 4, 6):
            board.write(REPORT | {"step": step, "loss": 1.0})
    with closing(TensorBoard(tmp_path, 4)) as board:
        board.write({"event": "resume", "step": 4})
        board.write(REPORT | {"step": 8, "loss": 2.0})
    assert scalars(tmp_path)["train/loss"] == {2: 1.0, 4: 1.0, 8: 2.0}
    assert len(list(tmp_path.iterdir())) == 2


def test_without_the_package_one_sentence_says_what_to_install(tmp_path, monkeypatch):
    for name in [name for name in sys.modules if name.startswith("torch.utils.tensorboard")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(ElmoFastError, match=r'needs its package \(.*: pip install .*"SOURCE\[tb\]"') as caught:
        TensorBoard(tmp_path)
    assert len(str(caught.value).splitlines()) == 1
    assert list(tmp_path.iterdir()) == []
