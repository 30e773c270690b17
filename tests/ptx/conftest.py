"""The emulator, for tests that launch what Triton compiled: they run where `tests.ptx.plugin` is loaded."""

import pytest


@pytest.fixture
def emulator(request):
    found = getattr(request.config, "emulator", None)
    if found is None:
        pytest.skip("runs in the emulator: test_selection.py starts some of these tests, `make ptx` all")
    return found
