"""From settings to the page: a report that was stopped resumes.

Runs that are complete in the folder are read, not repeated.
"""

import concurrent.futures
import dataclasses
import functools
import multiprocessing
import os
import pathlib
import platform
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch

import elmo_fast
from elmo_fast._io.atomic_file import sha256_of, write_json, write_text
from elmo_fast._io.atomic_folder import has_files, read_folder
from elmo_fast._io.fields import read_json
from elmo_fast._runtime.devices import device_named
from elmo_fast._runtime.progress import duration
from elmo_fast.checkpoints import missing_model, pretrained_folder
from elmo_fast.report.neighbours import neighbours, words_asked
from elmo_fast.report.page import NUMBERS, PAGE, SETTINGS, page, unfinished
from elmo_fast.report.plan import SPLITS, Cell, ReportSettings, cells, config_of, key_of
from elmo_fast.report.senses import senses_page
from elmo_fast.tasks import Example, TaskConfig, load_bilm, model_digest, read_examples
from elmo_fast.tasks.cache import planned_caches
from elmo_fast.tasks.formats import texts_of

RESULTS, CACHE = "results.json", "cache"


def run_all(
    plan: list[Cell],
    settings: ReportSettings,
    digests: dict[str, str],
    device: torch.device,
    report: Callable[[str], Any],
    announce: Callable[[str], Any],
) -> list[Cell]:
    """Run each cell with each seed; equal settings of different tables run once. Returns the cells with their runs.

    announce: called with the folder of the biLM's layers if a run needs them.
    """
    folder = pathlib.Path(settings.save_dir)
    configs, keys = dict[str, TaskConfig](), list[list[str]]()
    for cell in plan:
        of_seeds = (config_of(cell, seed, settings) for seed in range(settings.seeds))
        of_cell = {key_of(config, digests, device.type): config for config in of_seeds}
        keys.append(list(of_cell))
        configs |= of_cell
    runs = {key: folder / "runs" / key for key in configs}
    waiting = [
        dataclasses.replace(config, save_dir=str(runs[key]), cache_dir=str(folder / CACHE), threads=1)
        for key, config in configs.items()
        if not has_files(runs[key], RESULTS)
    ]
    report(f"runs   {len(configs)}, of which {len(configs) - len(waiting)} are in {settings.save_dir} already")
    if any(config.elmo != "none" for config in waiting):
        announce(str(folder / CACHE))
    start = time.monotonic()
    for number, line in enumerate(_lines_of(waiting, settings.processes, device), start=1):
        left = (time.monotonic() - start) / number * (len(waiting) - number)
        report(f"run    {number} of {len(waiting)} | {line} | {duration(left)} left")
    advice = "delete {folder} to repeat the run"
    done = {
        key: read_folder(run, [RESULTS], lambda place: read_json(place / RESULTS, dict[str, Any]), advice)
        for key, run in runs.items()
    }
    return [cell._replace(runs=[done[key] for key in of_cell]) for cell, of_cell in zip(plan, keys, strict=True)]


def _lines_of(configs: list[TaskConfig], processes: int, device: torch.device) -> Iterator[str]:
    """Run all, so many at a time; yield a line about each when it has finished."""
    if processes == 1 or not configs:
        yield from (_one(config, device) for config in configs)
        return
    # The first one runs alone: it computes the biLM's vectors, which the others find in the cache.
    first, *others = sorted(configs, key=lambda config: config.elmo == "none")
    yield _one(first, device)
    pool = concurrent.futures.ProcessPoolExecutor(processes, multiprocessing.get_context("spawn"))
    try:
        futures = [pool.submit(_one, config, device) for config in others]
        yield from (future.result() for future in concurrent.futures.as_completed(futures))
    finally:
        pool.shutdown(cancel_futures=True)


def _one(config: TaskConfig, device: torch.device) -> str:
    """Train and return a line about it. Always on one thread, in a child process or not, so that runs are equal."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    from elmo_fast.tasks import train_task

    result = train_task(config, report=lambda line: None, device=device)
    what = "baseline" if config.elmo == "none" else f"ELMo {config.elmo}, {config.layer}"
    return f"{config.column or config.task}, {what}, seed {config.seed}: {100 * result.test.f1:.2f} on test"


def write_report(
    settings: ReportSettings, report: Callable[[str], Any] = print, *, device: torch.device | str = "cpu"
) -> pathlib.Path:
    """Run what is missing, write the page and what belongs to it to save_dir, and return the path of report.md.

    Next to it are its pictures, report.json (every score) and report.yaml (the settings, to run it again).
    device: where taggers are trained and the biLM runs.

    Raises ElmoFastError if files, model or configuration do not match.
    """
    folder, device = pathlib.Path(settings.save_dir), device_named(device)
    with torch.device("cpu"):
        bilm = load_bilm(settings.model, settings.prefix).to(device)
    lstm, width = bilm.options.lstm, bilm.options.lstm.projection_dim
    place = "the CPU" if device.type == "cpu" else torch.cuda.get_device_name(device)
    versions = f"elmo_fast {elmo_fast.__version__}, torch {torch.__version__}, Python {platform.python_version()}"
    about = [
        f"biLM: {lstm.n_layers} layers of {lstm.dim} cells projected to {width}, vectors of {2 * width}; frozen.",
        f"{versions}, on {place}.",
    ]
    if settings.task == "senses":
        return _written(folder, settings, *senses_page(settings, bilm, about, report))
    target = settings.targets[0]
    read = functools.partial(read_examples, format=settings.format, column=target, pair_column=settings.pair_column)
    splits = {split: read(getattr(settings, name)) for split, name in SPLITS.items()}
    asks = "neighbours" in settings.experiments and settings.task == "tag"
    if asks:  # a missing word is reported before the runs, not hours later
        words = words_asked(splits["train"], settings)
    elif "neighbours" in settings.experiments:
        report("neighbours are skipped: sentences with one label have no tagged words")
    model_path = pretrained_folder(settings.model)
    # The runs find a model by its path or published name, not by a name on the hub.
    model = os.fspath(model_path) if missing_model(settings.model) else settings.model
    runs_of = dataclasses.replace(settings, model=model)
    names = [getattr(settings, name) for name in (*SPLITS.values(), "vectors")]
    digests = {**{name: sha256_of(name) for name in names if name}, model: model_digest(bilm)}
    folder.mkdir(parents=True, exist_ok=True)
    whole = {split: (examples, None) for split, examples in splits.items()}
    plan = cells(settings, bilm.options.lstm.n_layers + 1)
    done = run_all(plan, runs_of, digests, device, report, lambda cache: planned_caches(bilm, whole, cache, report))
    near = ""
    if asks:
        report("computing neighbours")
        near = neighbours(words, splits["train"], model, settings, device)
    text = page(done, settings, [*_facts(splits, settings), *about], near, folder)
    numbers = []
    for cell in done:
        row = {name: getattr(cell, name) for name in ("experiment", "target", "label", "changes")}
        row |= {split: [run[split]["f1"] for run in cell.runs] for split in ("test", "dev")}
        row["spans"] = cell.runs[0]["test"]["spans"]
        numbers.append(row | {name: [run[name] for run in cell.runs] for name in ("mix_weights", "seconds")})
    path = _written(folder, settings, text, numbers)
    if sentence := unfinished(done):
        report(f"note   {sentence}")
    return path


def _written(folder: pathlib.Path, settings: ReportSettings, text: str, numbers: Any) -> pathlib.Path:
    """Write the page, its numbers and its settings; return the path of the page."""
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / NUMBERS, numbers)
    write_text(folder / SETTINGS, settings.as_yaml() + "\n")
    write_text(folder / PAGE, text)
    return folder / PAGE


def _facts(splits: dict[str, list[Example]], settings: ReportSettings) -> list[str]:
    """Return sentences about data and taggers."""
    words_in = {name: sum(map(len, texts_of(examples))) for name, examples in splits.items()}
    sizes = [f"{name} {len(splits[name]):,} sentences, {words:,} words" for name, words in words_in.items()]
    vectors = pathlib.Path(settings.vectors).name if settings.vectors else ""
    words = f"static vectors ({vectors}), frozen" if vectors else "vectors learned with the task"
    return [
        f"Data: {'; '.join(sizes)}.",
        f"Task model: LSTM layers: {settings.lstm_layers}, of {settings.hidden} cells each way; words by {words}; "
        f"seeds: {settings.seeds}; {settings.train_share:.0%} of the training sentences unless stated otherwise.",
    ]
