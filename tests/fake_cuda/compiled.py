"""Counts what Triton compiles when the kernels of one precision are first checked on a card.

python -m tests.fake_cuda.compiled PRECISION: each unit of the check (docs/gpu.md) runs its cases on fake tensors of a
CUDA device that pretends; launches are recorded, and told apart as Triton's own launcher does
(tests/kernels/launch.py).
"""

import os
import sys
import types
from unittest import mock

from tests.fake_cuda import build

LATER = "bilm, replayed", "training_step, replayed"  # checked when a BiLM or a trainer asks


def main(precision):
    os.environ |= {"TRITON_INTERPRET": "0", "ELMO_FAST_CUDA_GRAPHS": "0", "ELMO_FAST_GPU_CHECK": "0"}
    build.load()  # before torch
    from tests.fake_cuda import watch

    watch.install()  # before elmo_fast: what it registers runs the host functions on fake tensors too
    found = units(precision)
    for unit, compiled in found.items():
        print(f"{unit}: {tell([compiled])}")
    first = [compiled for unit, compiled in found.items() if unit not in LATER]
    print(f"brought along by the first unit: {tell(first)}")
    print(f"all: {tell(found.values())}")


def tell(units):
    names = {key: name for compiled in units for key, name in compiled.items()}
    return f"{len(set(names.values()))} kernels, {len(names)} specialisations"


def units(precision):
    """{unit: {what tells a specialisation from others: its kernel's name}} of all that have Triton kernels."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    from elmo_fast.modules import _replay_case as bilm
    from elmo_fast.modules.losses import SampledSoftmaxLoss
    from elmo_fast.ops import _check, _registry, _triton
    from elmo_fast.ops._cases import Draw, results
    from elmo_fast.ops.hierarchical_softmax import cases as tree_cases
    from elmo_fast.ops.projected_lstm import cases as lstm_cases
    from elmo_fast.pretrain.step import replay_case
    from tests.fake_cuda import works
    from tests.kernels.launch import identity

    device, found = torch.device("cuda:0"), {}
    works.pretend()
    tree = tree_cases.huffman_tree(10**6 // torch.arange(1, tree_cases.WORDS + 1))  # of values, which fakes lack

    def drawn(loss, seed, offset, device):
        return works.whole(loss.num_samples, device=device), works.whole(device=device)

    def count(name, call, *given):
        with FakeTensorMode(allow_non_fake_inputs=True), _triton.recording() as launches:
            call(*given)
        found[name] = {identity(each): each.kernel.fn.__name__ for each in launches if all(each.grid)}

    def run(cases, precision):
        for case in cases:
            results(case, {"backend": "triton", "precision": precision}, device)

    for op, backends in _registry.REGISTRY.items():
        if "triton" not in backends:
            continue
        unit = _check.Unit(op, "triton", precision if _registry.multiplies(op) else "float32")
        with (
            mock.patch.object(tree_cases, "huffman_tree", return_value=tree),
            mock.patch.object(torch.Tensor, "to_dense", lambda self: self._values()),
        ):
            count(str(unit), run, _check.cases_for(unit, device), unit.precision)
    count("projected_lstm, replayed", run, [lstm_cases.full_bucket(Draw())], precision)
    # Models are made on the device: modules of fake parameters neither move nor are copied.
    with (
        torch.device(device),
        mock.patch.object(torch.nn.Module, "to", lambda self, device: self),
        mock.patch.object(replay_case, "copy", types.SimpleNamespace(deepcopy=lambda model: model)),
        mock.patch.object(torch.Tensor, "pin_memory", lambda self: self),
        mock.patch.object(SampledSoftmaxLoss, "draw", drawn),
    ):
        count(LATER[0], bilm.replayed, precision, device)
        count(LATER[1], replay_case.replayed, precision, device)
    return found


if __name__ == "__main__":
    main(*sys.argv[1:])
