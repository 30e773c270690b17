"""Launches every GPU kernel once at small, awkward sizes: python -m benchmarks.gpu.launch_all DEVICE [BACKEND].

For compute-sanitizer; ends with status 1 where a result is not finite.
"""

import inspect
import sys
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from elmo_fast import ops
from elmo_fast.errors import ElmoFastError
from elmo_fast.ops import LSTMWeights, _dispatch, _triton


def cases(device: torch.device, backend: str, precision: str) -> Iterator[tuple[str, Callable[[], Tensor]]]:
    """(op, a call that gives a loss of its outputs)."""

    def noise(*shape: int) -> Tensor:
        return torch.randn(*shape, device=device, requires_grad=True)

    options = {"precision": precision, "backend": backend}
    ids = torch.randint(0, 262, (37, 50), device=device)
    widths = ((1, 4), (2, 8), (3, 20), (7, 33))
    yield (
        "char_cnn",
        lambda: (
            ops.char_cnn(
                ids, noise(262, 16), [noise(n, 16, k) for k, n in widths], [noise(n) for _, n in widths], **options
            )
            .square()
            .mean()
        ),
    )
    yield (
        "highway",
        lambda: (
            ops.highway(noise(37, 65), [noise(130, 65)] * 2, [noise(130)] * 2, noise(33, 65), noise(33), **options)
            .square()
            .mean()
        ),
    )
    size, cells = 40, 72
    weights = [
        LSTMWeights(noise(4 * cells, size), noise(4 * cells, size), noise(4 * cells), noise(size, cells))
        for _ in range(2)
    ]
    lengths = torch.arange(19, device=device) % 7
    x = noise(19, 6, size)
    yield "projected_lstm", lambda: ops.projected_lstm([x, x], weights, lengths, **options)[0].square().mean()
    layers = [noise(5, 7, 33) for _ in range(3)]
    yield "scalar_mix", lambda: ops.scalar_mix(layers, noise(2, 3), noise(2), backend=backend).square().mean()
    if "device" in inspect.signature(ops.log_uniform_sample).parameters:
        yield (
            "log_uniform_sample",
            lambda: noise(1).sum() + ops.log_uniform_sample(33, 300, seed=1, device=device, backend=backend)[0].sum(),
        )  # type: ignore[call-arg]
    samples, tries = (t.to(device) for t in ops.log_uniform_sample(33, 300, seed=1))
    targets = torch.randint(0, 300, (19,), device=device)
    yield (
        "sampled_softmax",
        lambda: ops.sampled_softmax(
            noise(19, size), targets, noise(300, size), noise(300), samples, tries, **options
        ).mean(),
    )
    yield (
        "full_softmax",
        lambda: ops.full_softmax(noise(19, size), targets, noise(300, size), noise(300), **options).mean(),
    )


def main(words: list[str]) -> int:
    """Runs the cases of one backend, or of every GPU backend."""
    device, *named = words
    precision = "float16"
    launched = []
    known = [name for name in _dispatch.BACKENDS if name not in ("native", "reference")]
    for backend in named or known:
        torch.manual_seed(0)
        for op, call in cases(torch.device(device), backend, precision):
            module = _dispatch._REGISTRY[op].get(backend)
            if module is None or module.unsupported(torch.device(device), torch.float32, precision) is not None:
                continue
            try:
                loss = call()
            except ElmoFastError as refusal:  # sizes that a kernel is not made for
                print(f"{op}, {backend}: {refusal}")
                continue
            loss.backward()
            if not torch.isfinite(loss):
                print(f"{op}, {backend}: the loss is {loss.item()}")
                return 1
            launched.append(f"{op}, {backend}")
    if device.startswith("cuda") and not _triton.INTERPRETED:
        torch.cuda.synchronize()
    print(f"launched {'; '.join(launched)}" if launched else "nothing to launch")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
