"""The runs that a report needs: a cell of a table is one setting of the task, trained once per seed."""

import hashlib
import json
from typing import Any, NamedTuple

from elmo_fast.pictures.layers import layer_name
from elmo_fast.report.settings import SPLITS, ReportSettings
from elmo_fast.tasks import TaskConfig

# Settings of the report that every run has.
TASK_SETTINGS = (
    *("task", "format", "model", "prefix", "vectors", "hidden", "lstm_layers", "dropout", "elmo_dropout"),
    *("epochs", "patience", "batch_size", "learning_rate", "train_share"),
)


# Of each row of a table its label, and what it changes in the task's configuration.
Rows = list[tuple[str, dict[str, Any]]]


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
    rows = _rows(settings, layers)
    return [
        Cell(experiment, target, label, changes)
        for target in settings.targets
        for experiment in rows
        if experiment in settings.experiments
        for label, changes in rows[experiment]
    ]


def _rows(settings: ReportSettings, layers: int) -> dict[str, Rows]:
    """Of each experiment the rows of its table."""
    baseline = {"elmo": "none"}
    large = {"elmo": "input", "layer": "mix", "mix_l2": settings.large_l2}
    small = {**large, "mix_l2": settings.small_l2}
    both: Rows = [("baseline", baseline), ("+ ELMo", small)]
    alone = {"elmo": "input", "lstm_layers": 0, "vectors": None, "word_dim": 0}
    places = {"input": "input only", "both": "input and output", "output": "output only"}
    return {
        "help": both,
        "regularisation": [
            ("baseline", baseline),
            ("last layer only", {"elmo": "input", "layer": "top"}),
            (f"all layers, λ = {settings.large_l2:g}", large),
            (f"all layers, λ = {settings.small_l2:g}", small),
        ],
        "placement": [(label, {**small, "elmo": place}) for place, label in places.items()],
        "layers": [
            *((layer_name(number), {**alone, "layer": number}) for number in range(layers)),
            ("all, mixed", {**alone, "layer": "mix", "mix_l2": settings.small_l2}),
        ],
        "share": [
            (f"{label} {share:g}", {**changes, "train_share": share})
            for share in settings.shares
            for label, changes in both
        ],
    }


def config_of(cell: Cell, seed: int, settings: ReportSettings) -> TaskConfig:
    """The configuration of one run of a cell; `key_of` determines its folder."""
    values: dict[str, Any] = {
        **{name: getattr(settings, name) for name in (*SPLITS.values(), *TASK_SETTINGS)},
        "column": cell.target,
        "seed": seed,
        **cell.changes,
    }
    if values["elmo"] == "none":
        values["model"] = values["prefix"] = None
    return TaskConfig(**values)


def key_of(config: TaskConfig, digests: dict[str, str]) -> str:
    """A name for a run: a digest of its configuration and its files, so that any change causes a new run.

    The digest of the model is that of the biLM which `prefix` chooses.
    """
    values = {
        name: value
        for name, value in config.flat().items()
        if name not in ("save_dir", "cache_dir", "threads", "resume", "prefix")
    }
    files = {name: digests[value] for name, value in values.items() if isinstance(value, str) and value in digests}
    return hashlib.sha256(json.dumps([values, files], sort_keys=True).encode()).hexdigest()[:16]
