"""torch.export and AOTInductor: one program for all batch sizes and lengths; a carried state is refused."""

import warnings

import pytest
import torch
from torch.export import Dim, export

from elmo_fast import Elmo
from elmo_fast.errors import ElmoFastError
from elmo_fast.text import batch_to_ids
from tests.modules.conftest import BATCHES

SIZES = {"inputs": {0: Dim("sentences"), 1: Dim("words")}}
OTHERS = [[["a"]], [["x", "y"]] * 5, BATCHES[1], BATCHES[2]]  # one sentence of one word; more; longer; an empty one


def exported(model, **options):
    with torch.no_grad():
        return export(model, (batch_to_ids(BATCHES[0]),), dynamic_shapes=SIZES, **options)


def check(program, model):
    """The program gives what the module gives, bit by bit, whatever the sizes it was exported with."""
    for batch in OTHERS:
        ids = batch_to_ids(batch)
        with torch.no_grad():
            actual, expected = program(ids), model(ids)
        assert torch.equal(actual["mask"], expected["mask"])
        for a, b in zip(actual["elmo_representations"], expected["elmo_representations"], strict=True):
            assert torch.equal(a, b), batch


@pytest.mark.parametrize("strict", [False, True])
def test_an_exported_module_serves_other_sizes(files, strict):
    model = Elmo(*files(layers=1), 1, stateful=False).eval()
    check(exported(model, strict=strict).module(), model)


@pytest.mark.parametrize("part", [lambda elmo: elmo, lambda elmo: elmo._elmo_lstm], ids=["Elmo", "BiLM"])
def test_a_carried_state_is_not_exported(files, part):
    """The program would start every batch from zeros. The module is as it was afterwards."""
    model = Elmo(*files(layers=1), 1).eval()
    with pytest.raises(ElmoFastError, match="stateful=False"):
        exported(part(model))
    assert model._elmo_lstm._elmo_lstm._states is None
    model(batch_to_ids(BATCHES[0]))
    assert model._elmo_lstm._elmo_lstm._states is not None


@pytest.mark.slow
def test_a_module_compiled_ahead_of_time_serves_other_sizes(files, tmp_path):
    """AOTInductor's package, loaded again."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch's own modules, on import and while they compile
        import torch._inductor as inductor

        model = Elmo(*files(layers=1), 1, stateful=False).eval()
        path = inductor.aoti_compile_and_package(exported(model), package_path=str(tmp_path / "elmo.pt2"))
        program = inductor.aoti_load_package(path)
    check(program, model)
