"""The runs that a report needs: a cell of a table is one setting of the task, trained once per seed."""

import hashlib
import json
from typing import Any, NamedTuple

from elmo_fast.report.settings import SPLITS, ReportSettings
from elmo_fast.tasks import TaskConfig

BASELINE = {"elmo": "none"}
INPUT = {"elmo": "input", "layer": "mix"}


class Cell(NamedTuple):
    """A setting and its place in the tables.

    experiment: of settings.EXPERIMENTS; target: the column of labels, None for the default; label: the row's name;
    changes: what it changes in the task's configuration.
    """

    experiment: str
    target: str | None
    label: str
    changes: dict[str, Any]


def cells(settings: ReportSettings, layers: int) -> list[Cell]:
    """Every cell of the report's tables, for a biLM with `layers` layers, including the characters."""
    found = []
    for target in settings.targets:
        for experiment, make in _ROWS.items():
            if experiment in settings.experiments:
                found += [Cell(experiment, target, label, changes) for label, changes in make(settings, layers)]
    return found


def _help(settings: ReportSettings, layers: int) -> list[tuple[str, dict[str, Any]]]:
    return [("baseline", BASELINE), ("+ ELMo", {**INPUT, "mix_l2": settings.small_l2})]


def _regularisation(settings: ReportSettings, layers: int) -> list[tuple[str, dict[str, Any]]]:
    return [
        ("baseline", BASELINE),
        ("last layer only", {"elmo": "input", "layer": "top"}),
        (f"all layers, λ = {settings.large_l2:g}", {**INPUT, "mix_l2": settings.large_l2}),
        (f"all layers, λ = {settings.small_l2:g}", {**INPUT, "mix_l2": settings.small_l2}),
    ]


def _placement(settings: ReportSettings, layers: int) -> list[tuple[str, dict[str, Any]]]:
    places = {"input": "input only", "both": "input and output", "output": "output only"}
    return [(label, {**INPUT, "elmo": place, "mix_l2": settings.small_l2}) for place, label in places.items()]


def _layers(settings: ReportSettings, layers: int) -> list[tuple[str, dict[str, Any]]]:
    alone = {"elmo": "input", "lstm_layers": 0, "vectors": None, "word_dim": 0}
    rows: list[tuple[str, dict[str, Any]]] = [(layer_name(k), {**alone, "layer": k}) for k in range(layers)]
    return [*rows, ("all, mixed", {**alone, "layer": "mix", "mix_l2": settings.small_l2})]


def _share(settings: ReportSettings, layers: int) -> list[tuple[str, dict[str, Any]]]:
    return [
        (f"{label} {share:g}", {**changes, "train_share": share})
        for share in settings.shares
        for label, changes in _help(settings, layers)
    ]


_ROWS = {
    "help": _help,
    "regularisation": _regularisation,
    "placement": _placement,
    "layers": _layers,
    "share": _share,
}


def layer_name(number: int) -> str:
    """A layer's name as tables and pictures show it."""
    return "characters" if number == 0 else f"LSTM {number}"


def config_of(cell: Cell, seed: int, settings: ReportSettings) -> TaskConfig:
    """The configuration of one run of a cell; `key_of` determines its folder."""
    values: dict[str, Any] = {
        **{name: getattr(settings, name) for name in SPLITS.values()},
        **{name: getattr(settings, name) for name in ("task", "format", "vectors", "dropout", "elmo_dropout")},
        **{name: getattr(settings, name) for name in ("hidden", "lstm_layers", "epochs", "patience", "batch_size")},
        "learning_rate": settings.learning_rate,
        "train_share": settings.train_share,
        "model": settings.model,
        "column": cell.target,
        "seed": seed,
        **cell.changes,
    }
    if values["elmo"] == "none":
        values["model"] = None
    return TaskConfig(**values)


def key_of(config: TaskConfig, digests: dict[str, str]) -> str:
    """A name for a run: a digest of its configuration and its files, so that any change causes a new run."""
    values = {
        name: value
        for name, value in config.flat().items()
        if name not in ("save_dir", "cache_dir", "threads", "resume")
    }
    files = {name: digests[value] for name, value in values.items() if isinstance(value, str) and value in digests}
    return hashlib.sha256(json.dumps([values, files], sort_keys=True).encode()).hexdigest()[:16]
