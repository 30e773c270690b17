"""How a text is cut into parts, and what its vectors are computed with: parts.json, which the first process writes."""

import dataclasses
import hashlib
import json
import math
import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Literal

import numpy as np

from elmo_fast._io.atomic_folder import has_files, read_folder
from elmo_fast._io.fields import read_json
from elmo_fast.errors import CheckpointError, ElmoFastError
from elmo_fast.text import ScannedText, Source
from elmo_fast.text.sources import Sentence, valid_sentences

PLAN = "parts.json"
# Parts of each process, so that little is done again when one is killed, and the longest part in windows.
PARTS_EACH, MOST_WINDOWS = 8, 16


@dataclasses.dataclass
class Part:
    """Sentences of a text that are embedded together.

    first: the number of the first one, from 0; sha256: of their tokens and names (`digest`).
    """

    first: int
    sentences: int = dataclasses.field(metadata={"within": "above 0"})
    tokens: int
    sha256: str

    @property
    def end(self) -> int:
        """Number of the sentence behind the last one."""
        return self.first + self.sentences


@dataclasses.dataclass
class EmbedSettings:
    """What the vectors of a text depend on besides its sentences, and how they are stored.

    layers: "all", "top" or "average"; file_format: of the file that merging gives; names: what that file calls the
    sentences: "lines" in sentence_to_index, "keys" as names of datasets, or "none".
    """

    model_sha256: str
    layers: str
    precision: str
    stateful: bool
    dtype: Literal["float32", "float16"]
    batch_size: int
    max_tokens: int | None
    file_format: str
    names: Literal["lines", "keys", "none"]

    @property
    def window(self) -> int:
        """Number of sentences that are sorted by length together."""
        from elmo_fast.embed.sentence_vectors import WINDOW  # needs torch, which those who read vectors do without

        return WINDOW * self.batch_size


@dataclasses.dataclass
class Plan:
    """The content of parts.json.

    text, unit: the source's name, and what its sentences are called; model: its name; depth: number of layers, 0 for a
    single one without an axis of its own; width: 2D; metadata: of the merged file.
    """

    format: Literal["elmo_fast parts"]
    version: Literal[1]
    text: str
    unit: str
    model: str
    making: EmbedSettings
    part_sentences: int = dataclasses.field(metadata={"within": "above 0"})
    depth: int = dataclasses.field(metadata={"within": "0 or more"})
    width: int = dataclasses.field(metadata={"within": "above 0"})
    metadata: dict[str, str]
    parts: list[Part]

    def __post_init__(self) -> None:
        if [part.first for part in self.parts] != [0, *(part.end for part in self.parts[:-1])]:
            raise CheckpointError("parts: wanted one or more, each from where the one before it ends")

    @property
    def sentences(self) -> int:
        """Sentences of the whole text."""
        return self.parts[-1].end

    def range_of(self, number: int) -> str:
        """Return a part's place in the text, for messages: "lines 1 to 1024"."""
        part = self.parts[number]
        return f"{self.unit}s {part.first + 1} to {part.end}"

    def mark(self, number: int) -> str:
        """Return the digest of what a part's vectors are of, which its file holds."""
        described = [dataclasses.asdict(self.making), dataclasses.asdict(self.parts[number])]
        return hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()


def name_of(number: int) -> str:
    """Return the folder of a part."""
    return f"part-{number:05d}"


def read_plan(folder: str | os.PathLike[str]) -> Plan:
    """Return the plan of a folder of parts. Raises ElmoFastError if there is none; CheckpointError if it is damaged."""
    if not has_files(folder, PLAN):
        raise ElmoFastError(
            f"{folder}: no folder of parts, as there is no {PLAN}; `elmo-fast embed` in parts makes one"
        )
    return read_folder(folder, [PLAN], lambda place: read_json(place / PLAN, Plan))


def plan_parts(
    source: Source, window: int, processes: int, part_sentences: int | None, as_keys: bool
) -> tuple[int, list[Part]]:
    """Read all sentences once: how many a part has at most, and the parts, all of one size but the last.

    window: sentences of which each part has a multiple; processes: number that share the parts; part_sentences: None
    chooses; as_keys: whether the names of the sentences must be names of datasets.

    Raises ElmoFastError as `scan` does, or if part_sentences is no multiple of the window.
    """
    if part_sentences is not None and (part_sentences < 1 or part_sentences % window):
        raise ElmoFastError(
            f"part_lines, the sentences of a part, must be a multiple of {window}: 16 batches, which are sorted by "
            f"length together; got {part_sentences}"
        )
    windows, sentences = list[tuple[int, int, bytes]](), valid_sentences(source, as_keys)
    while chunk := list(islice(sentences, window)):
        windows.append((len(chunk), sum(len(sentence.tokens) for sentence in chunk), _digest(chunk)))
    each = min(math.ceil(len(windows) / (PARTS_EACH * processes)), MOST_WINDOWS)
    if part_sentences is not None:
        each = part_sentences // window
    parts, first = [], 0
    for start in range(0, len(windows), each):
        counts, tokens, digests = zip(*windows[start : start + each], strict=True)
        parts.append(Part(first, sum(counts), sum(tokens), hashlib.sha256(b"".join(digests)).hexdigest()))
        first += sum(counts)
    return each * window, parts


def digest(sentences: Sequence[Sentence], window: int) -> str:
    """Return the sha256 of a part: of the digests of its windows, which are of tokens and names."""
    chunks = (sentences[start : start + window] for start in range(0, len(sentences), window))
    return hashlib.sha256(b"".join(map(_digest, chunks))).hexdigest()


def _digest(sentences: Iterable[Sentence]) -> bytes:
    # Separators that stand in no token, so that no two texts give the same bytes.
    joined = "".join(f"{chr(31).join(tokens)}\x1e{name}\x1d" for tokens, name in sentences)
    return hashlib.sha256(joined.encode("utf-8", "surrogatepass")).digest()


class _PartOfText(Source):
    """Sentences in memory, whose places are those in the whole text."""

    def __init__(self, whole: Source, first: int, sentences: Sequence[Sentence]) -> None:
        self.name, self.unit = whole.name, whole.unit
        self._whole, self._first, self._sentences = whole, first, sentences

    def sentences(self) -> Iterator[Sentence]:
        return iter(self._sentences)

    def place(self, index: int) -> str:
        return self._whole.place(self._first + index)


def read_parts(source: Source, plan: Plan, numbers: Sequence[int]) -> Iterator[ScannedText]:
    """Yield the parts of these numbers, which rise, each as a text in memory; ElmoFastError if they differ."""
    other = (
        f"of the text that the output folder's {PLAN} was made of ({plan.text}); give that text, or another output "
        "folder"
    )
    sentences, at = source.sentences(), 0
    for number in numbers:
        part = plan.parts[number]
        own = list(islice(sentences, part.first - at, part.end - at))
        at = part.end
        if len(own) != part.sentences or digest(own, plan.making.window) != part.sha256:
            raise ElmoFastError(f"{source.name}: {plan.range_of(number)} differ from those {other}")
        if part.end == plan.sentences and next(sentences, None) is not None:
            raise ElmoFastError(f"{source.name}: there are more {plan.unit}s than the {plan.sentences} {other}")
        lengths = np.array([len(sentence.tokens) for sentence in own], np.int64)
        yield ScannedText(lengths, [each.name for each in own], _PartOfText(source, part.first, own))
