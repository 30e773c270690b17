"""`pytest -p tests.ptx.plugin tests/ops/...`: the ops' own tests of their Triton backends, run by the emulator.

Instead of in Triton's interpreter, the kernels run as compiled for sm_80. Nothing of the package knows of that: the
driver of Triton is another, ops are registered for the CPU too, and the CPU counts as a GPU that the kernels support.
Tests of other backends are left out.
"""

import os

os.environ["TRITON_INTERPRET"] = "0"  # read when triton is imported
os.environ["CUDA_VISIBLE_DEVICES"] = ""  # and a GPU, where there is one, stays out of it

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    import torch

    from tests.ptx.driver import Emulator


def install() -> "Emulator":
    """From now on Triton's kernels serve tensors of the CPU, on the emulator."""
    from elmo_fast.ops import _native, _triton
    from tests.ptx import driver

    asked = _native.no_gpu_for

    def no_gpu_for(kernels: str, device: "torch.device") -> str | None:
        ours = kernels == "the Triton kernels" and device.type in ("cpu", "cuda")  # cuda: tensors that pretend
        return None if ours else asked(kernels, device)

    _triton.no_gpu_for = no_gpu_for
    for name, run in _triton._undispatched.items():
        _triton._LIBRARY.impl(name, run, "CompositeExplicitAutograd")
    return driver.install()


def pytest_configure(config: pytest.Config) -> None:
    config.emulator = install()


def is_ours(item: pytest.Item) -> bool:
    """Whether the test launches Triton's kernels: by its parameter `backend`, its file's name or the emulator.

    Not test_triton.py, of no op, which asks what the package says of devices: here the CPU is a GPU.
    """
    called = getattr(item, "callspec", None)
    backend = called.params.get("backend") if called is not None else None
    if backend is not None:
        return backend == "triton"
    of_op = item.path.stem.removeprefix("test_")
    return "emulator" in item.fixturenames or of_op.endswith("_triton")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    config.hook.pytest_deselected(items=[item for item in items if not is_ours(item)])
    items[:] = [item for item in items if is_ours(item)]
