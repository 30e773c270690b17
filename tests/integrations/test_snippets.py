"""The lines for Ray and datasets in docs/large_corpora.md, run without a cluster."""

import re

import numpy as np
import pytest

from tests.support.snippets import ROOT, snippets

TEXTS = ["I like Berlin", "So do I .", "Wind"]


def code_with(name):
    """The block of the page that contains `name`."""
    blocks = snippets((ROOT / "docs" / "large_corpora.md").read_text(encoding="utf-8"))[1]
    (block,) = (block for block in blocks if name in block)
    return block


def check(rows, truth):
    for text, vector in zip(TEXTS, rows, strict=True):
        np.testing.assert_allclose(vector, truth(text.split()).mean(axis=0), atol=2e-6)


def test_the_class_for_ray(model, truth):
    """Ray gives an actor batches of arrays."""
    names = {}
    exec("".join(re.findall(r"(?:^from elmo.*\n|^class .*\n(?:(?: .*)?\n)+)", code_with("map_batches"), re.M)), names)
    batch = names["Elmo"](str(model))({"text": np.array(TEXTS, object), "n": np.arange(3)})
    assert list(batch) == ["text", "n", "vectors"]
    check(batch["vectors"], truth)


def test_the_lines_for_datasets(model, truth, tmp_path, monkeypatch):
    datasets = pytest.importorskip("datasets")
    datasets.disable_progress_bars()
    datasets.Dataset.from_dict({"text": TEXTS}).save_to_disk(tmp_path / "corpus")
    (tmp_path / "model").symlink_to(model)
    monkeypatch.chdir(tmp_path)
    names = {}
    exec(code_with("load_from_disk"), names)
    check(names["vectors"]["vectors"], truth)
