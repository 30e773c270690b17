"""A small model's training steps replayed from CUDA graphs, to be held to launched ones on the user's card."""

import copy

import numpy as np
import torch
from torch import Tensor

from elmo_fast.op_choices import Backend, Precision
from elmo_fast.ops._cases import Draw, Replayed
from elmo_fast.pretrain.architecture import options_of
from elmo_fast.pretrain.config import ModelConfig
from elmo_fast.pretrain.language_model import LanguageModel
from elmo_fast.pretrain.step.adagrad import AdaGrad
from elmo_fast.pretrain.step.step_inputs import Words
from elmo_fast.pretrain.step.training_step import Step

VOCABULARY, ROWS, UNROLLED, CHARACTERS, STEPS = 300, 4, 4, 10, 4
MODEL = ModelConfig(
    filters=[[1, 8], [2, 8], [3, 16]], char_embedding_dim=4, max_characters_per_token=CHARACTERS, n_highway=1, dim=40,
    projection_dim=16, dropout=0.1,
)  # fmt: skip
BACKEND: Backend = "auto"


def replayed(precision: Precision, device: torch.device) -> Replayed:
    """What steps leave and report: the first has no state, the second is launched, the others are replayed."""
    options = options_of(MODEL, VOCABULARY, n_negative_samples_batch=64)
    model = LanguageModel(options, precision=precision, backend=BACKEND)
    draw = Draw()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(draw.normal(*parameter.shape, scale=0.3))
    model.to(device)
    (theirs, _), (ours, graphs) = (_taken(copy.deepcopy(model), device, graph) for graph in (False, True))
    return Replayed(ours, theirs, graphs)


def _taken(model: LanguageModel, device: torch.device, graph: bool) -> tuple[dict[str, Tensor], int]:
    """All that the steps change and report, by name, and how many graphs there are."""
    draw, state, found = Draw(), None, dict[str, Tensor]()
    optimizer = AdaGrad(model.parameters(), backend=BACKEND)
    step = Step(model, optimizer, clip_norm=1.0, state_reset=0.5, cuda_graph=graph)
    spelled = (draw.whole(260, VOCABULARY, CHARACTERS) + 1).to(device)
    for number in range(STEPS):
        types, targets = (draw.whole(VOCABULARY, 2, ROWS, UNROLLED).to(device) for _ in range(2))
        filled, words = np.full(ROWS, UNROLLED, np.int64), ROWS * UNROLLED
        result = step(Words(types, targets, filled, words, 0, ROWS, spelled.__getitem__), state, number)
        state = result.state
        told = (torch.as_tensor(each, dtype=torch.float64).cpu() for each in result[:3])
        found[f"losses and norm of step {number}"] = torch.stack(list(told))
    assert state is not None
    found |= {"h": state[0], "c": state[1]}
    for name, parameter in model.named_parameters():
        found |= {name: parameter.detach(), f"sums of {name}": optimizer.accumulator(parameter)}
    return found, 0 if step.captured is None else len(step.captured.graphs)
