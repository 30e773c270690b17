"""One run per folder."""

import os
import signal
import subprocess
import sys

import pytest

from elmo_fast.errors import ElmoFastError
from elmo_fast.lock import LOCK_FILE, FolderLock

HOLDER = """
import pathlib, sys
from elmo_fast.lock import FolderLock
with FolderLock(pathlib.Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_second_run_is_refused_and_told_who_holds_the_folder(tmp_path):
    folder = tmp_path / "new"
    with FolderLock(folder):
        with pytest.raises(ElmoFastError, match=rf"process {os.getpid()} on .* trains there now"), FolderLock(folder):
            pass
        assert (folder / LOCK_FILE).exists()
    with FolderLock(folder):
        pass


def test_a_killed_process_leaves_the_folder_free(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout.readline() == "held\n"
        with pytest.raises(ElmoFastError, match=f"process {process.pid} "), FolderLock(tmp_path):
            pass
        process.send_signal(signal.SIGKILL)
        process.wait(30)
        with FolderLock(tmp_path):
            pass
    finally:
        process.kill()
        process.communicate()
