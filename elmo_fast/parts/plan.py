"""parts.json: how a text is cut into parts, and what its vectors are made with. Written once, by the first process."""

import contextlib
import dataclasses
import json
import os
import pathlib
from typing import Literal

from elmo_fast.errors import ElmoFastError
from elmo_fast.files import flush
from elmo_fast.json_files import read_json
from elmo_fast.workplace import workplace

PLAN = "parts.json"


@dataclasses.dataclass
class Part:
    """Sentences of a text that are embedded together.

    first: the number of the first one, from 0; sha256: of their tokens and names (`cutting.digest`).
    """

    first: int
    sentences: int
    tokens: int
    sha256: str

    @property
    def end(self) -> int:
        """The number of the sentence behind the last one."""
        return self.first + self.sentences


@dataclasses.dataclass
class Making:
    """What the vectors of a text depend on besides its sentences, and how they are kept.

    layers: "all", "top" or "average"; file_format: of the file that merging gives; names: what that file calls the
    sentences: "lines" in sentence_to_index, "keys" as names of datasets, or "none".
    """

    model_sha256: str
    layers: str
    precision: str
    stateful: bool
    dtype: Literal["float32", "float16"]
    batch_size: int | None
    max_tokens: int | None
    file_format: str
    names: Literal["lines", "keys", "none"]


@dataclasses.dataclass
class Plan:
    """The content of parts.json.

    text, unit: the source's name, and what its sentences are called; model: its name; depth: number of layers kept, 0
    for a single one without an axis of its own; width: 2D; metadata: of the merged file.
    """

    format: Literal["elmo_fast parts"]
    version: Literal[1]
    text: str
    unit: str
    model: str
    making: Making
    part_sentences: int
    depth: int
    width: int
    metadata: dict[str, str]
    parts: list[Part]

    @property
    def sentences(self) -> int:
        """Of the whole text."""
        return self.parts[-1].end

    def range_of(self, number: int) -> str:
        """A part's place in the text, for messages: "lines 1 to 1024"."""
        part = self.parts[number]
        return f"{self.unit}s {part.first + 1} to {part.end}"


def name_of(number: int) -> str:
    """The folder of a part."""
    return f"part-{number:05d}"


def read_plan(folder: str | os.PathLike[str]) -> Plan:
    """The plan of a folder of parts. Raises ElmoFastError if there is none; CheckpointError if it is damaged."""
    path = pathlib.Path(folder) / PLAN
    if not path.is_file():
        raise ElmoFastError(
            f"{os.fspath(folder)}: no folder of parts, as there is no {PLAN}; `elmo-fast embed` in parts makes one"
        )
    return read_json(path, Plan)


def write_once(folder: pathlib.Path, plan: Plan) -> None:
    """Writes the plan unless another process has written one meanwhile; that one then stands."""
    target = folder / PLAN
    with workplace(target) as work:
        (work / PLAN).write_text(json.dumps(dataclasses.asdict(plan), indent=1) + "\n", encoding="utf-8")
        flush(work / PLAN)
        try:
            # A link does not replace what is there, whoever was first.
            os.link(work / PLAN, target)
        except FileExistsError:
            return
        except OSError:  # a file system without links
            with contextlib.suppress(FileExistsError):
                if not target.exists():
                    os.replace(work / PLAN, target)
        flush(folder)
