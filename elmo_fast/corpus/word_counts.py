"""The distinct words of many files and how often each occurs, counted piece by piece in several processes."""

import contextlib
import multiprocessing
import os
import pathlib
import signal
import threading
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import Connection
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from elmo_fast import cluster
from elmo_fast.corpus.pieces import LINE_END, Ids, Piece, numbered, numbering, pieces_matching
from elmo_fast.errors import ElmoFastError, check_counts
from elmo_fast.threads import processors

In = TypeVar("In")
Out = TypeVar("Out")


def in_turn(
    function: Callable[[In], Out], tasks: Sequence[In], processes: int | None, most: int
) -> Generator[Out, None, None]:
    """Yield function(task) in the order of the tasks; an exception in a task is raised here and ends the processes.

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
    """Run in a new process: leaves Ctrl-C to the parent, and ends when the parent ends."""
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
    """A piece to read, and the file to write its numbers to, or None."""

    piece: Piece
    ids: str | None
    tokenizer: str | None


def count_piece(task: Task) -> tuple[list[str], npt.NDArray[np.int64]]:
    """Read a piece and write the numbers of its text; return its distinct words and their counts."""
    numbers = numbering(LINE_END)
    counts = np.zeros(1, np.int64)
    with open(task.ids, "wb") if task.ids is not None else contextlib.nullcontext() as file:
        for ids in numbered(task.piece, numbers, task.tokenizer):
            more = np.bincount(ids, minlength=len(numbers))
            more[: len(counts)] += counts
            counts = more
            if file is not None:
                file.write(ids.data)
    return list(numbers)[1:], counts[1:]


class Types:
    """The distinct words of the pieces read so far, and their counts."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = numbering(None)
        self._counts = np.zeros(1 << 16, np.int64)

    def add(self, words: list[str], counts: npt.NDArray[np.int64]) -> Ids:
        """Add the words of a piece; return the number of each of them here, from 1, after a 0."""
        numbers = np.fromiter(map(self.numbers.__getitem__, words), np.uint32, len(words))
        if len(self.numbers) > len(self._counts):
            self._counts = np.concatenate([self._counts, np.zeros(len(self.numbers), np.int64)])
        self._counts[numbers] += counts
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
    processes: int | None,
    progress: TextProgress | None,
    *,
    work: pathlib.Path | None = None,
    tokenizer: str | None = None,
    ray: str | None = None,
) -> tuple[Types, list[str]]:
    """Count the words of all pieces; return their types and the file stem of each piece in the folder `work`.

    work: for the numbers of the texts, STEM.ids, and those of each piece's words among all, STEM.map; None: neither;
    ray: address of a cluster whose machines share the disk and read the pieces in place of processes here.
    """
    types = Types()
    stems = [] if work is None else [os.fspath(work / f"{index:06d}") for index in range(len(pieces))]
    tasks = [Task(piece, f"{stems[i]}.ids" if stems else None, tokenizer) for i, piece in enumerate(pieces)]
    total = sum(piece.end - piece.begin for piece in pieces)
    done = words = 0
    with contextlib.ExitStack() as stack:
        if ray is None:
            results = in_turn(count_piece, tasks, processes, total // BYTES_PER_PROCESS + 1)
        else:
            results = cluster.in_turn(stack.enter_context(cluster.connected(ray, "prepare --ray")), count_piece, tasks)
        # Always closed here: no process may write into the folder while it is removed.
        stack.enter_context(contextlib.closing(results))
        for number, (piece, result) in enumerate(zip(pieces, results, strict=True)):
            numbers = types.add(*result)
            if stems:
                pathlib.Path(f"{stems[number]}.map").write_bytes(numbers.data)
            done, words = done + piece.end - piece.begin, words + int(result[1].sum())
            if progress is not None:
                progress(done, total, words)
    return types, stems


def count_words_of(
    pattern: str, processes: int | None = 1, progress: TextProgress | None = None, tokenizer: str | None = None
) -> Counter[str]:
    """Count the words of the files that `pattern` names.

    Raises ElmoFastError and OSError as `read_corpus` does.
    """
    with pieces_matching(pattern) as pieces:
        types, _ = read_pieces(pieces, processes, progress, tokenizer=tokenizer)
    if not types.words:
        raise ElmoFastError(f"{pattern}: it contains no words; every line is blank")
    return Counter(dict(zip(types.words, types.counts.tolist(), strict=True)))
