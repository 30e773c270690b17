"""Sentences of equal length to the layers of the original architecture: elmo_fast and ONNX Runtime, one thread.

ONNX Runtime runs the graph of `backend="reference"`, and that graph after its own `quantize_dynamic`: 8-bit weights,
and inputs rounded when they come. The exporter writes the time steps one after the other, so a graph has one length.
"""

import warnings

import numpy as np
import pytest
import torch

from benchmarks.inputs import write_weights
from elmo_fast import Elmo, batch_to_ids

T, MOST = 20, 32  # words of a sentence, sentences of the largest batch
RIVALS = {"ONNX Runtime, float32": "elmo.onnx", "ONNX Runtime, int8": "elmo_int8.onnx"}
PRECISIONS = ("float32", "bfloat16", "int8")


class Layers(torch.nn.Module):
    """Character ids (B, T, 50) -> the biLM's three layers (3, B, T, 2D), from zero states."""

    def __init__(self, files, **options):
        super().__init__()
        self.bilm = Elmo(*files, 1, dropout=0.0, stateful=False, **options).eval()._elmo_lstm

    def forward(self, ids):
        return torch.stack([layer.float() for layer in self.bilm(ids)["activations"]])


def sessions(files, ids, folder, optimize):
    """Export the reference, make its numbers 8-bit ones, and return {side: ONNX Runtime's session}.

    optimize: by torch's exporter too, which takes minutes.
    """
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    from onnxruntime.quantization import quantize_dynamic

    exact, rounded = (folder / name for name in RIVALS.values())
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")  # of torch's own exporter
        shapes = {"ids": {0: torch.export.Dim("sentences")}}
        program = torch.onnx.export(
            Layers(files, backend="reference"),
            (ids[:2],),
            dynamo=True,
            dynamic_shapes=shapes,
            verbose=False,
            optimize=optimize,
        )
        assert program is not None
        program.save(str(exact), external_data=True)
        quantize_dynamic(exact, rounded, use_external_data_format=True)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    return {
        side: onnxruntime.InferenceSession(str(folder / name), options, providers=["CPUExecutionProvider"])
        for side, name in RIVALS.items()
    }


@pytest.fixture(scope="module")
def ours(tmp_path_factory, text, quick):
    """The files of the weights, ids (MOST, T, 50) of the text's words, our modules by side, the exact layers."""
    words = [word for sentence in text.sentences for word in sentence][: MOST * T]
    ids = batch_to_ids([words[T * i : T * (i + 1)] for i in range(MOST)])
    files = write_weights("small" if quick else "original", tmp_path_factory.mktemp("onnx"))
    models = {f"elmo_fast, {precision}": Layers(files, precision=precision) for precision in PRECISIONS}
    with torch.inference_mode():
        return files, ids, models, models["elmo_fast, float32"](ids).numpy()


@pytest.fixture(scope="module")
def theirs(ours, tmp_path_factory, quick):
    files, ids, *_ = ours
    return sessions(files, ids, tmp_path_factory.mktemp("graphs"), optimize=not quick)


@pytest.mark.turns(12)
@pytest.mark.parametrize("batch", [MOST, 1])
@pytest.mark.parametrize("side", [*RIVALS, *(f"elmo_fast, {precision}" for precision in PRECISIONS)])
def bench_onnx(timed, ours, text, batch, side, turn, request):
    _, ids, models, exact = ours
    ids = ids[:batch]
    if side in RIVALS:
        session = request.getfixturevalue("theirs")[side]
        timed.note("ONNX Runtime", pytest.importorskip("onnxruntime").__version__)
        embed = lambda: session.run(None, {"ids": ids.numpy()})[0]  # noqa: E731
    else:
        model = models[side]

        @torch.inference_mode()
        def embed():
            return model(ids).numpy()

    result = timed(
        f"{batch} x {T} words",
        embed,
        amount=batch * T,
        unit="tokens/s",
        warmup=turn == 0,
        against="ONNX Runtime, float32",
    )
    if side != "elmo_fast, float32":
        timed.error(float(np.abs(result - exact[:, :batch]).max()), "elmo_fast, float32")
    timed.note("text", text.source)
    timed.note("weights", "random, architecture " + ("small" if timed.quick else "original"))
