"""`elmo-fast check`: every op's cases, kernels broken on purpose, and the reminder on a GPU that was not checked."""

import importlib
import re
from unittest import mock

import pytest
import torch

from elmo_fast.cli import check
from elmo_fast.cli.main import main
from elmo_fast.ops import _dispatch, _triton, cases
from tests.support.backends import GPU, needs

CPU = torch.device("cpu")
WITH_PRECISION = [
    (op, precision)
    for op, (_, multiplies) in cases.CASES.items()
    for precision in (("float32", "float16") if multiplies else ("float32",))
    if "native" in _dispatch.backends_of(op)
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


def raising(error):
    """A launch that raises."""

    def run(kernel, *arguments, **options):
        raise error

    return run


def after(change, name):
    """A launch that changes the floating-point tensors of the kernel of this name."""
    whole = getattr(interpreted(), "run", None)

    def run(kernel, *arguments, **options):
        whole(kernel, *arguments, **options)
        given = [each for some in arguments for each in (some if isinstance(some, tuple) else (some,))]
        for each in given if kernel.fn.__name__ == name else ():
            if isinstance(each, torch.Tensor) and each.is_floating_point():
                change(each)

    return run


def interpreted():
    """Triton's class of a kernel that is interpreted; None without Triton."""
    try:
        return importlib.import_module("triton.runtime.interpreter").InterpretedFunction
    except ImportError:
        return None


BROKEN = {
    "launch": (raising(RuntimeError("out of resource")), "case 0: .*RuntimeError: out of resource"),
    "nan": (
        after(lambda tensor: tensor.flatten()[:1].fill_(torch.nan), "scalar_mix_forward_mix_kernel"),
        "case 0: result: largest error nan",
    ),
    "wrong backward": (
        after(lambda tensor: tensor.mul_(1.01), "scalar_mix_backward_gradients_kernel"),
        "case 0: gradient of layers 0: largest error",
    ),
}


@needs_interpreter
@pytest.mark.parametrize("name", BROKEN)
def test_a_kernel_broken_on_purpose_is_wrong(name):
    run, message = BROKEN[name]
    with mock.patch.object(interpreted(), "run", run):
        assert re.match(message, str(check.why_wrong("scalar_mix", "triton", "float32", CPU)))


@needs_interpreter
@pytest.mark.parametrize("wrong", [False, True])
def test_the_command_prints_a_line_per_op_and_exits_1_if_one_is_wrong(monkeypatch, capsys, wrong):
    monkeypatch.setattr(cases, "CASES", {"scalar_mix": cases.CASES["scalar_mix"]})
    if wrong:
        monkeypatch.setattr(interpreted(), "run", raising(RuntimeError("out of resource")))
    assert main(["check", "--device", "cpu"]) == int(wrong)
    triton, last = capsys.readouterr().out.splitlines()
    assert re.fullmatch(
        f"scalar_mix +triton +{'WRONG: case 0: .*RuntimeError: out of resource.*' if wrong else 'right'}", triton
    )
    assert last == ("0 right, 1 wrong on cpu" if wrong else "1 right, 0 wrong on cpu")
