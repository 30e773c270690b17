"""A whole biLM on a GPU's kernels: on the GPU where there is one, else in Triton's interpreter."""

import pytest
import torch

from elmo_fast import batch_to_ids
from elmo_fast.modules import BiLM
from elmo_fast.ops import _dispatch
from tests.backends import device_of
from tests.tolerances import assert_no_worse

OPS = ("char_cnn", "highway", "projected_lstm")
SENTENCES = [["The", "cat", "sat"], ["naïve", "x" * 60], [], ["the", "the", "The", "cat", "sat"]]


def refusal(precision):
    """Reason why these kernels cannot run a biLM here, or None."""
    for op in OPS:
        why = _dispatch.unsupported(op, "triton", device_of("triton"), torch.float32, precision)
        if why is not None:
            return f"{op} in Triton: {why}"
    return None


@pytest.mark.parametrize("backend", ["triton"])
@pytest.mark.parametrize("precision", ["float32", "float16", "bfloat16"])
def test_a_bilm_is_no_worse_than_plain_torchs(files, backend, precision):
    """Two batches with carried state, an empty sentence, repeated words."""
    if (why := refusal(precision)) is not None:
        pytest.skip(why)
    options_file, weight_file = files()
    ids, device = batch_to_ids(SENTENCES), device_of(backend)
    actual = {}
    for name, settings, dtype in (
        ("ours", {"backend": backend, "precision": precision}, torch.float32),
        ("torchs", {"backend": "reference", "precision": precision}, torch.float32),
        ("truth", {"backend": "reference"}, torch.float64),
    ):
        model = BiLM(options_file, weight_file, **settings).to(device, dtype)
        with torch.no_grad():
            actual[name] = [layer for _ in range(2) for layer in model(ids.to(device))["activations"]]
        assert actual[name][0].device.type == device.type
    for i, each in enumerate(zip(actual["ours"], actual["torchs"], actual["truth"], strict=True)):
        assert_no_worse(f"layer {i % 3} of batch {i // 3}", *each, precision)
