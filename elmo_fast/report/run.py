"""From settings to the page: results stay in the folder, so that a stopped report resumes."""

import dataclasses
import json
import os
import pathlib
import platform
from collections.abc import Callable
from typing import Any

import torch

import elmo_fast
from elmo_fast.checkpoints import pretrained_folder
from elmo_fast.files import replacing, sha256_of
from elmo_fast.modules import BiLM
from elmo_fast.report.neighbours import neighbours, words_asked
from elmo_fast.report.outcome import Outcome
from elmo_fast.report.page import page
from elmo_fast.report.plan import cells
from elmo_fast.report.runs import run_all
from elmo_fast.report.settings import SPLITS, ReportSettings
from elmo_fast.tasks import Example, load_bilm, model_digest, read_examples

PAGE, NUMBERS = "report.md", "report.json"


def write_report(settings: ReportSettings, report: Callable[[str], Any] = print) -> pathlib.Path:
    """Runs what is missing, writes report.md, its pictures and report.json to save_dir, and returns the page's path.

    Raises ElmoFastError if files, model or configuration do not match.
    """
    folder = pathlib.Path(settings.save_dir)
    target = settings.targets[0]
    splits = {split: read_examples(getattr(settings, name), settings.format, target) for split, name in SPLITS.items()}
    asks = "neighbours" in settings.experiments and settings.task == "tag"
    if asks:
        words_asked(splits["train"], settings)  # report a missing word before the runs, not hours later
    elif "neighbours" in settings.experiments:
        report("neighbours are skipped: sentences with one label have no tagged words")
    found = pretrained_folder(settings.model)
    # The runs need a folder, not a name on the hub; their names keep the folder that was given.
    model = settings.model if os.path.exists(settings.model) else os.fspath(found)
    runs_of = dataclasses.replace(settings, model=model)
    bilm = load_bilm(found)
    options = bilm.options
    layers = options.lstm.n_layers + 1
    plan = cells(settings, layers)
    folder.mkdir(parents=True, exist_ok=True)
    outcome = Outcome(plan, run_all(plan, runs_of, _digests(runs_of, bilm), report), settings.seeds)
    near = ""
    if asks:
        report("computing neighbours")
        near = neighbours(splits["train"], model, settings)
    facts = [*_data_facts(splits), *_model_facts(options, settings), _machine_fact(settings)]
    text = page(outcome, settings, layers, facts, near, folder)
    _write(folder / NUMBERS, json.dumps(_numbers(outcome), indent=1) + "\n")
    _write(folder / PAGE, text)
    return folder / PAGE


def _digests(settings: ReportSettings, bilm: BiLM) -> dict[str, str]:
    """Path -> digest of each file of the settings, to detect changes."""
    names = [*(getattr(settings, name) for name in SPLITS.values()), *([settings.vectors] if settings.vectors else [])]
    found = {name: sha256_of(pathlib.Path(name)) for name in names}
    return {**found, settings.model: model_digest(bilm)}


def _data_facts(splits: dict[str, list[Example]]) -> list[str]:
    counts = {
        name: (len(examples), sum(len(example.words) for example in examples)) for name, examples in splits.items()
    }
    return [f"Data: {'; '.join(f'{name} {n:,} sentences, {words:,} words' for name, (n, words) in counts.items())}."]


def _model_facts(options: Any, settings: ReportSettings) -> list[str]:
    cells_, width = options.lstm.dim, options.lstm.projection_dim
    name = pathlib.Path(settings.vectors).name if settings.vectors else ""
    base = f"static vectors ({name}), frozen" if name else "vectors learned with the task"
    return [
        f"biLM: {options.lstm.n_layers} layers of {cells_} cells projected to {width}, vectors of {2 * width}; frozen.",
        f"Task model: LSTM layers: {settings.lstm_layers}, of {settings.hidden} cells each way; words by {base}; "
        f"seeds: {settings.seeds}; {settings.train_share:.0%} of the training sentences unless stated otherwise.",
    ]


def _machine_fact(settings: ReportSettings) -> str:
    return (
        f"elmo_fast {elmo_fast.__version__}, torch {torch.__version__}, Python {platform.python_version()}, on the CPU."
    )


def _numbers(outcome: Outcome) -> list[dict[str, Any]]:
    return [
        {
            **cell._asdict(),
            "test": [outcome.results[number, seed]["test"]["f1"] for seed in range(outcome.seeds)],
            "dev": [outcome.results[number, seed]["dev"]["f1"] for seed in range(outcome.seeds)],
            "seconds": [outcome.results[number, seed]["seconds"] for seed in range(outcome.seeds)],
        }
        for number, cell in enumerate(outcome.cells)
    ]


def _write(path: pathlib.Path, text: str) -> None:
    with replacing(path) as aside:
        aside.write_text(text, encoding="utf-8")
