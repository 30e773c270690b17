"""What one of the processes does that embed a text together: it claims part after part until all are there."""

import contextlib
import dataclasses
import json
import os
import pathlib
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

import numpy as np

from elmo_fast.errors import ElmoFastError
from elmo_fast.modules import ElmoEmbedder
from elmo_fast.modules.text_embedding import check_formats
from elmo_fast.parts.agreement import Settings, agreed_plan
from elmo_fast.parts.claims import Claims, looks
from elmo_fast.parts.cutting import PartReader, order_of
from elmo_fast.parts.folder import NAMES, VECTORS, done_parts, finish, made_folder, writing_part
from elmo_fast.parts.plan import Plan, name_of
from elmo_fast.progress import Progress
from elmo_fast.text import Source
from elmo_fast.token_files import FORMATS, Contents, check_room

WORKING = 2.0  # seconds between two looks at what the others have done, while this process works


class Written(NamedTuple):
    """What this process did: parts and tokens that it wrote, parts of the text."""

    parts: int
    tokens: int
    all_parts: int


def embed_parts(
    embedder: ElmoEmbedder,
    source: Source,
    folder: str | os.PathLike[str],
    share: tuple[int, int] = (0, 1),
    settings: Settings | None = None,
    progress: Progress | None = None,
    say: Callable[[str], None] | None = None,
) -> Written:
    """Writes the vectors of a text as a folder of parts, together with the other processes that do the same.

    Returns when all parts are there. Run again, it resumes: parts that are there stay.

    Args:
        embedder: the model, without carried state.
        source: the text, the same for all processes.
        folder: on a disk that all processes share; created if it does not exist.
        share: the number of this process, from 0, and of all; it decides only where this one begins.
        progress: called with the tokens that all processes have done since this one began, and those that were to do.
        say: takes a line about what this process found.

    Raises: ElmoFastError: carried state; another text, model or setting than the folder's; a damaged part; as
        ElmoEmbedder.embed_file. OSError: a full disk.
    """
    place, settings = pathlib.Path(folder), settings or Settings()
    check_formats(settings.output_format, settings.file_format, settings.dtype, settings.use_sentence_keys)
    if embedder.elmo_bilm.stateful:
        raise ElmoFastError(
            f"{source.name}: a text cannot be embedded in parts with carried state, as each sentence's vectors depend "
            "on all sentences before it; use --no_stateful (stateful=False)"
        )
    with made_folder(place), Claims(place) as claims:
        there = len(done_parts(place))
        plan = agreed_plan(place, claims, embedder, source, settings, share[1])
        reader = PartReader(source, plan, settings.window)
        if there:
            if say is not None:
                say(f"{place}: {there} of {len(plan.parts)} parts are there")
            reader.check_all()
        written = _Worker(embedder, place, share, settings, claims, plan, reader, progress).run()
        claims.remove_folder()
    return written


@dataclasses.dataclass
class _Worker:
    embedder: ElmoEmbedder
    folder: pathlib.Path
    share: tuple[int, int]
    settings: Settings
    claims: Claims
    plan: Plan
    reader: PartReader
    progress: Progress | None
    looked: float = 0.0

    def run(self) -> Written:
        """Embeds parts until all are there, its own and those of processes that died."""
        waiting, mine, self.before = looks(), list[int](), self._tokens({})
        with ThreadPoolExecutor(1, "elmo_fast part") as beside:
            # While a part is embedded, the one before it is digested, flushed to the disk and renamed.
            closing: Future[None] | None = None
            while pending := self._pending():
                before, closing = closing, None
                others = pending if before is None else [number for number in pending if number != mine[-1]]
                if (embedded := self._embed_one(others)) is not None:
                    mine.append(embedded[0])
                    closing = beside.submit(embedded[1].close)
                if before is not None:
                    before.result()
                elif closing is None:
                    next(waiting)
                self._show()
        self.looked = 0.0
        self._show()
        finish(self.folder, len(self.plan.parts))
        return Written(len(mine), sum(self.plan.parts[number].tokens for number in mine), len(self.plan.parts))

    def _pending(self) -> list[int]:
        """The parts that are not there, in this process's order."""
        there = done_parts(self.folder)
        return [number for number in order_of(self.plan.parts, self.share) if name_of(number) not in there]

    def _embed_one(self, pending: Sequence[int]) -> tuple[int, contextlib.ExitStack] | None:
        """Embeds the first part that no other process works on: its number, and what puts it in its place when closed.

        None where there is no such part.
        """
        for number in pending:
            with contextlib.ExitStack() as stack:
                held = stack.enter_context(self.claims.claimed(name_of(number)))
                if held and not (self.folder / name_of(number)).exists():
                    self._embed(number, stack)
                    return number, stack.pop_all()
        return None

    def _embed(self, number: int, stack: contextlib.ExitStack) -> None:
        text, settings, plan = self.reader.read(number), self.settings, self.plan
        contents = Contents(text.lengths, plan.depth, plan.width, np.dtype(plan.making.dtype), plan.metadata)
        check_room(self.folder / name_of(number), contents.nbytes)

        def told(done: int, total: int) -> None:
            self.claims.tell(name_of(number), done)
            self._show()

        new = stack.enter_context(writing_part(self.folder, number))
        if plan.making.names != "none":
            (new / NAMES).write_text(json.dumps(text.lines), encoding="utf-8")
        write = stack.enter_context(FORMATS["safetensors"](new / VECTORS, contents))
        self.embedder.write_text(
            text, write, contents.dtype, settings.output_format, settings.batch_size, settings.max_tokens, told
        )

    def _show(self) -> None:
        """Tells the progress of all processes."""
        if self.progress is not None and time.monotonic() - self.looked >= WORKING:
            self.looked = time.monotonic()
            total = sum(part.tokens for part in self.plan.parts)
            if total > self.before:  # else there was nothing to do
                claimed = self.claims.tokens()  # first: a part that is renamed meanwhile counts as one that is there
                self.progress(self._tokens(claimed) - self.before, total - self.before)

    def _tokens(self, claimed: Mapping[str, int]) -> int:
        """Of the parts that are there, and of what is done of those that are claimed."""
        there, parts = done_parts(self.folder), {name_of(n): part.tokens for n, part in enumerate(self.plan.parts)}
        return sum(tokens if name in there else claimed.get(name, 0) for name, tokens in parts.items())
