"""Launches every GPU kernel once at small, awkward sizes: python -m benchmarks.gpu.launch_all DEVICE [BACKEND].

For compute-sanitizer; ends with status 1 where a result is not finite.
"""

import sys

import torch

from benchmarks.gradients import differentiated
from benchmarks.op_calls import OpCalls
from elmo_fast.errors import ElmoFastError
from elmo_fast.ops import _dispatch, _triton

OPS = ("char_cnn", "highway", "projected_lstm", "scalar_mix", "log_uniform_sample", "sampled_softmax", "full_softmax",
       "negative_sampling", "hierarchical_softmax", "adagrad")  # fmt: skip
PRECISION = "float16"
AWKWARD = {
    "filters": ((1, 4), (2, 8), (3, 20), (7, 33)), "words": 37, "projection": 33, "lstm": (19, 6, 72), "shortest": 0,
    "mix": (5, 7, 33), "rows": 76, "table": 300, "samples": 33,
}  # fmt: skip


def main(words: list[str]) -> int:
    """Runs the cases of one backend, or of every GPU backend."""
    device, *named = words
    calls, launched = OpCalls(device, **AWKWARD), []
    for backend in named or [name for name in _dispatch.BACKENDS if name not in ("native", "reference")]:
        torch.manual_seed(0)
        for op in OPS:
            module = _dispatch._REGISTRY[op].get(backend)
            if module is None or module.unsupported(torch.device(device), torch.float32, PRECISION) is not None:
                continue
            inputs, forward = getattr(calls, op)({"precision": PRECISION, "backend": backend})
            for each in inputs:
                each.requires_grad_()
            try:
                found, _ = differentiated(forward, inputs, train=bool(inputs))()
            except ElmoFastError as refusal:  # sizes that a kernel is not made for
                print(f"{op}, {backend}: {refusal}")
                continue
            if not torch.isfinite(found).all():
                print(f"{op}, {backend}: a result is not finite")
                return 1
            launched.append(f"{op}, {backend}")
    if device.startswith("cuda") and not _triton.INTERPRETED:
        torch.cuda.synchronize()
    print(f"launched {'; '.join(launched)}" if launched else "nothing to launch")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
