"""On a GPU, steps replayed from real CUDA graphs leave the bits of launched ones."""

import copy

import pytest
import torch

from elmo_fast.pretrain.optimizer import AdaGrad
from tests.backends import HAS_CUDA
from tests.pretrain.toy import toy_batches, toy_config, toy_corpus, toy_model, toy_step

DEVICE = "cuda" if HAS_CUDA else "cpu"


def taken(model, batches, cuda_graph):
    """Return everything that some steps report and leave, and the number of graphs."""
    optimizer = AdaGrad(model.parameters(), 0.2)
    step = toy_step(model, optimizer, clip_norm=0.5, state_reset=0.4, cuda_graph=cuda_graph)
    state, left = None, []
    for number in range(6):
        result = step(batches[0], state, number)
        state = result.state
        left += [torch.as_tensor(each, dtype=torch.float64, device=DEVICE) for each in result[:3]]
    left += [*state, *model.parameters(), *(optimizer.accumulator(each) for each in model.parameters())]
    return left, 0 if step.captured is None else len(step.captured.graphs)


@pytest.mark.parametrize("precisions", [("float32", "bfloat16")])
def test_replayed_steps_leave_the_bits_of_launched_ones(precisions):
    """The first step is launched, the second captured, all that follow are replayed. Without a GPU all are launched.

    One model after the other: its graphs die with it, and the next one's are captured.
    """
    for precision in precisions:
        compare(precision)


def compare(precision):
    torch.manual_seed(3)
    config, corpus = toy_config(precision=precision, dropout=0.4), toy_corpus()
    model, batches = toy_model(config, corpus).to(DEVICE), toy_batches(config, corpus)
    (launched, none), (replayed, graphs) = (taken(copy.deepcopy(model), batches, graph) for graph in (False, True))
    assert (none, graphs) == (0, int(HAS_CUDA))
    assert all(torch.equal(a, b) for a, b in zip(launched, replayed, strict=True))
