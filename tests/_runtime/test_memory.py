"""Available memory, and the sentence that reports a shortage."""

import os
import re
import resource
import subprocess
import sys

import numpy as np
import pytest
import torch

from elmo_fast import ElmoEmbedder
from elmo_fast._runtime import memory
from elmo_fast._runtime.memory import available, is_shortage, reader, shortage_error, stored_bytes
from elmo_fast.checkpoints.bilm_hdf5 import write_token_embeddings
from elmo_fast.cli.main import main
from elmo_fast.errors import CheckpointError, ShortageError
from elmo_fast.pretrain.run import pretrain
from elmo_fast.tasks import train_task
from tests.pretrain.toy import toy_config
from tests.tasks.toy import toy_config as toy_task

MIB = 1 << 20


def machine(root, groups="", **files):
    """A machine with 1,000 MiB left: `files` are limits of control groups, named by their path with _ for /."""
    contents = {
        "proc/meminfo": f"MemTotal:  9999999 kB\nMemAvailable:  {1000 * 1024} kB\n",
        "proc/self/status": f"Name:\tpython\nVmSize:\t{300 * 1024} kB\nVmData:\t{100 * 1024} kB\n",
        "proc/self/cgroup": groups,
    } | {f"sys/fs/cgroup/{name}": text for name, text in files.items()}
    for name, text in contents.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def test_the_machine_tells_what_is_left(tmp_path):
    assert available(machine(tmp_path)) == 1000 * MIB
    assert available(tmp_path / "nobody") is None


def test_a_version_2_group_counts_its_parents_and_reclaimable_memory(tmp_path):
    files = {
        "job/memory.max": f"{400 * MIB}\n", "job/memory.current": f"{350 * MIB}\n",
        "job/memory.stat": f"anon 7\ninactive_file {100 * MIB}\n",
        "job/step/memory.max": "max\n", "job/step/memory.current": "5\n", "job/step/memory.stat": "inactive_file 0\n",
    }  # fmt: skip
    assert available(machine(tmp_path, "0::/job/step\n", **files)) == 150 * MIB


def test_a_version_1_group_counts_in_a_container_that_sees_only_its_root(tmp_path):
    files = {
        "memory/memory.limit_in_bytes": f"{200 * MIB}\n", "memory/memory.usage_in_bytes": f"{150 * MIB}\n",
        "memory/memory.stat": f"total_inactive_file {10 * MIB}\n",
    }  # fmt: skip
    groups = "5:cpu,cpuacct:/docker/abc\n4:hugetlb,memory:/docker/abc\n"
    assert available(machine(tmp_path, groups, **files)) == 60 * MIB


@pytest.mark.parametrize(("limit", "left"), [(resource.RLIMIT_AS, 200 * MIB), (resource.RLIMIT_DATA, 400 * MIB)])
def test_ulimit_counts(tmp_path, monkeypatch, limit, left):
    known = resource.getrlimit
    monkeypatch.setattr(resource, "getrlimit", lambda each: (500 * MIB, -1) if each == limit else (-1, -1))
    assert available(machine(tmp_path)) == left
    assert known(resource.RLIMIT_AS)


def test_this_process_has_memory_left_and_holds_some():
    assert available() > MIB
    assert memory.resident(peak=True) >= memory.resident() > MIB


def raised(work):
    with pytest.raises(Exception) as caught:  # noqa: PT011 (what it is, is the question)
        work()
    return caught.value


def test_what_libraries_raise_is_known_for_a_shortage():
    huge = 1 << 58
    errors = [
        raised(lambda: torch.empty(huge)), raised(lambda: np.empty(huge)), raised(lambda: bytearray(huge)),
        MemoryError("std::bad_alloc"), OSError(12, "Cannot allocate memory"),
        RuntimeError("unable to mmap 9 bytes from file <x>: Cannot allocate memory (12)"),
        OSError("Can't synchronously read data (memory allocation failed)"),
        ImportError("libtorch_cpu.so: failed to map segment from shared object"),
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
    ]  # fmt: skip
    assert all(map(is_shortage, errors))
    wrapped = CheckpointError("damaged")
    wrapped.__cause__ = errors[0]
    assert is_shortage(wrapped)
    assert not any(map(is_shortage, [ValueError("out of memory"), OSError(28, "No space left"), RuntimeError("shape")]))
    assert "1073741824.0 GiB more were requested" in str(shortage_error(errors[0], {}))
    assert "2.00 EiB more were requested" in str(shortage_error(errors[1], {}))
    advice = str(shortage_error(errors[1], {"batch_size": 8, "micro_batches": 1}))
    assert "lower --batch_size, raise --micro_batches, end other programs" in advice


OF_TORCH = "CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of 79.10 GiB"


@pytest.fixture
def full_gpu(monkeypatch):
    """What embedding and training call fails, as where a GPU is full."""

    def refuse(*arguments, **named):
        raise torch.OutOfMemoryError(OF_TORCH)

    monkeypatch.setattr(torch, "where", refuse)
    monkeypatch.setattr(torch.Tensor, "backward", refuse)


def test_a_command_keeps_what_torch_says_of_a_full_gpu(tmp_path, full_gpu, capsys):
    (tmp_path / "text.txt").write_text("a b\n", encoding="utf-8")
    words = ["embed", str(tmp_path / "text.txt"), str(tmp_path / "out.hdf5"), "--model", "mini", "--device", "cpu"]
    assert main(words) == 2
    said = capsys.readouterr().err
    assert "lower --batch_size or --max_tokens, give --precision bfloat16, end other programs on the GPU" in said
    assert f"(--device cpu): {OF_TORCH}" in said
    assert "ulimit" not in said


def calls_on_a_full_gpu(folder):
    """What computes in Python, and advice."""
    task = toy_task(folder, epochs=1)
    elmo = ElmoEmbedder.from_pretrained("mini")
    elmo.elmo_bilm.register_forward_hook(lambda *_: None)  # it then runs as a whole, as on a GPU
    yield lambda: elmo.embed_batch([["a"]]), 'lower batch_size or max_tokens, give precision="bfloat16"'
    yield lambda: pretrain(toy_config(folder, state_reset=0.5), report=len), "lower batch_size or unroll_steps or"
    yield lambda: train_task(task, len), 'lower batch_size, give precision="bfloat16"'


def test_python_keeps_what_torch_says_of_a_full_gpu_and_is_advised(tmp_path, full_gpu):
    for call, advice in calls_on_a_full_gpu(tmp_path):
        error = raised(call)
        assert (type(error), str(error)) == (torch.OutOfMemoryError, OF_TORCH)
        assert [note for note in error.__notes__ if advice in note] == error.__notes__


@pytest.mark.parametrize(
    "message",
    [
        "CUDA error: out of memory\nCUDA kernel errors might be reported later", "Triton Error [CUDA]: out of memory",
        "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
    ],
)  # fmt: skip
def test_other_errors_of_a_full_gpu_are_known(message):
    assert str(shortage_error(RuntimeError(message), {})).endswith(f"(--device cpu): {message.splitlines()[0]}")


def test_a_file_is_damaged_when_it_asks_for_what_its_size_does_not_explain(tmp_path, monkeypatch):
    (tmp_path / "file").write_bytes(bytes(1000))

    @reader
    def read(path):
        try:
            raise MemoryError("std::bad_alloc")
        except MemoryError as error:
            raise CheckpointError(f"{path}: damaged") from error

    with pytest.raises(CheckpointError, match="damaged"):
        read(tmp_path / "file")
    monkeypatch.setattr(resource, "getrlimit", lambda limit: (0, -1))
    with pytest.raises(ShortageError, match=r"file: memory ran out while reading it \(0 bytes are left"):
        read(tmp_path / "file")


READ_UNDER_A_LIMIT = """
import resource, sys
from elmo_fast.checkpoints.bilm_hdf5 import read_token_embeddings
from elmo_fast.errors import ShortageError
from elmo_fast._runtime.memory import _kilobytes, pathlib

before = resource.getrlimit(resource.RLIMIT_AS)
used = _kilobytes(pathlib.Path("/proc/self/status"))["VmSize"]
resource.setrlimit(resource.RLIMIT_AS, (used + (40 << 20), before[1]))
try:
    read_token_embeddings(sys.argv[1])
except ShortageError as error:
    print(error)
resource.setrlimit(resource.RLIMIT_AS, before)
print(tuple(read_token_embeddings(sys.argv[1]).shape))
"""


def test_a_whole_file_of_weights_is_not_called_damaged_under_ulimit(tmp_path):
    """The system's own limit, with room for less than the file, where nothing else gives memory back."""
    write_token_embeddings(tmp_path / "table.hdf5", torch.zeros(1001, 1 << 15))
    program = [sys.executable, "-c", READ_UNDER_A_LIMIT, tmp_path / "table.hdf5"]
    shortage, shape = subprocess.run(program, capture_output=True, text=True, check=True).stdout.splitlines()
    assert re.search(r"table\.hdf5: memory ran out while reading it \([\d.]+ MiB are left", shortage)
    assert shape == "(1001, 32768)"


def test_a_whole_checkpoint_is_not_passed_over_for_an_older_one(tmp_path, monkeypatch):
    config = toy_config(tmp_path, checkpoint_interval=2, max_steps=4)
    pretrain(config, report=lambda line: None)

    def short(path, framework):
        raise MemoryError("Cannot allocate memory (os error 12)")

    monkeypatch.setattr("safetensors.safe_open", short)
    monkeypatch.setattr(resource, "getrlimit", lambda limit: (0, -1))
    with pytest.raises(ShortageError, match=r"step-0000004.*memory ran out while reading it"):
        pretrain(config, report=lambda line: None)


def test_a_command_says_what_to_lower(monkeypatch, capsys):
    monkeypatch.setattr(torch, "manual_seed", lambda seed: torch.empty(1 << 58))
    assert main(["eval", "--model", "mini", "--test_prefix", "x", "-q"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("elmo-fast eval: error: memory ran out: 1073741824.0 GiB more were requested (")
    assert "left to this process); lower --batch_size" in error
    assert error.count("\n") == 1


def test_files_that_are_removed_meanwhile_are_not_counted(tmp_path, monkeypatch):
    """Such as those that another process of a run writes."""
    (tmp_path / "folder").mkdir()
    for name in ("stays", "goes"):
        (tmp_path / "folder" / name).write_bytes(b"12345")
    plain = os.stat

    def gone(path, *arguments, **named):
        if str(path).endswith("goes"):
            raise FileNotFoundError(path)
        return plain(path, *arguments, **named)

    monkeypatch.setattr(os, "stat", gone)
    assert stored_bytes(tmp_path) == 5
    assert stored_bytes(tmp_path / "folder" / "stays") == 5
