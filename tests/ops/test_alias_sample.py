"""alias_sample: the distribution of a table, exact and as sampled; samples that never change."""

import numpy as np
import pytest
import torch

from elmo_fast.errors import ElmoFastError
from elmo_fast.ops import AliasTable, _sampling, alias_sample, alias_table
from tests.support.tolerances import assert_close


def zipf(words):
    return (1e6 / torch.arange(1, words + 1, dtype=torch.float64)).floor()


def law_of(table):
    """P(k) by the definition of a sample: a column each, accepted or passed on."""
    law = table.thresholds.clone().index_add_(0, table.aliases, 1 - table.thresholds)
    return law / len(law)


LAWS = {
    "one word": torch.tensor([3.0]),
    "equal": torch.ones(7),
    "one has all": torch.tensor([0.0, 0.0, 5.0, 0.0]),
    "zipf": zipf(5000),
    "some never": torch.tensor([1.0, 0.0, 2.0, 0.0, 1e-300, 4e5]),
    "ties": torch.tensor([0.5, 1.5] * 9 + [1.0]),
    "counts": torch.tensor([10, 3, 3, 0, 1]),
}


@pytest.mark.parametrize("name", LAWS)
@pytest.mark.parametrize("power", [1.0, 0.75])
def test_the_tables_law_is_the_one_asked_for(name, power):
    """To the last digits of float64, words of weight 0 never."""
    weights = LAWS[name].double()
    table = alias_table(LAWS[name], power=power)
    expected = torch.where(weights > 0, weights**power, 0.0)
    assert_close("law", law_of(table), expected / expected.sum(), "float64")
    drawn = alias_sample(20_000, table, seed=0)
    assert not (weights[drawn] == 0).any()
    assert ((table.thresholds >= 0) & (table.thresholds <= 1)).all()


def test_frequencies_follow_the_law():
    """Chi-square of 40,000 samples of 20 words, 19 degrees of freedom: 43.8 is the 0.1 % point."""
    weights = zipf(20)
    ids = alias_sample(40_000, alias_table(weights, power=0.75), seed=11, offset=2)
    expected = (weights**0.75 / (weights**0.75).sum() * 40_000).numpy()
    assert ((np.bincount(ids, minlength=20) - expected) ** 2 / expected).sum() < 43.8


def test_a_draw_is_a_block_of_the_generator():
    """Equal (seed, offset) repeat, another of either does not, and a longer sample begins with the shorter."""
    table = alias_table(torch.ones(1000))
    draw = [alias_sample(500, table, seed=s, offset=o) for s, o in ((1, 2), (1, 2), (2, 2), (1, 3))]
    assert torch.equal(draw[0], draw[1])
    assert not torch.equal(draw[0], draw[2])
    assert not torch.equal(draw[0], draw[3])
    assert torch.equal(draw[0], alias_sample(777, table, seed=1, offset=2)[:500])
    u = _sampling.uniforms(1, 2, 0, 500)[::2]
    assert torch.equal(draw[0], (u * 1000).long())


@pytest.mark.parametrize(
    ("weights", "expected"),
    [
        (torch.ones(0), "from 1 to 2.31 - 1 words; got 0"),
        (torch.tensor([1.0, -2.0]), "not negative; got values from -2.0 to 1.0"),
        (torch.tensor([1.0, torch.nan]), "must be finite"),
        (torch.zeros(3), "must be above 0 and finite; got 0.0"),
        (torch.ones(3, device="meta"), "must be on the CPU"),
    ],
)
def test_bad_weights_are_refused(weights, expected):
    with pytest.raises(ElmoFastError, match=expected):
        alias_table(weights)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"num_samples": 0}, "num_samples must be at least 1; got 0"),
        ({"seed": -1}, "seed must be from 0"),
        ({"offset": 2**63}, "offset must be from 0"),
        ({"table": AliasTable(torch.ones(3), torch.arange(3))}, "table.thresholds must be float64"),
        ({"table": AliasTable(torch.ones(3).double(), torch.arange(2))}, r"table.aliases must have shape \[V=3\]"),
        ({"table": AliasTable(torch.ones(0).double(), torch.arange(0))}, "from 1 to 2.31 - 1 words"),
    ],
)
def test_bad_arguments_are_refused(change, expected):
    """Each in one sentence: argument, expected, actual."""
    arguments = {"num_samples": 3, "table": alias_table(torch.ones(4)), "seed": 0} | change
    with pytest.raises(ElmoFastError, match=expected):
        alias_sample(**arguments)
