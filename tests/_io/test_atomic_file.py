"""Files that appear whole or not at all."""

import errno
import os
import subprocess
import sys

import h5py
import numpy as np
import pytest
from safetensors.numpy import save_file

from elmo_fast._io.atomic_file import atomic_file, hdf5_written
from elmo_fast.errors import ElmoFastError
from tests.support.nfs import remove_as_nfs


def test_nothing_else_stays_on_nfs_nor_of_a_dead_process(tmp_path, monkeypatch):
    remove_as_nfs(monkeypatch)
    dead = tmp_path / ".out.dead_one.partial"
    dead.mkdir()
    (dead / ".lock").touch()
    (tmp_path / ".out.mine.partial").mkdir()  # a user's
    with atomic_file(tmp_path / "out"):
        assert not dead.exists()
    assert sorted(os.listdir(tmp_path)) == [".out.mine.partial", "out"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_an_error_leaves_what_was_there(tmp_path, error):
    target = tmp_path / "out"
    target.write_text("old")

    def interrupted():
        with atomic_file(target) as temporary:
            temporary.write_text("half")
            raise error

    with pytest.raises(error):
        interrupted()
    assert target.read_text() == "old"
    assert os.listdir(tmp_path) == ["out"]


def test_a_link_keeps_pointing_and_modes_stay(tmp_path):
    (tmp_path / "real").write_text("old")
    (tmp_path / "real").chmod(0o640)
    (tmp_path / "link").symlink_to("real")
    with atomic_file(tmp_path / "link") as temporary:
        temporary.write_text("new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text() == "new"
    assert (tmp_path / "real").stat().st_mode & 0o777 == 0o640


def test_a_writer_that_puts_another_file_there_does_not_choose_its_mode(tmp_path):
    """safetensors does so, with 0600."""
    save_file({"a": np.zeros(3)}, tmp_path / "plain")
    with atomic_file(tmp_path / "out") as temporary:
        save_file({"a": np.zeros(3)}, temporary)
    (tmp_path / "usual").touch()
    assert (tmp_path / "out").stat().st_mode == (tmp_path / "usual").stat().st_mode
    assert (tmp_path / "out").read_bytes() == (tmp_path / "plain").read_bytes()


KILLED = """
import os, signal, sys
from elmo_fast._io.atomic_file import atomic_file
from safetensors.numpy import save_file
import numpy

with atomic_file(sys.argv[1]) as temporary:
    save_file({"a": numpy.zeros(1000)}, temporary)
    print("writes", flush=True)
    sys.stdin.readline()
"""


def test_a_write_removes_files_of_killed_processes_but_not_of_live_ones(tmp_path):
    command = [sys.executable, "-c", KILLED, tmp_path / "out"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    (tmp_path / ".other.x7_3k.partial").write_text("of another file")
    with subprocess.Popen(command, **pipes) as killed, subprocess.Popen(command, **pipes) as living:
        assert killed.stdout.readline() == living.stdout.readline() == "writes\n"
        killed.kill()
        killed.wait()
        assert len(list(tmp_path.glob(".out.*.partial"))) == 2
        with atomic_file(tmp_path / "out") as temporary:
            temporary.write_text("new")
        (left,) = tmp_path.glob(".out.*.partial")
        assert (left / "out").stat().st_size > 8000
        assert (tmp_path / "out").read_text() == "new"
        living.communicate("\n")
        assert living.returncode == 0
    assert sorted(os.listdir(tmp_path)) == [".other.x7_3k.partial", "out"]
    assert (tmp_path / "out").stat().st_size > 8000


def test_devices_and_folders_are_refused(tmp_path):
    with pytest.raises(ElmoFastError, match="a device or pipe"), atomic_file("/dev/full"):
        pass
    with pytest.raises(ElmoFastError, match="a folder"), atomic_file(tmp_path):
        pass
    assert os.listdir(tmp_path) == []


def test_a_missing_folder_is_named_by_the_target(tmp_path):
    with pytest.raises(FileNotFoundError, match="absent/out"), atomic_file(tmp_path / "absent" / "out"):
        pass


def test_hdf5_is_written_and_read_back(tmp_path):
    values = np.arange(60_000, dtype=np.float32).reshape(3, -1)
    with atomic_file(tmp_path / "out.hdf5") as new, hdf5_written(new, "out.hdf5") as (file, written):
        for i in range(5):
            file.create_dataset(str(i), data=values + i)
        file.attrs["name"] = "é"
        written.check()
        assert not (tmp_path / "out.hdf5").exists()
    with h5py.File(tmp_path / "out.hdf5") as file:
        assert file.attrs["name"] == "é"
        assert all(np.array_equal(file[str(i)], values + i) for i in range(5))
    assert os.listdir(tmp_path) == ["out.hdf5"]


FULL_DISK = """
import resource, sys
import numpy as np
from elmo_fast._io.atomic_file import atomic_file, hdf5_written

resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
try:
    with atomic_file(sys.argv[1]) as new, hdf5_written(new, sys.argv[1]) as (file, written):
        i = 199
        if sys.argv[2] == "truncate":  # as HDF5 does at the end of a file with room that it has not written
            written.truncate(2 << 20)
        for i in range(0 if sys.argv[2] == "truncate" else 200):
            file.create_dataset(str(i), data=np.ones((3, 27, 64), np.float32))
            if sys.argv[2] == "check":
                written.check()
except OSError as error:
    sys.exit(f"{error.errno} {error.filename} at {i}")
"""


@pytest.mark.parametrize("when", ["check", "close", "truncate"])
def test_hdf5_on_a_full_disk_is_an_os_error_and_leaves_nothing(tmp_path, when):
    """A limit on the size of files (EFBIG) stands for the full disk (ENOSPC); HDF5 by itself crashes on either."""
    target = tmp_path / "out.hdf5"
    target.write_text("old")
    done = subprocess.run([sys.executable, "-c", FULL_DISK, target, when], capture_output=True, text=True)
    assert done.returncode == 1, done.stderr
    number, name, _, written = done.stderr.split()
    assert (int(number), name) == (errno.EFBIG, str(target))
    assert int(written) == 199 if when != "check" else 45 < int(written) <= 51
    assert target.read_text() == "old"
    assert os.listdir(tmp_path) == ["out.hdf5"]
