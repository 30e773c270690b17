"""The distinct words of many files and how often each occurs, counted piece by piece in several processes."""

import contextlib
import functools
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
from typing import TypeVar, Unpack

import numpy as np
import numpy.typing as npt

from elmo_fast._runtime import cluster
from elmo_fast._runtime.threads import processors
from elmo_fast.corpus.pieces import LINE_END, ChosenLines, Piece, numbered, numbering, pieces_matching
from elmo_fast.errors import ElmoFastError, check_counts
from elmo_fast.text.characters import warn_of_decomposed
from elmo_fast.text.sources import Reading

In = TypeVar("In")
Out = TypeVar("Out")


def results_in_order(
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

    def end() -> None:
        with contextlib.suppress(EOFError, OSError):
            alive.recv_bytes()
        os._exit(1)

    threading.Thread(target=end, daemon=True).start()


# Called with the bytes done, the total bytes, and the words so far.
TextProgress = Callable[[int, int, int], None]
# The amount of text that is read while a process starts.
BYTES_PER_PROCESS = 1 << 24


def count_piece(task: tuple[Piece, str | None], tokenizer: str | None) -> tuple[list[str], npt.NDArray[np.int64]]:
    """Read a piece and write the numbers of its text to the file of the task; return its words and their counts."""
    piece, path = task
    numbers = numbering(LINE_END)
    counts = np.zeros(1, np.int64)
    with open(path, "wb") if path is not None else contextlib.nullcontext() as file:
        for ids in numbered(piece, numbers, tokenizer):
            more = np.bincount(ids, minlength=len(numbers))
            more[: len(counts)] += counts
            counts = more
            if file is not None:
                file.write(ids.data)
    return list(numbers)[1:], counts[1:]


def read_pieces(
    pattern: str,
    pieces: list[Piece],
    processes: int | None,
    progress: TextProgress | None,
    *,
    work: pathlib.Path | None = None,
    tokenizer: str | None = None,
    ray: str | None = None,
) -> tuple[list[str], npt.NDArray[np.int64], list[str]]:
    """Count the words of all pieces of a pattern; return them, their counts, and the file stem of each piece in `work`.

    work: folder for the numbers of the texts, STEM.ids, and those of each piece's words among all, STEM.map; None:
    neither; ray: address of a cluster whose machines share the disk and read the pieces in place of processes here.

    Raises ElmoFastError if there is no word.
    """
    numbers: dict[str, int] = numbering(None)
    counts = np.zeros(1 << 16, np.int64)
    stems = [] if work is None else [os.fspath(work / f"{index:06d}") for index in range(len(pieces))]
    tasks = [(piece, f"{stems[i]}.ids" if stems else None) for i, piece in enumerate(pieces)]
    count = functools.partial(count_piece, tokenizer=tokenizer)
    total = sum(piece.end - piece.begin for piece in pieces)
    done = words = 0
    with contextlib.ExitStack() as stack:
        if ray is None:
            results = results_in_order(count, tasks, processes, total // BYTES_PER_PROCESS + 1)
        else:
            results = cluster.results_in_order(
                stack.enter_context(cluster.connected(ray, "prepare --ray")), count, tasks
            )
        # Always closed here: no process may write into the folder while it is removed.
        stack.enter_context(contextlib.closing(results))
        for index, (piece, (new_words, new_counts)) in enumerate(zip(pieces, results, strict=True)):
            places = np.fromiter(map(numbers.__getitem__, new_words), np.uint32, len(new_words))
            if len(numbers) > len(counts):
                counts = np.concatenate([counts, np.zeros(len(numbers), np.int64)])
            counts[places] += new_counts
            if stems:
                pathlib.Path(f"{stems[index]}.map").write_bytes(np.concatenate([np.zeros(1, np.uint32), places]).data)
            done, words = done + piece.end - piece.begin, words + int(new_counts.sum())
            if progress is not None:
                progress(done, total, words)
    if not words:
        lines, why = pieces[0].lines if pieces else ChosenLines(), "it contains no words; every line is blank"
        if lines.share:
            why = f"heldout_share {lines.share} holds out {'none' if lines.heldout else 'all'} of its lines"
        raise ElmoFastError(f"{pattern}: {why}")
    return list(numbers)[1:], counts[1 : len(numbers)], stems


def count_words_of(
    pattern: str,
    processes: int | None = 1,
    progress: TextProgress | None = None,
    tokenizer: str | None = None,
    **reading: Unpack[Reading],
) -> Counter[str]:
    """Count the words of the files that `pattern` names.

    reading: format_in, column and split of tables, as in `opened_source`. Raises ElmoFastError and OSError as
    `read_corpus` does.
    """
    with pieces_matching(pattern, **reading) as pieces:
        words, counts, _ = read_pieces(pattern, pieces, processes, progress, tokenizer=tokenizer)
    warn_of_decomposed(words)
    return Counter(dict(zip(words, counts.tolist(), strict=True)))
