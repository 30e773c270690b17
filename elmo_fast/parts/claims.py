"""Who works on what, as files in a shared folder: a claim is a file that only one process can create.

A claim saves work, and nothing depends on it: two processes that take one part write the same vectors, and the first
folder of them stays. So a claim that is cleared by mistake costs time alone.
"""

import contextlib
import itertools
import json
import os
import pathlib
import shutil
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from typing import Any

CLAIMS = ".claims"
# Seconds between two signs of life, and after how many without one a process of another machine is given up. Longer
# than network file systems cache a file (60 s).
BEAT, PATIENCE = 15.0, 120.0
WAITING = 0.5  # seconds between two looks at what others do


def looks() -> Iterator[None]:
    """Sleeps before each value: at first briefly, so that nobody waits long for what takes little time."""
    for seconds in itertools.chain((0.01, 0.02, 0.05, 0.1, 0.2), itertools.repeat(WAITING)):
        time.sleep(seconds)
        yield


def _system() -> str:
    """This machine since it started, and the numbers of processes that hold here; "" where that is unknown."""
    try:
        if os.readlink("/proc/self") != str(os.getpid()):  # a container that sees the processes of its machine
            return ""
        boot = pathlib.Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""


def _began(process: int) -> str | None:
    """When a process of this machine started, as numbers of processes are used again; None if it has ended."""
    try:
        fields = pathlib.Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    state, *rest = fields.rpartition(")")[2].split()
    return None if state in "ZX" else rest[18]


class Claims:
    """The claims of a folder, seen by one process; its own show that it lives while this is open."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder / CLAIMS
        self._own: dict[str, dict[str, Any]] = {}
        self._seen: dict[str, tuple[bytes, float]] = {}
        self._lock, self._end = threading.Lock(), threading.Event()
        self._me = {"host": socket.gethostname(), "system": _system(), "process": os.getpid()}
        self._me["began"] = _began(os.getpid()) or ""

    def __enter__(self) -> "Claims":
        self.folder.mkdir(exist_ok=True)
        self._thread = threading.Thread(target=self._live, name="elmo_fast claims", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._end.set()
        self._thread.join()
        for name in list(self._own):
            self._release(name)
        with contextlib.suppress(OSError):  # other processes have claims
            self.folder.rmdir()

    @contextlib.contextmanager
    def claimed(self, name: str) -> Iterator[bool]:
        """Whether this process holds the claim in the block: not while another one that lives does."""
        held = self._take(name) or (self._clear_abandoned(name) and self._take(name))
        try:
            yield held
        finally:
            if held:
                self._release(name)

    def tell(self, name: str, tokens: int) -> None:
        """What is done of what this process has claimed, for the others' progress; written with the next beat."""
        with self._lock:
            self._own[name]["tokens"] = tokens

    def tokens(self) -> dict[str, int]:
        """What all processes have told of what they have claimed, by its name."""
        found: dict[str, int] = {}
        with contextlib.suppress(FileNotFoundError):
            for name in os.listdir(self.folder):
                found[name] = int(_parsed(_content(self.folder / name)).get("tokens", 0))
        with self._lock:
            return found | {name: told["tokens"] for name, told in self._own.items()}

    def remove_folder(self) -> None:
        """At the end of all work."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _take(self, name: str) -> bool:
        told = {**self._me, "mark": uuid.uuid4().hex, "beat": 0, "tokens": 0}
        path = self.folder / name
        try:
            handle = self._created(path)
        except FileExistsError:
            return False
        try:
            with open(handle, "wb") as file:
                file.write(_text(told))
        except OSError as error:
            path.unlink(missing_ok=True)  # one that says nothing keeps others waiting
            raise OSError(error.errno, error.strerror, os.fspath(path)) from error
        with self._lock:
            self._own[name] = told
        return True

    def _created(self, path: pathlib.Path) -> int:
        """The handle of a new file. A process that is done removes the folder, at any moment."""
        while True:
            self.folder.mkdir(exist_ok=True)
            with contextlib.suppress(FileNotFoundError):
                return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)

    def _release(self, name: str) -> None:
        with self._lock:
            told = self._own.pop(name)
            if self._is_ours(name, told):
                (self.folder / name).unlink(missing_ok=True)

    def _is_ours(self, name: str, told: dict[str, Any]) -> bool:
        """False for one that others gave up, perhaps because this process was stopped for a while."""
        return _parsed(_content(self.folder / name)).get("mark") == told["mark"]

    def _live(self) -> None:
        """Changes the own claims from time to time."""
        while not self._end.wait(BEAT):
            with self._lock:
                for name, told in self._own.items():
                    told["beat"] += 1
                    with contextlib.suppress(OSError):  # a disk that is full now; the others' patience is longer
                        if self._is_ours(name, told):
                            with open(self.folder / name, "r+b") as file:
                                file.write(_text(told))

    def _clear_abandoned(self, name: str) -> bool:
        """Removes the claim of a process that is gone; whether it did."""
        content = _content(self.folder / name)
        if not self._is_abandoned(name, content):
            return False
        aside = self.folder / f".{uuid.uuid4().hex}"
        with contextlib.suppress(FileNotFoundError):
            os.rename(self.folder / name, aside)
            if _content(aside) != content:  # another process was faster, and this is its new claim
                with contextlib.suppress(OSError):
                    os.link(aside, self.folder / name)
            aside.unlink(missing_ok=True)
        return True

    def _is_abandoned(self, name: str, content: bytes | None) -> bool:
        """Known at once of a process of this machine; of others, after it has not changed for as long as patience."""
        if content is None:
            return False
        owner = _parsed(content)
        if owner.get("system") and owner["system"] == self._me["system"]:
            return _began(owner.get("process", 0)) != owner.get("began")
        before, since = self._seen.get(name, (None, 0.0))
        if before != content:
            self._seen[name] = content, time.monotonic()
            return False
        return time.monotonic() - since > PATIENCE


def _text(told: dict[str, Any]) -> bytes:
    """Always of one length, so that a claim is overwritten by one write, and never seen half empty."""
    return json.dumps(told).encode().ljust(512)


def _content(path: pathlib.Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:
        return None


def _parsed(content: bytes | None) -> dict[str, Any]:
    """What a claim says; nothing while it is being written."""
    try:
        found = json.loads(content or b"{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
