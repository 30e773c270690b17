"""The plan that all processes of a folder agree on: that of the first one, which the others compare with their own."""

import dataclasses
import pathlib

import numpy as np

from elmo_fast.errors import ElmoFastError, shortened
from elmo_fast.modules import ElmoEmbedder
from elmo_fast.modules.model_digest import model_digest
from elmo_fast.modules.sentence_vectors import BATCH_SIZE, WINDOW
from elmo_fast.modules.text_embedding import text_contents
from elmo_fast.parts.claims import Claims, looks
from elmo_fast.parts.cutting import cut
from elmo_fast.parts.plan import PLAN, Making, Plan, read_plan, write_once
from elmo_fast.text import Source, SurveyedText


@dataclasses.dataclass(frozen=True)
class Settings:
    """How a text is embedded; names and values as in ElmoEmbedder.embed_file.

    part_sentences: the most of one part, a multiple of 16 times batch_size (64 if that is None); None chooses.
    """

    output_format: str = "all"
    batch_size: int | None = None
    forget_sentences: bool = False
    use_sentence_keys: bool = False
    file_format: str = "hdf5"
    dtype: str = "float32"
    max_tokens: int | None = None
    part_sentences: int | None = None

    @property
    def window(self) -> int:
        """How many sentences are sorted by length together."""
        return WINDOW * (self.batch_size or BATCH_SIZE)


def agreed_plan(
    folder: pathlib.Path, claims: Claims, embedder: ElmoEmbedder, source: Source, settings: Settings, processes: int
) -> Plan:
    """The folder's plan, made by whichever process is the first.

    Raises ElmoFastError if it is of another model or setting, or as `cut` does.
    """
    ours, waiting = _making(embedder, source, settings), looks()
    while not (folder / PLAN).exists():
        with claims.claimed("plan") as held:
            if held and not (folder / PLAN).exists():
                write_once(folder, _new_plan(ours, embedder, source, settings, processes))
        if not held:
            next(waiting)
    plan, asked = read_plan(folder), settings.part_sentences
    _check_same_making(folder, plan, ours, embedder.model_name)
    if asked not in (None, plan.part_sentences):
        raise ElmoFastError(
            f"{folder / PLAN}: the parts of this folder are of {plan.part_sentences} {plan.unit}s, here {asked} are "
            "wanted; give that number, or another output folder"
        )
    return plan


def _new_plan(making: Making, embedder: ElmoEmbedder, source: Source, settings: Settings, processes: int) -> Plan:
    as_keys = making.names == "keys" and settings.file_format == "hdf5"
    each, parts = cut(source, settings.window, processes, settings.part_sentences, as_keys)
    contents = text_contents(
        SurveyedText(source.name, np.zeros(0, np.int64), [], False, source), embedder.elmo_bilm, embedder.model_name,
        settings.output_format, settings.dtype, as_keys=False, remembers=False,
    )  # fmt: skip
    return Plan(
        "elmo_fast parts", 1, source.name, source.unit, embedder.model_name, making, each,
        contents.layers, contents.width, contents.metadata, parts,
    )  # fmt: skip


def _making(embedder: ElmoEmbedder, source: Source, settings: Settings) -> Making:
    names = "keys" if settings.use_sentence_keys or source.keyed else "none" if settings.forget_sentences else "lines"
    return Making(
        model_sha256=model_digest(embedder.elmo_bilm),
        layers=settings.output_format,
        precision=embedder.elmo_bilm._elmo_lstm.precision,
        stateful=embedder.elmo_bilm.stateful,
        dtype=settings.dtype,  # type: ignore[arg-type]
        batch_size=settings.batch_size,
        max_tokens=settings.max_tokens,
        file_format=settings.file_format,
        names=names,  # type: ignore[arg-type]
    )


def _check_same_making(folder: pathlib.Path, plan: Plan, ours: Making, model: str) -> None:
    """Raises ElmoFastError if the folder's vectors are made otherwise. model: the name of ours."""
    theirs, where = plan.making, folder / PLAN
    if theirs.model_sha256 != ours.model_sha256:
        raise ElmoFastError(
            f"{where}: the vectors of this folder are of another model: {shortened(plan.model)} with sha256 "
            f"{theirs.model_sha256[:16]}, here it is {shortened(model)} with {ours.model_sha256[:16]}; give another "
            "output folder"
        )
    for field in dataclasses.fields(Making):
        there, here = getattr(theirs, field.name), getattr(ours, field.name)
        if there != here:
            raise ElmoFastError(
                f"{where}: the vectors of this folder were begun with {field.name} {there}, here it is {here}; give "
                "the same options, or another output folder"
            )
