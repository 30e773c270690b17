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


class RunResult(TypedDict):
    """The part of a run's results.json that is read."""

    dev: _Scores
    test: _Scores
    seconds: float
    mix_weights: dict[str, list[float]]


def run_all(
    cells: list[Cell], settings: ReportSettings, digests: dict[str, str], report: Callable[[str], Any]
) -> list[list[RunResult]]:
    """The results of each cell by seed; equal settings in different tables run once."""
    folder = pathlib.Path(settings.save_dir)
    configs: dict[str, TaskConfig] = {}
    keys = []
    for cell in cells:
        of_cell = {key_of(c, digests): c for c in (config_of(cell, seed, settings) for seed in range(settings.seeds))}
        keys.append(list(of_cell))
        configs |= of_cell
    runs = {key: folder / "runs" / key for key in configs}
    waiting = [
        dataclasses.replace(config, save_dir=str(runs[key]), cache_dir=str(folder / "cache"), threads=1)
        for key, config in configs.items()
        if not (runs[key] / RESULTS).exists()
    ]
    report(f"runs   {len(configs)}, of which {len(configs) - len(waiting)} are in {settings.save_dir} already")
    _run(waiting, settings.processes, report)
    done = {key: _read(run) for key, run in runs.items()}
    return [[done[key] for key in of_cell] for of_cell in keys]


def _read(folder: pathlib.Path) -> RunResult:
    """The results of a run, checked against its manifest. Raises ElmoFastError if they are damaged."""
    try:
        check_written(folder, [RESULTS])
        return read_json(folder / RESULTS, RunResult)
    except CheckpointError as error:
        raise ElmoFastError(f"{error}; or delete {folder} to repeat the run") from error


def _run(configs: list[TaskConfig], processes: int, report: Callable[[str], Any]) -> None:
    start = time.monotonic()

    def told(number: int, name: str) -> None:
        left = (time.monotonic() - start) / number * (len(configs) - number)
        report(f"run    {number} of {len(configs)} | {name} | {duration(left)} left")

    # The first one runs alone: it computes the biLM's vectors, which the others find in the cache.
    ordered = configs if processes == 1 else sorted(configs, key=lambda config: config.elmo == "none")
    alone = len(ordered) if processes == 1 else 1
    for number, config in enumerate(ordered[:alone], start=1):
        told(number, _one(config))
    if not ordered[alone:]:
        return
    with concurrent.futures.ProcessPoolExecutor(processes, multiprocessing.get_context("spawn")) as pool:
        futures = [pool.submit(_one, config) for config in ordered[alone:]]
        try:
            for number, future in enumerate(concurrent.futures.as_completed(futures), start=alone + 1):
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
