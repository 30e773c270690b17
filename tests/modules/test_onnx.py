"""ONNX: the reference backend exports, and ONNX Runtime computes its numbers, for any number of sentences."""

import pytest
import torch
from torch.export import Dim

from elmo_fast import Elmo, batch_to_ids
from tests.support.weights import make_weights

for package in ("onnx", "onnxscript"):
    pytest.importorskip(package, reason="needs the extra onnx")
onnxruntime = pytest.importorskip("onnxruntime", reason="needs the extra onnx")


@pytest.mark.slow  # torch's exporter, of any model
@pytest.mark.filterwarnings("ignore")  # of the exporter, of its own code
def test_an_exported_model_gives_the_same_vectors_of_any_batch(tmp_path):
    elmo = Elmo(*map(str, make_weights(tmp_path, layers=1, n_highway=1)), 1, stateful=False, backend="reference").eval()
    ids = batch_to_ids([["The", "cat"], ["Rain"]])
    with torch.no_grad():
        program = torch.onnx.export(elmo, (ids,), dynamo=True, dynamic_shapes={"inputs": {0: Dim("n")}}, verbose=False)
        program.save(tmp_path / "elmo.onnx")
        more = batch_to_ids([["a", "b"]] * 4 + [["d"]])
        expected = elmo(more)
    vectors, mask = onnxruntime.InferenceSession(tmp_path / "elmo.onnx").run(None, {"inputs": more.numpy()})
    torch.testing.assert_close(torch.from_numpy(vectors), expected["elmo_representations"][0], rtol=0, atol=1e-5)
    assert torch.equal(torch.from_numpy(mask), expected["mask"])
