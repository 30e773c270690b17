"""Counted work against numbers worked out by hand for the original architecture (H = 4096, D = 512)."""

import pytest

from benchmarks.gpu import roofline
from benchmarks.gpu.roofline import Work

HAND = {"copy": 4.3e12, "bfloat16": 790e12, "float32": 55e12}  # bytes/s, FLOP/s


@pytest.mark.parametrize(("batch", "microseconds"), [(16, 0.4248), (128, 3.398), (1024, 27.18)])
def test_a_step_of_the_time_loop(batch, microseconds):
    """Per row 4·4096·512 + 512·4096 = 10,485,760 multiply-adds; 128 rows: 2.684 GFLOP, 3.40 us at 790 TFLOP/s."""
    work = roofline.lstm_steps(batch, 20, 4096, 512)
    assert work.flops == 20 * 2 * batch * 10_485_760
    seconds, bound = work.floor(HAND, "bfloat16")
    assert bound == "arithmetic"
    assert seconds / 20 * 1e6 == pytest.approx(microseconds, rel=1e-3)


def test_a_small_batch_is_bound_by_its_weights():
    """One row, one step: 20,971,520 bytes of 16-bit weights, 2·16384 of gates and 4·512 of output take 4.885 us."""
    work = roofline.lstm_steps(1, 1, 4096, 512)
    assert work.bytes == 20_971_520 + 32_768 + 2_048
    seconds, bound = work.floor(HAND, "bfloat16")
    assert bound == "memory"
    assert seconds * 1e6 == pytest.approx(4.885, rel=1e-3)


def test_a_layer_is_its_directions_and_both_its_parts():
    """A token costs 18,874,368 multiply-adds a direction; backward twice as many again."""
    layer = roofline.lstm_layer(128, 20, 512, 4096, 512, 2)
    assert layer.flops == 2 * 2 * 128 * 20 * 18_874_368
    assert roofline.lstm_layer(128, 20, 512, 4096, 512, 2, train=True).flops == 3 * layer.flops


def test_the_encoder():
    """Windows 8,808,448 and dense layers 2·2048·4096 + 2048·512 = 17,825,792 multiply-adds a word; backward, windows
    that won alone: 196,608 a product."""
    windows = sum(n * k * 16 * (51 - k) for k, n in roofline.ORIGINAL_FILTERS)
    assert windows == 8_808_448
    assert roofline.encoder(3).flops == 3 * 2 * (8_808_448 + 17_825_792)
    winners = sum(n * k * 16 for k, n in roofline.ORIGINAL_FILTERS)
    assert roofline.encoder(1, train=True).flops == 2 * (8_808_448 + 2 * winners + 3 * 17_825_792)


def test_the_sampled_softmax():
    """2560 rows, 8192 samples: 2·2560·512·8193 operations, three times with the gradients; 21.5 GFLOP, 82 us."""
    forward = roofline.sampled_softmax(2560, 8192, 512, train=False)
    assert forward.flops == 2 * 2560 * 512 * 8193
    both = roofline.sampled_softmax(2560, 8192, 512)
    assert both.flops == 3 * forward.flops
    assert both.floor(HAND, "bfloat16")[0] * 1e6 == pytest.approx(81.56, rel=1e-3)


def test_the_mix_is_bytes_alone():
    """Three layers in, one mix out: 4 numbers an element; backward reads 1 + 3 and writes 3 more."""
    assert roofline.scalar_mix(10, 1024, 3, 1) == Work(0.0, 4 * 10 * 1024 * 4)
    assert roofline.scalar_mix(10, 1024, 3, 1, train=True).bytes == 4 * 10 * 1024 * 11


def test_the_update_moves_twenty_bytes_a_number():
    seconds, bound = roofline.adagrad(93_600_000).floor(HAND, "float32")
    assert (bound, seconds * 1e6) == ("memory", pytest.approx(435.3, rel=1e-3))


def test_a_training_step_is_the_sum_of_its_parts():
    """128 x 20, both streams, 1650 distinct words: LSTMs 1160 GFLOP, softmax 129, encoder 205."""
    step = roofline.train_step(128, 20, 1650, 4096, 512, 2, 8192, 16384)
    parts = [
        roofline.lstm_layer(128, 20, 512, 4096, 512, 2, train=True).times(2),
        roofline.sampled_softmax(2560, 8192, 512).times(2),
        roofline.encoder(1650, train=True),
    ]
    assert step.flops == sum(part.flops for part in parts)
    assert [round(part.flops / 1e9) for part in parts] == [1160, 129, 207]
    assert step.bytes > sum(part.bytes for part in parts) + 20 * 93_000_000


def test_the_larger_time_is_the_floor():
    ceilings = {"copy": 10.0, "float32": 100.0}
    assert Work(100, 5).floor(ceilings, "float32") == (1.0, "arithmetic")
    assert Work(100, 20).floor(ceilings, "float32") == (2.0, "memory")
