"""Kernels broken on purpose: `python -m tests.ops.broken BREAK DEVICE` is the process that checks them, so broken."""

import contextlib
import sys
from unittest import mock

import torch

from elmo_fast.ops import _triton


class CompilationError(Exception):
    """As Triton raises it."""


def raising(error):
    """A launch that raises."""

    def launch(*arguments, **constants):
        raise error

    return launch


def after(change, kernel="", precision=None, **only):
    """Launches that change the floating-point tensors which the kernel of this name was given, at one precision and
    with these constants."""
    whole = _triton.launch

    def launch(launched, grid, *arguments, **constants):
        whole(launched, grid, *arguments, **constants)
        tensors = [each for each in arguments if isinstance(each, torch.Tensor)]
        meant = precision is None or any(each.dtype == getattr(torch, precision) for each in tensors)
        if launched.fn.__name__ == kernel and meant and only.items() <= constants.items():
            for each in tensors:
                if each.is_floating_point():
                    change(each)

    return launch


BREAKS = {
    "compile": raising(CompilationError("at 3:4: unsupported operand")),
    "launch": raising(RuntimeError("out of resource: shared memory, Required: 262144, Hardware limit: 101376")),
    "wrong": after(lambda tensor: tensor.mul_(1.01), "layer"),
    "nan": after(lambda tensor: tensor.flatten()[:1].fill_(torch.nan), "layer"),
    "wrong backward": after(lambda tensor: tensor.mul_(1.01), "unmix"),
    "wrong tile": after(lambda tensor: tensor.mul_(1.01), "layer", BM=64),
    "wrong float16": after(lambda tensor: tensor.mul_(1.1), "layer", "float16"),
}


@contextlib.contextmanager
def broken(name):
    """Within it the launches of highway's kernels are broken."""
    with mock.patch.object(_triton, "launch", BREAKS[name]):
        yield


if __name__ == "__main__":
    from elmo_fast.ops._check_program import main

    with broken(sys.argv[1]):
        sys.exit(main(sys.argv[2:]))
