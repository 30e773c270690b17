"""Available memory, and the sentence that reports a shortage."""

import numpy as np
import pytest
import torch

from elmo_fast._runtime import memory
from elmo_fast._runtime.memory import available, is_shortage, shortage_error
from elmo_fast.cli.main import main
from elmo_fast.errors import CheckpointError
from elmo_fast.pretrain.run import pretrain
from tests.pretrain.toy import toy_config

MIB = 1 << 20


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
    assert str(shortage_error(errors[2], {})) == "memory ran out: MemoryError; end other programs"


def test_a_command_says_what_a_library_says_and_what_to_lower(monkeypatch, capsys):
    said = "CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of 79.10 GiB"

    def refuse(*arguments):
        raise torch.OutOfMemoryError(f"{said}\nmore lines")

    for seeded, expected in ((lambda seed: torch.empty(1 << 58), "allocate 1152921504606846976 bytes"), (refuse, said)):
        monkeypatch.setattr(torch, "manual_seed", seeded)
        assert main(["eval", "--model", "mini", "--test_prefix", "x", "-q"]) == 2
        error = capsys.readouterr().err
        assert error.startswith("elmo-fast eval: error: memory ran out: ")
        assert expected in error
        assert error.endswith("; lower --batch_size or --unroll_steps or --threads, or end other programs\n")
        assert error.count("\n") == 1


def test_a_whole_checkpoint_is_not_passed_over_for_an_older_one(tmp_path, monkeypatch):
    config = toy_config(tmp_path, checkpoint_interval=2, max_steps=4)
    pretrain(config, report=lambda line: None)

    def short(path, framework):
        raise MemoryError("Cannot allocate memory (os error 12)")

    monkeypatch.setattr("safetensors.safe_open", short)
    with pytest.raises(MemoryError):
        pretrain(config, report=lambda line: None)
