"""What one of the processes does that embed a text together: it claims part after part until all are there."""

import dataclasses
import json
import os
import pathlib
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from elmo_fast.errors import ElmoFastError
from elmo_fast.modules import ElmoEmbedder
from elmo_fast.modules.model_digest import model_digest
from elmo_fast.modules.sentence_vectors import WINDOW
from elmo_fast.modules.text_embedding import check_formats, text_contents
from elmo_fast.parts.claims import Claims
from elmo_fast.parts.cutting import PartReader, cut
from elmo_fast.parts.folder import NAMES, VECTORS, done_parts, finish, made_folder, writing_part
from elmo_fast.parts.plan import PLAN, Making, Plan, check_same_making, name_of, read_plan, write_once
from elmo_fast.progress import Progress
from elmo_fast.text import Source, SurveyedText
from elmo_fast.text.sources import Sentence
from elmo_fast.token_files import FORMATS, check_room

# Seconds between two looks at what the others have done: while this process waits, and while it works.
WAITING, WORKING = 0.5, 2.0


class Share(NamedTuple):
    """This process is `number` of `processes`, from 0. That decides only where it begins."""

    number: int
    processes: int


@dataclasses.dataclass(frozen=True)
class Settings:
    """How a text is embedded; names and values as in ElmoEmbedder.embed_file.

    part_sentences: the most of one part, a multiple of 16 times batch_size; None chooses.
    """

    output_format: str = "all"
    batch_size: int = 64
    forget_sentences: bool = False
    use_sentence_keys: bool = False
    file_format: str = "hdf5"
    dtype: str = "float32"
    max_tokens: int | None = None
    part_sentences: int | None = None


class Written(NamedTuple):
    """What this process did: parts and tokens that it wrote, parts of the text."""

    parts: int
    tokens: int
    all_parts: int


def embed_parts(
    embedder: ElmoEmbedder,
    source: Source,
    folder: str | os.PathLike[str],
    share: Share = Share(0, 1),  # noqa: B008 (a tuple)
    settings: Settings | None = None,
    progress: Progress | None = None,
    say: Callable[[str], None] | None = None,
) -> Written:
    """Writes the vectors of a text as a folder of parts, together with the other processes that do the same.

    Returns when all parts are there. Run again, it resumes: parts that are there stay.

    Args:
        embedder: the model. If it carries state, the text must fit into one part.
        source: the text, the same for all processes.
        folder: on a disk that all processes share; created if it does not exist.
        share: this process among all.
        progress: called with the tokens that all processes have done since this one began, and those that were to do.
        say: takes a line about what this process found.

    Raises: ElmoFastError: another text, model or setting than the folder's, carried state and several parts; a damaged
        part; as ElmoEmbedder.embed_file. OSError: a full disk.
    """
    place, settings = pathlib.Path(folder), settings or Settings()
    check_formats(settings.output_format, settings.file_format, settings.dtype, settings.use_sentence_keys)
    with made_folder(place), Claims(place) as claims:
        there = len(done_parts(place))
        worker = _Worker(embedder, source, place, share, settings, claims, progress)
        if there:
            if say is not None:
                say(f"{place}: {there} of {len(worker.plan.parts)} parts are there")
            worker.reader.check_all()
        written = worker.run()
        claims.remove_folder()
    return written


class _Worker:
    def __init__(
        self,
        embedder: ElmoEmbedder,
        source: Source,
        folder: pathlib.Path,
        share: Share,
        settings: Settings,
        claims: Claims,
        progress: Progress | None,
    ) -> None:
        self.embedder, self.source, self.folder, self.share = embedder, source, folder, share
        self.settings, self.claims, self.progress = settings, claims, progress
        self.window = WINDOW * settings.batch_size
        self.making = making(embedder, source, settings)
        self.plan = self._agreed_plan()
        self.reader = PartReader(source, self.plan, self.window)
        self._looked, self._before = 0.0, 0

    def _agreed_plan(self) -> Plan:
        """The folder's plan, of whichever process was the first."""
        while not (self.folder / PLAN).exists():
            with self.claims.claimed("plan") as held:
                if held and not (self.folder / PLAN).exists():
                    write_once(self.folder, self._new_plan())
            time.sleep(0 if held else WAITING)
        plan, asked = read_plan(self.folder), self.settings.part_sentences
        check_same_making(self.folder, plan, self.making, self.embedder.model_name)
        if asked not in (None, plan.part_sentences):
            raise ElmoFastError(
                f"{self.folder / PLAN}: the parts of this folder are of {plan.part_sentences} {plan.unit}s, here "
                f"{asked} are wanted; give that number, or another output folder"
            )
        return plan

    def _new_plan(self) -> Plan:
        settings, source = self.settings, self.source
        as_keys = self.making.names == "keys" and settings.file_format == "hdf5"
        each, parts = cut(source, self.window, self.share.processes, settings.part_sentences, as_keys)
        if self.embedder.elmo_bilm.stateful and len(parts) > 1:
            raise ElmoFastError(
                f"{source.name}: a text in {len(parts)} parts cannot be embedded with carried state, as each "
                "sentence's vectors depend on all sentences before it; use --no_stateful (stateful=False)"
            )
        contents = self._contents(SurveyedText(source.name, np.zeros(0, np.int64), [], False, source))
        return Plan(
            "elmo_fast parts", 1, source.name, source.unit, self.embedder.model_name, self.making, each,
            contents.layers, contents.width, contents.metadata, parts,
        )  # fmt: skip

    def _contents(self, text: SurveyedText) -> Any:
        return text_contents(
            text, self.embedder.elmo_bilm, self.embedder.model_name, self.settings.output_format, self.settings.dtype,
            as_keys=False, remembers=False,
        )  # fmt: skip

    def run(self) -> Written:
        """Embeds parts until all are there, its own and those of processes that died."""
        total, mine = len(self.plan.parts), list[int]()
        pending = self._pending()
        self._before = self._done_tokens()
        while pending:
            begun = self._embed_one(pending)
            mine += begun
            if not begun:
                time.sleep(WAITING)
            self._show(0)
            pending = self._pending()
        self._looked = 0.0
        self._show(0)
        finish(self.folder, total)
        return Written(len(mine), sum(self.plan.parts[number].tokens for number in mine), total)

    def _pending(self) -> list[int]:
        """The parts that are not there, from this process's place on."""
        there, total = done_parts(self.folder), len(self.plan.parts)
        start = total * (self.share.number % self.share.processes) // self.share.processes
        order = ((start + step) % total for step in range(total))
        return [number for number in order if name_of(number) not in there]

    def _embed_one(self, pending: Sequence[int]) -> list[int]:
        """Embeds the first part that no other process works on: its number, or nothing where there is none."""
        for number in pending:
            with self.claims.claimed(name_of(number)) as held:
                if held and not (self.folder / name_of(number)).exists():
                    self._embed(number)
                    return [number]
        return []

    def _embed(self, number: int) -> None:
        sentences = self.reader.read(number)
        text = _text_of(self.source, self.plan.parts[number].first, sentences)
        contents = self._contents(text)
        check_room(self.folder / name_of(number), contents.nbytes)

        def told(done: int, total: int) -> None:
            self.claims.tell(name_of(number), done)
            self._show(done)

        settings = self.settings
        with writing_part(self.folder, number) as new:
            if self.making.names != "none":
                (new / NAMES).write_text(json.dumps([each.name for each in sentences]), encoding="utf-8")
            with FORMATS["safetensors"](new / VECTORS, contents) as write:
                self.embedder.write_text(
                    text, write, contents.dtype, settings.output_format, settings.batch_size, settings.max_tokens, told
                )

    def _show(self, own: int) -> None:
        """Tells the progress of all processes. own: tokens done of the part at hand."""
        if self.progress is not None and time.monotonic() - self._looked >= WORKING:
            self._looked = time.monotonic()
            total = sum(part.tokens for part in self.plan.parts)
            now = min(self._done_tokens() + own + self.claims.others_tokens(), total)
            if total > self._before:  # else there was nothing to do
                self.progress(max(0, now - self._before), total - self._before)

    def _done_tokens(self) -> int:
        there = done_parts(self.folder)
        return sum(part.tokens for number, part in enumerate(self.plan.parts) if name_of(number) in there)


class _PartOfText(Source):
    """Sentences that lie in memory, whose places are those in the whole text."""

    def __init__(self, whole: Source, first: int, sentences: Sequence[Sentence]) -> None:
        self.name, self.unit, self._whole, self._first, self._sentences = (
            whole.name,
            whole.unit,
            whole,
            first,
            sentences,
        )

    def sentences(self) -> Iterator[Sentence]:
        return iter(self._sentences)

    def place(self, index: int) -> str:
        return self._whole.place(self._first + index)


def _text_of(whole: Source, first: int, sentences: Sequence[Sentence]) -> SurveyedText:
    lengths = np.array([len(sentence.tokens) for sentence in sentences], np.int64)
    return SurveyedText(whole.name, lengths, None, False, _PartOfText(whole, first, sentences))


def making(embedder: ElmoEmbedder, source: Source, settings: Settings) -> Making:
    """What the vectors will depend on."""
    bilm = embedder.elmo_bilm
    return Making(
        model_sha256=model_digest(bilm),
        layers=settings.output_format,
        precision=bilm._elmo_lstm.precision,
        stateful=bilm.stateful,
        dtype=settings.dtype,  # type: ignore[arg-type]
        batch_size=settings.batch_size,
        max_tokens=settings.max_tokens,
        file_format=settings.file_format,
        names="keys"
        if settings.use_sentence_keys or source.keyed
        else "none"
        if settings.forget_sentences
        else "lines",
    )
