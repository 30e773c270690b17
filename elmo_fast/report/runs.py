"""Runs the plan, several runs at a time if requested; a run that is complete in the folder is read, not repeated."""

import concurrent.futures
import dataclasses
import multiprocessing
import os
import pathlib
import time
from collections.abc import Callable
from typing import Any, TypedDict

from elmo_fast.durations import duration
from elmo_fast.errors import CheckpointError, ElmoFastError
from elmo_fast.json_files import read_json
from elmo_fast.manifest import check_written
from elmo_fast.report.plan import Cell, config_of, key_of
from elmo_fast.report.settings import ReportSettings
from elmo_fast.tasks import TaskConfig

RESULTS = "results.json"


class _Scores(TypedDict):
    f1: float
    spans: bool


class _Told(TypedDict):
    """The part of a run's results.json that is read."""

    dev: _Scores
    test: _Scores
    seconds: float
    mix_weights: dict[str, list[float]]


Results = dict[tuple[int, int], dict[str, Any]]
"""(number of the cell, seed) -> the run's results.json."""


def run_all(
    cells: list[Cell], settings: ReportSettings, digests: dict[str, str], report: Callable[[str], Any]
) -> Results:
    """Runs every cell with every seed; equal settings in different tables run once."""
    folder = pathlib.Path(settings.save_dir)
    places, configs = {}, {}
    for number, cell in enumerate(cells):
        for seed in range(settings.seeds):
            config = config_of(cell, seed, settings)
            key = key_of(config, digests)
            save_dir = str(folder / "runs" / key)
            configs[key] = dataclasses.replace(config, save_dir=save_dir, cache_dir=str(folder / "cache"), threads=1)
            places[number, seed] = key
    waiting = {key: config for key, config in configs.items() if not (folder / "runs" / key / RESULTS).exists()}
    report(f"runs   {len(configs)}, of which {len(configs) - len(waiting)} are in {settings.save_dir} already")
    _run(waiting, settings.processes, report)
    done = {key: _read(folder / "runs" / key) for key in configs}
    return {place: done[key] for place, key in places.items()}


def _read(folder: pathlib.Path) -> dict[str, Any]:
    """The results of a run, checked against its manifest. Raises ElmoFastError if they are damaged."""
    try:
        check_written(folder, [RESULTS])
        return {**read_json(folder / RESULTS, _Told)}
    except CheckpointError as error:
        raise ElmoFastError(f"{error}; or delete {folder} to repeat the run") from error


def _run(configs: dict[str, TaskConfig], processes: int, report: Callable[[str], Any]) -> None:
    start = time.monotonic()

    def told(number: int, name: str) -> None:
        left = (time.monotonic() - start) / number * (len(configs) - number)
        report(f"run    {number} of {len(configs)} | {name} | {duration(left)} left")

    if processes == 1:
        for number, config in enumerate(configs.values(), start=1):
            told(number, _one(config))
        return
    # One run first, alone: it computes the biLM's vectors, which the others find in the cache.
    ordered = sorted(configs.values(), key=lambda config: config.elmo == "none")
    for number, config in enumerate(ordered[:1], start=1):
        told(number, _one(config))
    with concurrent.futures.ProcessPoolExecutor(processes, multiprocessing.get_context("spawn")) as pool:
        futures = [pool.submit(_one, config) for config in ordered[1:]]
        try:
            for number, future in enumerate(concurrent.futures.as_completed(futures), start=2):
                told(number, future.result())
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise


def _one(config: TaskConfig) -> str:
    """Trains and returns a line about it. Always on one thread, in a child process or not, so that runs are equal."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    from elmo_fast.tasks import train_task

    result = train_task(config, report=lambda line: None)
    what = "baseline" if config.elmo == "none" else f"ELMo {config.elmo}, {config.layer}"
    return f"{config.column or config.task}, {what}, seed {config.seed}: {100 * result.test.f1:.2f} on test"
