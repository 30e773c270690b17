"""One run per folder."""

import os
import signal
import subprocess
import sys

import pytest

from elmo_fast.errors import ElmoFastError
from elmo_fast.files import LOCK_FILE, folder_lock
from tests.nfs import remove_as_nfs

HOLDER = """
import pathlib, sys
from elmo_fast.files import folder_lock
with folder_lock(pathlib.Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_second_run_is_refused_and_told_who_holds_the_folder(tmp_path):
    folder = tmp_path / "new"
    with folder_lock(folder):
        with pytest.raises(ElmoFastError, match=rf"process {os.getpid()} on .* trains there now"), folder_lock(folder):
            pass
        assert (folder / LOCK_FILE).exists()
    with folder_lock(folder):
        pass


def test_a_run_that_fails_at_once_tells_its_own_error_on_nfs_and_leaves_no_folder(tmp_path, monkeypatch):
    remove_as_nfs(monkeypatch)
    with pytest.raises(ElmoFastError, match="the run's"), folder_lock(tmp_path / "new"):
        raise ElmoFastError("the run's")
    assert os.listdir(tmp_path) == []


def test_a_killed_process_leaves_the_folder_free(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout.readline() == "held\n"
        with pytest.raises(ElmoFastError, match=f"process {process.pid} "), folder_lock(tmp_path):
            pass
        process.send_signal(signal.SIGKILL)
        process.wait(30)
        with folder_lock(tmp_path):
            pass
    finally:
        process.kill()
        process.communicate()
