"""Seeds every test, fills what torch.empty* returns with NaN, and hands out the backends."""

import gc
import os

# On a busy machine two OpenMP threads waiting for each other are slower than one; tests that want two ask for two.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# cuBLAS is deterministic with a workspace of its own only, and refuses to run without one where that is asked for.
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
import contextlib
import importlib
import pathlib
import random
import signal
import warnings

import hypothesis
import numpy as np
import pytest
import torch

from tests.support.extension import refuse_old_extension

# A shell that starts the tests in the background has SIGINT ignored, by them and by the processes that they start.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Without a GPU Triton's kernels run in its interpreter. Before anything imports them: the choice is made at import.
if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")

# What is compared with float64 multiplies as it says: by default cuDNN's convolutions and LSTMs round float32 to tf32,
# and cuBLAS adds parts of 16-bit products in 16 bit. torch announces a newer spelling of the first two, once.
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    _ = torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32
torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False


def pytest_configure(config: pytest.Config) -> None:
    refuse_old_extension(pathlib.Path(__file__).parents[1])
    if "STANDIN" in os.environ:  # where a GPU would multiply bfloat16
        config.addinivalue_line("filterwarnings", "ignore:.*because Triton's interpreter multiplies the bit patterns")
    if os.environ.get("TRITON_INTERPRET") == "1" and "STANDIN" not in os.environ:  # which does it itself
        from tests.support.interpreter import spare_repeated_patches

        with contextlib.suppress(ImportError):
            spare_repeated_patches(importlib.import_module("triton.runtime.interpreter"))


def pytest_collection_finish() -> None:
    """What is there by now stays: collections of garbage, which dropping a graph asks for, need not look at it."""
    gc.collect()
    gc.freeze()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files that take long come first, so that two workers end together."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)


class TorchRandom:
    """torch's generator for hypothesis: every example samples the same tensors each time it is tried."""

    seed, getstate, setstate = (staticmethod(f) for f in (torch.manual_seed, torch.get_rng_state, torch.set_rng_state))


_TORCH_RANDOM = TorchRandom()  # hypothesis holds it weakly
hypothesis.register_random(_TORCH_RANDOM)
# No deadline: the first example of a kernel waits for its compilation. The examples are the same in every run, so that
# many of them prove little: `make fuzz` looks for new ones.
hypothesis.settings.register_profile("elmo_fast", deadline=None, derandomize=True, max_examples=50)
hypothesis.settings.load_profile("elmo_fast")


@pytest.fixture(autouse=True)
def seeded() -> None:
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002
    torch.manual_seed(0)


THREADS = torch.get_num_threads()


@pytest.fixture(autouse=True)
def as_many_threads():
    """A command's --threads holds for its process. A child forked from one whose OpenMP threads have begun can hang."""
    yield
    if torch.get_num_threads() != THREADS:
        torch.set_num_threads(THREADS)


@pytest.fixture(autouse=True)
def poisoned():
    """torch.empty* is filled with NaN, and new memory in C++, so that an output nothing wrote is seen."""
    from elmo_fast.ops import _native

    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = True
    if _native.C is not None:
        _native.C.fill_new_memory(True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.fixture
def seen(monkeypatch):
    """What torch captures and replays in a test, which sees no graphs of others."""
    from tests.ops.graph_cases import watched

    yield from watched(monkeypatch)


@pytest.fixture(scope="session", autouse=True)
def checked(tmp_path_factory):
    """`elmo-fast check` has passed on every GPU, as commands know it: they warn of a GPU where it has not."""
    from elmo_fast.cli import check

    with pytest.MonkeyPatch.context() as patch:
        if torch.cuda.is_available():
            patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
            for index in range(torch.cuda.device_count()):
                check.remember(torch.device("cuda", index), passed=True)
        yield


@pytest.fixture(scope="session")
def shared():
    """The folder of reference data next to a development checkout; tests that need it skip if it is absent."""
    folder = pathlib.Path(os.environ.get("ELMO_FAST_SHARED", pathlib.Path(__file__).parents[2] / "shared"))
    if not folder.is_dir():
        pytest.skip("the folder of reference data (../shared, or $ELMO_FAST_SHARED) is absent")
    return folder


@pytest.fixture(scope="session")
def commands(tmp_path_factory):
    """The socket of a process that runs `elmo-fast` for what pages show."""
    from tests.support import fork_server, snippets

    with fork_server.serving(tmp_path_factory.mktemp("commands") / "socket", snippets.environment()) as path:
        yield path
