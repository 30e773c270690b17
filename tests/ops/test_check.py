"""`elmo-fast check`: every op's cases, kernels broken on purpose, and the reminder on a GPU that was not checked."""

import re
from unittest import mock

import pytest
import torch

from elmo_fast.cli import check
from elmo_fast.cli.main import main
from elmo_fast.ops import _dispatch, _triton, cases
from tests.backends import GPU, HAS_CUDA, needs

CPU = torch.device("cpu")
WITH_PRECISION = [
    (op, precision)
    for op, (_, multiplies) in cases.CASES.items()
    for precision in (("float32", "float16") if multiplies else ("float32",))
]
needs_interpreter = pytest.mark.skipif(not _triton.INTERPRETED, reason="Triton's interpreter is not in use")


def test_every_op_with_a_gpu_kernel_has_cases():
    assert set(cases.CASES) == {op for op in _dispatch.op_names() if set(GPU) & set(_dispatch.backends_of(op))}


@pytest.mark.parametrize(
    ("op", "precision"), [case for case in WITH_PRECISION if "native" in _dispatch.backends_of(case[0])]
)
def test_the_cases_of_every_op_hold_for_the_kernels_of_the_cpu(op, precision):
    """So what is wrong on a GPU is the GPU's kernel."""
    needs(op, "native", precision)
    assert check.why_wrong(op, "native", precision, CPU) is None


# The interpreter is slow: there a few ops do.
LAUNCHED = [(op, "float32") for op in ("scalar_mix", "unique_rows", "adagrad", "full_softmax")]


@pytest.mark.parametrize(("op", "precision"), LAUNCHED if _triton.INTERPRETED else WITH_PRECISION)
@pytest.mark.parametrize("backend", ["triton"])
def test_right_kernels_pass(op, precision, backend):
    if backend not in _dispatch.backends_of(op):
        pytest.skip(f"{op} has no such kernel")
    needs(op, backend, precision)
    assert check.why_wrong(op, backend, precision, "cuda" if HAS_CUDA else "cpu") is None


def raising(error):
    """A launch that raises."""

    def start(*launched):
        raise error

    return start


def after(change, kernel, precision=None):
    """A launch that changes the floating-point tensors of the kernel of this name, at one precision or at all."""
    whole = _triton.start

    def start(launched, grid, arguments, constants, options):
        whole(launched, grid, arguments, constants, options)
        given = [each for some in arguments for each in (some if isinstance(some, tuple) else (some,))]
        tensors = [each for each in given if isinstance(each, torch.Tensor) and each.is_floating_point()]
        meant = precision is None or any(each.dtype == getattr(torch, precision) for each in tensors)
        for each in tensors if meant and launched.fn.__name__ == kernel else ():
            change(each)

    return start


class CompilationError(Exception):
    """An error like Triton's."""


BROKEN = {
    "compile": (raising(CompilationError("at 3:4: unsupported")), "float32", "case 0: CompilationError: at 3:4"),
    "launch": (raising(RuntimeError("out of resource")), "float32", "case 0: RuntimeError: out of resource"),
    "wrong": (
        after(lambda tensor: tensor.mul_(1.01), "scalar_mix_forward_mix_kernel"),
        "float32",
        "case 0: mixed: largest error",
    ),
    "nan": (
        after(lambda tensor: tensor.flatten()[:1].fill_(torch.nan), "scalar_mix_forward_mix_kernel"),
        "float32",
        "case 0: mixed: largest error nan",
    ),
    "wrong backward": (
        after(lambda tensor: tensor.mul_(1.01), "scalar_mix_backward_gradients_kernel"),
        "float32",
        "case 0: gradient of layers 0: largest error",
    ),
}


@needs_interpreter
@pytest.mark.parametrize("name", BROKEN)
def test_a_kernel_broken_on_purpose_is_wrong(name):
    start, precision, message = BROKEN[name]
    with mock.patch.object(_triton, "start", start):
        assert re.match(message, str(check.why_wrong("scalar_mix", "triton", precision, CPU)))


@needs_interpreter
@pytest.mark.parametrize("wrong", [False, True])
def test_the_command_prints_a_line_per_op_and_exits_1_if_one_is_wrong(monkeypatch, capsys, wrong):
    monkeypatch.setattr(cases, "CASES", {"scalar_mix": cases.CASES["scalar_mix"]})
    if wrong:
        monkeypatch.setattr(_triton, "start", raising(RuntimeError("out of resource")))
    assert main(["check", "--device", "cpu"]) == int(wrong)
    triton, last = capsys.readouterr().out.splitlines()
    assert re.fullmatch(
        f"scalar_mix +triton +{'WRONG: case 0: RuntimeError: out of resource' if wrong else 'right'}", triton
    )
    assert last == ("0 right, 1 wrong on cpu" if wrong else "1 right, 0 wrong on cpu")
