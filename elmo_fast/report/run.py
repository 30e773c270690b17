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
from elmo_fast.checkpoints import ElmoOptions, pretrained_folder
from elmo_fast.files import sha256_of, write_text
from elmo_fast.modules import BiLM
from elmo_fast.report.neighbours import neighbours, words_asked
from elmo_fast.report.outcome import Outcome
from elmo_fast.report.page import page
from elmo_fast.report.plan import cells
from elmo_fast.report.settings import SPLITS, ReportSettings
from elmo_fast.report.training import run_all
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
    bilm = load_bilm(found, settings.prefix)
    plan = cells(settings, bilm.options.lstm.n_layers + 1)
    folder.mkdir(parents=True, exist_ok=True)
    outcome = Outcome(plan, run_all(plan, runs_of, _digests(runs_of, bilm), report))
    near = ""
    if asks:
        report("computing neighbours")
        near = neighbours(splits["train"], model, settings)
    text = page(outcome, settings, _facts(splits, bilm.options, settings), near, folder)
    write_text(folder / NUMBERS, json.dumps(_numbers(outcome), indent=1) + "\n")
    write_text(folder / PAGE, text)
    return folder / PAGE


def _digests(settings: ReportSettings, bilm: BiLM) -> dict[str, str]:
    """Path -> digest of each file of the settings, to detect changes."""
    names = [getattr(settings, name) for name in (*SPLITS.values(), "vectors")]
    return {**{name: sha256_of(name) for name in names if name}, settings.model: model_digest(bilm)}


def _facts(splits: dict[str, list[Example]], options: ElmoOptions, settings: ReportSettings) -> list[str]:
    """Sentences about data, model and machine."""
    sizes = [
        f"{name} {len(examples):,} sentences, {sum(len(example.words) for example in examples):,} words"
        for name, examples in splits.items()
    ]
    lstm, width = options.lstm, options.lstm.projection_dim
    vectors = pathlib.Path(settings.vectors).name if settings.vectors else ""
    words = f"static vectors ({vectors}), frozen" if vectors else "vectors learned with the task"
    return [
        f"Data: {'; '.join(sizes)}.",
        f"biLM: {lstm.n_layers} layers of {lstm.dim} cells projected to {width}, vectors of {2 * width}; frozen.",
        f"Task model: LSTM layers: {settings.lstm_layers}, of {settings.hidden} cells each way; words by {words}; "
        f"seeds: {settings.seeds}; {settings.train_share:.0%} of the training sentences unless stated otherwise.",
        f"elmo_fast {elmo_fast.__version__}, torch {torch.__version__}, Python {platform.python_version()}, "
        "on the CPU.",
    ]


def _numbers(outcome: Outcome) -> list[dict[str, Any]]:
    """The content of report.json."""
    return [
        {
            **cell._asdict(),
            "test": [run["test"]["f1"] for run in runs],
            "dev": [run["dev"]["f1"] for run in runs],
            "spans": runs[0]["test"]["spans"],
            "mix_weights": [run["mix_weights"] for run in runs],
            "seconds": [run["seconds"] for run in runs],
        }
        for cell, runs in zip(outcome.cells, outcome.results, strict=True)
    ]
