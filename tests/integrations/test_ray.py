"""ElmoBatches in Ray Data's actors: a worker that is killed loses no row and doubles none."""

import os
import pathlib
import signal

import numpy as np
import pytest

pytest.importorskip("ray")

from elmo_fast.integrations.ray import ElmoBatches
from tests.snippets import ROOT


class Dying(ElmoBatches):
    """The first worker that is called a second time dies, once in all."""

    def __init__(self, model, flag):
        super().__init__(model, threads=1)
        self.flag, self.calls = pathlib.Path(flag), 0

    def __call__(self, batch):
        self.calls += 1
        if self.calls == 2 and not self.flag.exists():
            self.flag.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__call__(batch)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # Ray's own
def test_of_two_workers_one_is_killed_and_every_row_is_there_once(model, truth, tmp_path, monkeypatch):
    import ray

    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    sentences = [[f"word{number}"] * (number % 5 + 1) for number in range(32)]
    ray.init(num_cpus=3, include_dashboard=False, object_store_memory=100 << 20, log_to_driver=False)
    try:
        ray.data.DataContext.get_current().enable_progress_bars = False
        items = [{"id": number, "words": words} for number, words in enumerate(sentences)]
        rows = ray.data.from_items(items, override_num_blocks=8)
        made = rows.map_batches(
            Dying, fn_constructor_args=(str(model), str(tmp_path / "died")), concurrency=2, batch_size=4
        )
        found = made.take_all()
    finally:
        ray.shutdown()
    assert (tmp_path / "died").exists()
    assert sorted(row["id"] for row in found) == list(range(32))
    for row in found:
        assert row["words"] == sentences[row["id"]]
        assert row["vectors"].dtype == np.float32
        np.testing.assert_allclose(row["vectors"], truth(sentences[row["id"]]), atol=2e-6)


def test_pooled_vectors_are_one_array(model, truth):
    made = ElmoBatches(str(model), column="text", output="v", pooling="mean")
    found = made({"text": np.array(["I like", "Berlin"], object), "n": np.arange(2)})
    assert list(found) == ["text", "n", "v"]
    assert found["v"].shape == (2, 16)
    np.testing.assert_allclose(found["v"][0], truth(["I", "like"]).mean(axis=0), atol=2e-6)
