"""`elmo-fast` for the shell in hundredths of a second: forked from a process that has imported torch, once.

`python fork_server.py SOCKET` serves. `python fork_server.py SOCKET WORD ...` is `elmo-fast WORD ...`, with its own
streams, folder and environment. tests/cli/test_main.py starts `python -m elmo_fast` itself.
"""

import contextlib
import importlib
import json
import os
import pathlib
import select
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator

# Modules that commands import when they run, if installed.
IMPORTED = (
    "torch.distributed", "h5py", "yaml", "jsonargparse", "matplotlib.pyplot", "gensim.models", "sklearn.cluster",
    "sklearn.manifold", "elmo_fast.ops", "elmo_fast.pretrain.run", "elmo_fast.tasks.run", "elmo_fast.report.run",
)  # fmt: skip


def serve(path: str) -> None:
    """Forks a process for every connection, until the standard input ends: with the process that started it."""
    for name in IMPORTED:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the children: they answer
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listening.bind(f"{path}.new")
    listening.listen()
    os.rename(f"{path}.new", path)  # a client that finds it is served
    while sys.stdin not in select.select([listening, sys.stdin], [], [])[0]:
        connection, _ = listening.accept()
        if os.fork() == 0:
            listening.close()
            answer(connection)
        connection.close()


def answer(connection: socket.socket) -> None:
    """Becomes the command that is asked for, says its exit status, and ends."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    asked, streams, _, _ = socket.recv_fds(connection, 1 << 20, 3)
    words, folder, environment = json.loads(asked)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["elmo-fast", *words]
    status = 1
    try:
        from elmo_fast.cli.main import main

        status = main()
    except SystemExit as leaving:
        status = leaving.code if isinstance(leaving.code, int) else leaving.code is not None
    except Exception:  # noqa: BLE001 - as Python's own last handler
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    connection.send(str(int(status)).encode())
    os._exit(0)


def ask(path: str, words: list[str]) -> int:
    """The exit status of the command, run with this process's streams."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        connection.connect(path)
        asked = json.dumps([words, os.getcwd(), dict(os.environ)]).encode()
        socket.send_fds(connection, [asked], [0, 1, 2])
        return int(connection.recv(16) or 1)  # nothing is said by one that was killed


@contextlib.contextmanager
def serving(path: pathlib.Path, environment: dict[str, str]) -> Iterator[pathlib.Path]:
    """While open, `path` is a server's socket."""
    # -P: the folders of tests next to this file are no packages to import.
    words = [sys.executable, "-P", __file__, str(path)]
    process = subprocess.Popen(words, env=environment, stdin=subprocess.PIPE, start_new_session=True)
    try:
        while not path.exists():
            assert process.poll() is None, "the server ended"
            time.sleep(0.02)
        yield path
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


if __name__ == "__main__":
    if sys.argv[2:]:
        raise SystemExit(ask(sys.argv[1], sys.argv[2:]))
    serve(sys.argv[1])
