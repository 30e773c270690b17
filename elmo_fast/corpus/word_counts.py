"""The distinct words of many files and how often each occurs, counted piece by piece in several processes."""

import contextlib
import multiprocessing
import os
import pathlib
import signal
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import Connection
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from elmo_fast.corpus.pieces import LINE_END, Ids, Piece, numbered, numbering, pieces_matching
from elmo_fast.errors import ElmoFastError, check_counts
from elmo_fast.threads import processors

In = TypeVar("In")
Out = TypeVar("Out")


def in_turn(
    function: Callable[[In], Out], tasks: Sequence[In], processes: int | None, most: int
) -> Generator[Out, None, None]:
    """Yields function(task) in the order of the tasks; an exception in a task is raised here and ends the processes.

    function: at the top level of a module that does not import torch; processes: None uses all cores; most: how many
    are worth starting. With one process or one task, no child is started.

    Raises ElmoFastError if a process is killed.
    """
    check_counts(processes=processes)
    count = min(len(processors()) if processes is None else processes, len(tasks), most)
    if count < 2:
        yield from map(function, tasks)
        return
    # New interpreters, not copies of this one, whose torch may hold threads and locks. They hold the reading end of a
    # pipe and nobody but this process the writing one: when it is closed, by an error or by this process's death, they
    # end at once.
    context = multiprocessing.get_context("spawn")
    alive, hold = context.Pipe(duplex=False)
    with contextlib.closing(alive), contextlib.closing(hold):
        executor = ProcessPoolExecutor(count, context, _begin, (alive,))
        try:
            yield from executor.map(function, tasks)
            executor.shutdown()
        except BrokenProcessPool as error:
            raise ElmoFastError(
                f"one of {count} processes was killed, perhaps because memory ran out; use fewer --processes"
            ) from error
        finally:
            hold.close()
            executor.shutdown(cancel_futures=True)


def _begin(alive: Connection) -> None:
    """Runs in a new process: leaves Ctrl-C to the parent, and ends when the parent ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with, args=(alive,), daemon=True).start()


def _end_with(alive: Connection) -> None:
    with contextlib.suppress(EOFError, OSError):
        alive.recv_bytes()
    os._exit(1)


# Called with the bytes done, the total bytes, and the words so far.
TextProgress = Callable[[int, int, int], None]
# The amount of text that is read while a process starts.
BYTES_PER_PROCESS = 1 << 24


class Task(NamedTuple):
    """A piece to read, and where to write the results: `stem`.words, .counts and, with keep_ids, .ids."""

    piece: Piece
    stem: str
    keep_ids: bool
    tokenizer: str | None


def count_piece(task: Task) -> int:
    """Reads a piece and writes its words, their counts and the numbers of its text; returns its number of words."""
    numbers = numbering(LINE_END)
    counts = np.zeros(1, np.int64)
    with open(f"{task.stem}.ids", "wb") if task.keep_ids else contextlib.nullcontext() as file:
        for ids in numbered(task.piece, numbers, task.tokenizer):
            found = np.bincount(ids, minlength=len(numbers))
            found[: len(counts)] += counts
            counts = found
            if file is not None:
                file.write(ids.data)
    words = list(numbers)[1:]
    pathlib.Path(f"{task.stem}.words").write_bytes("\n".join(words).encode())
    pathlib.Path(f"{task.stem}.counts").write_bytes(counts[1:].data)
    return int(counts[1:].sum())


class Types:
    """The distinct words of the pieces read so far, and their counts."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = numbering(None)
        self._counts = np.zeros(1 << 16, np.int64)

    def add(self, stem: str) -> Ids:
        """Merges what `count_piece` wrote; returns the number here, from 1, of each number there, 0 first."""
        data = pathlib.Path(f"{stem}.words").read_bytes().decode()
        words = data.split("\n") if data else []
        numbers = np.fromiter(map(self.numbers.__getitem__, words), np.uint32, len(words))
        if len(self.numbers) > len(self._counts):
            self._counts = np.concatenate([self._counts, np.zeros(len(self.numbers), np.int64)])
        self._counts[numbers] += np.frombuffer(pathlib.Path(f"{stem}.counts").read_bytes(), np.int64)
        return np.concatenate([np.zeros(1, np.uint32), numbers])

    @property
    def words(self) -> list[str]:
        """The words, in the order of their numbers."""
        return list(self.numbers)[1:]

    @property
    def counts(self) -> npt.NDArray[np.int64]:
        """How often each word occurs, in the same order."""
        return self._counts[1 : len(self.numbers)]


def read_pieces(
    pieces: list[Piece],
    work: pathlib.Path,
    processes: int | None,
    progress: TextProgress | None,
    *,
    keep_ids: bool,
    tokenizer: str | None = None,
) -> tuple[Types, list[str]]:
    """Counts all pieces; returns their types and the file stem of each piece in the folder `work`.

    With keep_ids, each piece also has .ids and .map, the result of `Types.add`.
    """
    types = Types()
    tasks = [Task(piece, os.fspath(work / f"{index:06d}"), keep_ids, tokenizer) for index, piece in enumerate(pieces)]
    total = sum(piece.end - piece.begin for piece in pieces)
    done = words = 0
    # Always closed here: no process may write into the folder while it is removed.
    with contextlib.closing(in_turn(count_piece, tasks, processes, total // BYTES_PER_PROCESS + 1)) as counts:
        for task, count in zip(tasks, counts, strict=True):
            numbers = types.add(task.stem)
            if keep_ids:
                pathlib.Path(f"{task.stem}.map").write_bytes(numbers.data)
            done, words = done + task.piece.end - task.piece.begin, words + count
            if progress is not None:
                progress(done, total, words)
    return types, [task.stem for task in tasks]


def count_words_of(
    pattern: str, processes: int | None = 1, progress: TextProgress | None = None, tokenizer: str | None = None
) -> Counter[str]:
    """Count the words of the files that `pattern` names.

    Raises ElmoFastError and OSError as `read_corpus` does.
    """
    with pieces_matching(pattern) as pieces, tempfile.TemporaryDirectory(prefix="elmo-fast-") as work:
        types, _ = read_pieces(pieces, pathlib.Path(work), processes, progress, keep_ids=False, tokenizer=tokenizer)
    if not types.words:
        raise ElmoFastError(f"{pattern}: it contains no words; every line is blank")
    return Counter(dict(zip(types.words, types.counts.tolist(), strict=True)))
