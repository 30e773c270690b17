"""On a GPU, steps replayed from real CUDA graphs leave the bits of launched ones."""

import copy

import torch

from elmo_fast.ops import _triton
from elmo_fast.pretrain.optimizer import AdaGrad
from tests.ops.graph_cases import DEVICE, needs_graphs
from tests.pretrain.toy import toy_batches, toy_config, toy_corpus, toy_model, toy_step

# The interpreter refuses bfloat16.
PRECISIONS = ("float32", *(() if _triton.INTERPRETED else ("bfloat16",)))


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


@needs_graphs
def test_replayed_steps_leave_the_bits_of_launched_ones():
    """The first step is launched, the second captured, all that follow are replayed.

    One model after the other: its graphs die with it, and the next one's are captured.
    """
    for precision in PRECISIONS:
        compare(precision)


def compare(precision):
    torch.manual_seed(3)
    config, corpus = toy_config(precision=precision, dropout=0.4), toy_corpus()
    model, batches = toy_model(config, corpus).to(DEVICE), toy_batches(config, corpus)
    (launched, none), (replayed, graphs) = (taken(copy.deepcopy(model), batches, graph) for graph in (False, True))
    assert (none, graphs) == (0, 1)
    assert all(torch.equal(a, b) for a, b in zip(launched, replayed, strict=True))
