"""A captured step launches nothing that was not launched before: drivers before CUDA 12.3 load no code in one. Its
launches, which bound a step on the host, are no more than they were."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from elmo_fast.modules.losses import LOSS_CLASSES
from elmo_fast.ops import _triton
from tests.ops.graph_cases import DEVICE, drop_all, needs_graphs
from tests.pretrain.sides import Side

pytestmark = pytest.mark.skipif(
    not (_triton.INTERPRETED and _triton.implements("projected_lstm")), reason="Triton's interpreter launches no kernel"
)


def kind(value, general=False):
    """What Triton compiles a kernel for, of one of its arguments; general: whatever the number (do_not_specialize)."""
    if isinstance(value, tuple):
        return tuple(map(kind, value))
    if isinstance(value, torch.Tensor):
        return value.dtype, value.data_ptr() % 16 == 0
    if type(value) is int:
        width = 32 if -(2**31) <= value < 2**31 else 64
        return width if general else 1 if value == 1 else (width, value % 16 == 0)
    return None if value is None else type(value)


class Launches(TorchDispatchMode):
    """What is launched, Triton's kernels (which do not run) and torch's; counts: of both in captures; new: what is
    launched in a capture for the first time."""

    def __init__(self, monkeypatch):
        super().__init__()
        self.kernels, self.operations, self.captured, self.new = set(), set(), set(), []
        self.counts = {"kernels": 0, "operations": 0}
        interpreter = pytest.importorskip("triton.runtime.interpreter")

        def run(kernel, *arguments, grid, warmup, **options):
            general = kernel.kwargs["do_not_specialize"] or ()
            each = tuple(kind(value, name in general) for name, value in zip(kernel.arg_names, arguments, strict=False))
            self.launched(self.kernels, (kernel.fn.__name__, each, repr(sorted(options.items(), key=str))))

        monkeypatch.setattr(interpreter.InterpretedFunction, "run", run)

    def launched(self, before, variant):
        if torch.cuda.is_current_stream_capturing():
            self.captured.add(variant)
            self.counts["kernels" if before is self.kernels else "operations"] += 1
            self.new += [] if variant in before else [variant]
        else:
            before.add(variant)

    def __torch_dispatch__(self, function, types, arguments=(), options=None):
        leaves = torch.utils._pytree.tree_leaves(arguments)
        dtypes = tuple(each.dtype for each in leaves if isinstance(each, torch.Tensor) and each.is_cuda)
        copied = function is torch.ops.aten.copy_.default and len(set(dtypes)) == 1  # by no kernel
        if function.namespace != "standin" and not copied:
            self.launched(self.operations, (str(function), dtypes))
        return function(*arguments, **(options or {}))


STEPS = [
    *({"loss": loss, "words": words} for loss in LOSS_CLASSES for words in (None, 500)),
    *({"input": "words", "micro_batches": parts, "words": 500} for parts in (1, 3)),
    {"precision": "float16", "device": "cuda:1"},
    {"make": torch.optim.AdamW},
    {"dropout": 0.0, "n_layers": 1, "projection_dim": 3, "dim": 5},
]
MOST = {"kernels": 108, "operations": 225}  # of one capture of the first step; lower them when there are fewer


@needs_graphs
@pytest.mark.parametrize("changes", STEPS, ids=lambda changes: "-".join(map(str, changes.values())) or "plain")
def test_a_captured_step_launches_nothing_for_the_first_time(seen, monkeypatch, changes):
    """Of the first shape, of an epoch's last batch, after an evaluation and with rows that start anew."""
    side = Side(True, "triton", **changes)
    with Launches(monkeypatch) as launches:
        for number, batch in enumerate((0, 1, 2, 2, 0)):
            side.take(number, batch, diverges=None)
        drop_all(changes.get("device", DEVICE))  # as an evaluation does
        for number, batch in enumerate((0, 2, 0, 2)):
            side.take(number, batch, diverges=None)
    assert len(seen.begun) == 4 * (2 if "make" in changes else 1)
    assert {name for name, *_ in launches.captured} >= {"projected_lstm_forward_final_state_kernel"}
    assert not launches.new, launches.new[0]
    if changes == STEPS[0]:
        assert all(launches.counts[each] <= len(seen.begun) * most for each, most in MOST.items()), launches.counts
