"""Where a test's tensors live: a GPU backend's on the GPU where there is one, else on the CPU (interpreted)."""

import pytest
import torch

from tests.backends import device_of


@pytest.fixture(autouse=True)
def on_its_device(request):
    """Tests with a parameter `backend` make their tensors where that backend runs."""
    backend = getattr(request.node, "callspec", None) and request.node.callspec.params.get("backend")
    with torch.device(device_of(backend or "reference")):
        yield
