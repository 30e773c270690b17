"""`elmo-fast tune`: what is measured is kept, later calls take it."""

import functools
import itertools
import json
import types
import warnings

import pytest
import torch

from elmo_fast import ops
from elmo_fast.cli.main import main
from elmo_fast.modules import BiLM, CharacterEncoder
from elmo_fast.ops import _dispatch, _softmax, _triton, _tuned
from elmo_fast.ops._check import Answer
from elmo_fast.ops.highway import host as highway_host
from elmo_fast.ops.projected_lstm import host, tiling
from elmo_fast.pretrain.architecture import options_of
from elmo_fast.pretrain.config import ModelConfig
from elmo_fast.tuning import beside, measurements, tiles, timed
from elmo_fast.tuning import card as tuned_card
from elmo_fast.tuning.clock import Clock
from tests.ops.card_cases import CPU, Answering, card  # noqa: F401

TOY = ModelConfig(
    filters=[[1, 4], [2, 4]], n_highway=1, dim=8, projection_dim=8, dropout=0.0, max_characters_per_token=9
)
needs_interpreter = pytest.mark.skipif(not _triton.INTERPRETED, reason="Triton's interpreter is not in use")


@pytest.fixture
def measured(card, monkeypatch):  # noqa: F811
    """The card's folder and what was found, toy sizes, by a clock to which later alternatives are the faster ones."""
    monkeypatch.setattr(_tuned, "_files", {})

    sizes = {"HIGHWAY_ROWS": (4,), "LSTM_BATCHES": (64,), "SOFTMAX_ROWS": (4,), "SOFTMAX_WORDS": 70, "SAMPLES": 65}
    for name, value in sizes.items():
        monkeypatch.setattr(tiles, name, value)
    monkeypatch.setattr(
        measurements, "PARTS", [part for part in measurements.PARTS if part.__module__ != beside.__name__]
    )
    # The LSTM has tests of its own, and takes the interpreter long.
    quick = types.SimpleNamespace(**{**vars(ops), "projected_lstm": lambda *given, **how: ()})
    monkeypatch.setattr(tiles, "ops", quick)
    monkeypatch.setattr(tuned_card, "BiLM", functools.partial(BiLM, backend="reference"))
    ticks = itertools.count()

    def seconds(self, call):
        call()
        return 0.9 ** next(ticks)

    monkeypatch.setattr(Clock, "seconds", seconds)
    Answering(monkeypatch)
    found = measurements.tune(CPU, "float16", TOY, batch=2, length=1, rounds=1, compiled=lambda function: function)
    return card, found


@needs_interpreter
def test_choices_are_kept_and_later_calls_take_them_unless_their_file_is_damaged(measured, monkeypatch):
    folder, found = measured
    assert found.skipped == []
    assert found.choices == {
        "tile of projected_lstm, cells of 8, up to 64 rows of 8, float16": 1,
        "tile of highway, up to 4 rows of 8, float16": len(highway_host.HALF) - 1,
        "tile of sampled_softmax, up to 4 rows of 8, float16": 2,
        "tile of negative_sampling, up to 4 rows of 8, float16": 2,
        "tile of full_softmax, up to 4 rows of 8, float16": 2,
        "distinct words, float16": 0,
        "graphs, float16": 0,
    }
    (path,) = folder.glob("*.choices.json")
    assert json.loads(path.read_text())["found"] == found.choices
    layer = host.Layer(2, 1, 2, 8, 8, 8, (False, True), 3.0, 3.0, True, torch.float16)
    wide, narrow = tiling.candidates(layer._replace(batch=64), "cells", CPU)
    assert [tiling.tiles(layer._replace(batch=n), "cells", CPU)[0] for n in (33, 64)] == [narrow, narrow]
    assert tiling.tiles(layer._replace(batch=65), "cells", CPU)[0] == wide._replace(rows=128)
    assert highway_host.tiles(3, 8, torch.float16, CPU) == highway_host.HALF[-1]
    for op in ("sampled_softmax", "negative_sampling", "full_softmax"):
        sizes = 65, 8, torch.float16, CPU
        assert [_softmax.tiles(op, n, *sizes) for n in (4, 5)] == [_softmax.candidates(4, *sizes)[i] for i in (2, 0)]
    with _tuned.forced({_tuned.tile_of("highway", 4, 8, "float16"): 1}):
        assert highway_host.tiles(3, 8, torch.float16, CPU) == highway_host.HALF[1]
        assert highway_host.tiles(5, 8, torch.float16, CPU) == highway_host.HALF[-1]
    assert not _dispatch.replays(CPU, "float16")
    assert _dispatch.replays(CPU, "bfloat16")
    path.write_text(path.read_text().replace('"graphs, float16": 0', '"graphs, float16": 1'))
    monkeypatch.setattr(_tuned, "_files", {})
    with pytest.warns(UserWarning, match="the choices on this GPU are made anew"):
        assert _tuned.choice("distinct words, float16", CPU) is None


@needs_interpreter
def test_a_kernel_that_is_refused_is_not_measured(card, monkeypatch):  # noqa: F811
    Answering(monkeypatch, highway=Answer("it is wrong"), projected_lstm=Answer("it is wrong"))
    about = tuned_card.Card(CPU, "float16", TOY, 1, 1, lambda function: function, timed.Timed(Clock(CPU), 1))
    assert tiles.highway_tiles(about) == tiles.lstm_tiles(about) == {}
    assert [why.split(":")[0] for why in about.timed.skipped] == [
        "tiles of highway",
        "tiles of projected_lstm",
    ]
    assert all("failed its check" in why for why in about.timed.skipped)


def test_a_tile_that_gives_wrong_numbers_is_not_measured():
    x, weight, bias = torch.randn(5, 4), torch.randn(8, 4), torch.randn(8)
    why_wrong = tuned_card.held_to_definition(ops.highway, (x, [weight], [bias]), "float32")

    def call():
        y = ops.highway(x, [weight], [bias], backend="reference")
        return 1.01 * y if _tuned.choice("tile", CPU) == 1 else y

    about = tuned_card.Card(CPU, "float32", TOY, 1, 1, lambda function: function, timed.Timed(Clock(CPU), 1))
    assert about.fastest("highway", "tile", {1: "wrong", 0: "right"}, call, 1, why_wrong) == {"tile": 0}
    said = "highway, elmo_fast, wrong: result 0: largest"
    assert [why.partition(" error")[0] for why in about.timed.skipped] == [said]


def test_a_choice_changes_the_way_and_no_number(monkeypatch):
    """Every word or each distinct one: the same vectors, of a GPU's path, which waits for nothing."""
    encoder = CharacterEncoder(options_of(TOY, 20), cache_size=0)
    encoder._waits_for_nothing = True
    ids = torch.randint(1, 200, (1, 3, 9)).repeat(2, 2, 1)
    whole, calls = encoder._encode, []
    monkeypatch.setattr(encoder, "_encode", lambda rows, count=None: calls.append(count) or whole(rows, count))
    with torch.no_grad():
        distinct = encoder(ids)
        with _tuned.forced({_tuned.distinct_words("float32"): 0}):
            torch.testing.assert_close(encoder(ids), distinct)
    assert int(calls[0]) == 3 + 2  # the markers of a sentence
    assert calls[1] is None


def test_only_a_clear_win_is_a_choice():
    assert timed.fastest({0: 1.0, 1: 0.98, 2: 1.2}, 0) == 0
    assert timed.fastest({0: 1.0, 1: 0.96, 2: 1.2}, 0) == 1
    assert timed.fastest({1: 2.0, 2: 1.2}, 0) == 2


def test_a_side_that_raises_is_left_out_with_its_reason():
    def fails():
        raise RuntimeError("no kernel")

    kept = timed.Timed(Clock(CPU), 2)
    assert kept.medians("layer", {"elmo_fast": lambda: None, "eager": fails}).keys() == {"elmo_fast"}
    assert kept.skipped == ["layer, eager: RuntimeError: no kernel"]


@pytest.mark.usefixtures("card")
@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_without_a_gpu_it_says_so_in_one_sentence(capsys):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert main(["tune"]) == 2
    said = capsys.readouterr()
    assert said.err == (
        "elmo-fast tune: error: --device must be a CUDA GPU, which is what this command measures; got 'cuda', and this "
        "torch sees 0 GPUs\n"
    )
    assert said.out == ""
