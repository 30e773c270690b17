"""Seeds every test, fills what torch.empty* returns with NaN, and hands out the backends."""

import os

# On a busy machine two OpenMP threads waiting for each other are slower than one; tests that want two ask for two.
os.environ.setdefault("OMP_NUM_THREADS", "1")
import random

import numpy as np
import pytest
import torch

# Without a GPU Triton's kernels run in its interpreter. Before anything imports them: the choice is made at import.
if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")


@pytest.fixture(autouse=True)
def seeded() -> None:
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002
    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def poisoned():
    """torch.empty* is filled with NaN, so that an output nothing wrote is seen."""
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = True
    yield
    torch.use_deterministic_algorithms(False)


@pytest.fixture(scope="session")
def shared():
    """The folder of reference data beside a development checkout; tests that want it skip where it is absent."""
    import pathlib

    folder = pathlib.Path(os.environ.get("ELMO_FAST_SHARED", pathlib.Path(__file__).parents[2] / "shared"))
    if not folder.is_dir():
        pytest.skip("the folder of reference data (../shared, or $ELMO_FAST_SHARED) is absent")
    return folder
