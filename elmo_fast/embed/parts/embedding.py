"""Embeds the parts of one process: part p of process p mod N, each a folder that appears whole by one rename."""

import contextlib
import dataclasses
import json
import os
import pathlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np

from elmo_fast._io.atomic_folder import has_files, write_folder
from elmo_fast._io.fields import changes
from elmo_fast._io.locks import prefix_of, remove_leftovers
from elmo_fast._runtime.progress import Progress
from elmo_fast._runtime.threads import prefetch
from elmo_fast.embed.embedder import ElmoEmbedder, check_formats, file_layout
from elmo_fast.embed.parts.plan import PLAN, EmbedSettings, Plan, name_of, plan_parts, read_parts, read_plan
from elmo_fast.embed.parts.vectors import MARK, NAMES, VECTORS, done_parts, read_part
from elmo_fast.embed.sentence_vectors import BATCH_SIZE, GPU_BATCH_SIZE, MOST_TOKENS
from elmo_fast.embed.token_files import FORMATS, FileLayout, check_room
from elmo_fast.errors import ElmoFastError
from elmo_fast.modules.bilm import model_digest
from elmo_fast.text import Source


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
    *,
    output_format: str = "all",
    batch_size: int | None = None,
    forget_sentences: bool = False,
    use_sentence_keys: bool = False,
    file_format: str = "hdf5",
    dtype: str = "float32",
    max_tokens: int | None = None,
    part_sentences: int | None = None,
    progress: Progress | None = None,
    say: Callable[[str], None] | None = None,
) -> Written:
    """Write this process's share of a text's vectors as parts of a folder; existing parts stay.

    Process i of N writes the parts i, i + N, i + 2N, ... and returns; others may run at any time. Run again, with any
    number of processes, it writes what is missing.

    Args:
        embedder: the model, without carried state.
        source: the text, the same for all processes.
        folder: on a disk that all processes share; created if it does not exist.
        share: the number of this process, from 0, and of all.
        part_sentences: the most of one part, a multiple of 16 times batch_size; None chooses.
        progress: called with the tokens done, and those of all parts that this process is to write.
        say: takes a line about what this process found.
        output_format, batch_size, forget_sentences, use_sentence_keys, file_format, dtype, max_tokens: as in
            ElmoEmbedder.embed_file.

    Raises: ElmoFastError: carried state; another text, model or setting than the folder's; a damaged part; as
        ElmoEmbedder.embed_file. OSError: a full disk.
    """
    place, bilm = pathlib.Path(folder), embedder.elmo_bilm
    check_formats(output_format, file_format, dtype, use_sentence_keys)
    if bilm.stateful:
        raise ElmoFastError(
            f"{source.name}: a text cannot be embedded in parts with carried state, as each sentence's vectors depend "
            "on all sentences before it; leave out --stateful (stateful=True)"
        )
    if place.exists() and not place.is_dir():
        raise ElmoFastError(f"{place}: is a file; several processes write a folder of parts: give another output")
    others = [name for name in (os.listdir(place) if place.exists() else ()) if not name.startswith(".")]
    if others and not has_files(place, PLAN):
        raise ElmoFastError(f"{place}: holds {others[0]!r} and no {PLAN}; give an empty or a new output folder")
    on_cpu = next(bilm.parameters()).device.type == "cpu"
    making = EmbedSettings(
        model_sha256=model_digest(bilm),
        layers=output_format,
        precision=bilm.arithmetic,
        stateful=bilm.stateful,
        dtype=dtype,  # type: ignore[arg-type]
        batch_size=batch_size or (BATCH_SIZE if on_cpu else GPU_BATCH_SIZE),
        max_tokens=max_tokens if on_cpu or batch_size is not None else max_tokens or MOST_TOKENS,
        file_format=file_format,
        names="keys" if use_sentence_keys or source.keyed else "none" if forget_sentences else "lines",
    )
    if not (place / PLAN).exists():
        as_keys = making.names == "keys" and file_format == "hdf5"
        each, parts = plan_parts(source, making.window, share[1], part_sentences, as_keys)
        layout = file_layout(embedder, np.zeros(0, np.int64), output_format, dtype)
        new = Plan(
            "elmo_fast parts", 1, source.name, source.unit, embedder.model_name, making, each,
            layout.layers, layout.width, layout.metadata, parts,
        )  # fmt: skip
        place.parent.mkdir(parents=True, exist_ok=True)
        with write_folder(place, replace=False) as written:  # the plan of whichever process was first stands
            (written / PLAN).write_text(json.dumps(dataclasses.asdict(new), indent=1) + "\n", encoding="utf-8")
    plan = read_plan(place)
    before, now = (dataclasses.asdict(each) for each in (plan.making, making))
    if part_sentences is not None:
        before["part_lines"], now["part_lines"] = plan.part_sentences, part_sentences
    if changed := changes(before, now):
        raise ElmoFastError(
            f"{place / PLAN}: the vectors of this folder were begun with another model or other options "
            f"({'; '.join(changed)}); give the same ones, or another output folder"
        )
    names, done = [name_of(number) for number in range(len(plan.parts))], done_parts(place)
    if done:
        if say is not None:
            say(f"{place}: {len(done)} of {len(names)} parts are there")
        for number, _ in enumerate(read_parts(source, plan, range(len(names)))):
            if names[number] in done:
                read_part(place, plan, number)
    own_parts = [number for number in range(share[0], len(names), share[1]) if names[number] not in done]
    with ThreadPoolExecutor(1, "elmo_fast part") as background:
        embedded = _embedded(embedder, source, place, plan, own_parts, progress)
        # While a part is embedded, the one before is digested, flushed and renamed.
        for _ in prefetch(background, contextlib.ExitStack.close, embedded):
            pass
    if done_parts(place).issuperset(names):
        # Of processes that were killed as they wrote what is there since, so that no other writes it again.
        remove_leftovers(place, ".part-")
        remove_leftovers(place.resolve().parent, prefix_of(place.resolve()))
    return Written(len(own_parts), sum(plan.parts[number].tokens for number in own_parts), len(names))


def _embedded(
    embedder: ElmoEmbedder,
    source: Source,
    folder: pathlib.Path,
    plan: Plan,
    numbers: list[int],
    progress: Progress | None,
) -> Iterator[contextlib.ExitStack]:
    """Embed the parts of these numbers; yield, for each, what puts it in its place when it is closed."""
    before, total, making = 0, sum(plan.parts[number].tokens for number in numbers), plan.making

    def reached(done: int, _: int) -> None:
        if progress is not None:
            progress(before + done, total)

    for number, text in zip(numbers, read_parts(source, plan, numbers), strict=True):
        metadata = {**plan.metadata, MARK: plan.mark(number)}
        layout = FileLayout(text.lengths, plan.depth, plan.width, np.dtype(plan.making.dtype), metadata)
        check_room(folder / name_of(number), layout.nbytes)
        with contextlib.ExitStack() as stack:
            new = stack.enter_context(write_folder(folder / name_of(number), replace=False))
            if plan.making.names != "none":
                (new / NAMES).write_text(json.dumps(text.lines), encoding="utf-8")
            write = stack.enter_context(FORMATS["safetensors"](new / VECTORS, layout))
            embedder.write_text(
                text, write, layout.dtype, making.layers, batch_size=making.batch_size, max_tokens=making.max_tokens,
                progress=reached,
            )  # fmt: skip
            yield stack.pop_all()
        before += plan.parts[number].tokens
