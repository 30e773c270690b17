"""Device of a test's tensors: the GPU for a GPU backend if there is one, else the CPU (interpreted)."""

import pytest

from elmo_fast.ops import _native
from tests.support.backends import on_device_of

# Instruction sets of the CPU's products that this CPU has, oldest first; the last is in use everywhere else.
ISAS = _native.C.isas() if _native.C is not None else ["none"]


@pytest.fixture(params=ISAS)
def isa(request):
    """Products use each instruction set in turn."""
    if _native.C is None:
        pytest.skip(str(_native.WHY_NOT))
    _native.C.limit_isa(request.param)
    yield request.param
    _native.C.limit_isa("")


@pytest.fixture(autouse=True)
def on_its_device(request):
    """Tests with a parameter `backend` make their tensors where that backend runs."""
    backend = getattr(request.node, "callspec", None) and request.node.callspec.params.get("backend")
    with on_device_of(backend or "reference"):
        yield
