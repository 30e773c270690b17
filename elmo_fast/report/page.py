"""The report as one Markdown page: every number comes from the runs."""

import dataclasses
import pathlib
from collections.abc import Sequence
from typing import Any

from elmo_fast.report import figures, tables
from elmo_fast.report.claims import HOW_JUDGED, claims
from elmo_fast.report.outcome import Outcome
from elmo_fast.report.settings import SPLITS, ReportSettings

TITLES = {
    "help": ("Does it help?", "Table 1 of the paper. The score is {metric} on the test text, in per cent."),
    "regularisation": ("All layers or the last, and the effect of λ", "Table 2 of the paper: ELMo at the input."),
    "placement": ("Where to put it", "Table 3 of the paper: ELMo beside the words, beside the LSTM's output, or both."),
    "layers": (
        "What each layer knows",
        "Tables 5 and 6 of the paper: one frozen layer and a linear classifier; no other input.",
    ),
    "share": (
        "How much data it saves",
        "Figure 1 of the paper; bands extend from the worst to the best seed. Every share has the same maximum number "
        "of passes, so a small one takes few steps, with and without ELMo.",
    ),
}


def page(outcome: Outcome, settings: ReportSettings, facts: Sequence[str], near: str, folder: pathlib.Path) -> str:
    """The page; its pictures are written to `folder`.

    facts: sentences about data, model and machine; near: the section on neighbours, or empty.
    """
    parts = ["# Does ELMo help?", *filter(None, [settings.note]), "\n".join(f"- {fact}" for fact in facts)]
    parts += ["## What agrees with the paper, and what does not", claims(outcome, settings), HOW_JUDGED]
    for experiment, (title, text) in TITLES.items():
        if experiment in settings.experiments:
            parts += [f"## {title}", text.format(metric=outcome.metric())]
            parts += _section(experiment, outcome, settings.targets, folder)
    if near:
        parts += ["## Neighbours of ambiguous words", "Table 4 of the paper.", near]
    parts += ["## How it was run", f"```yaml\n{_as_yaml(settings)}\n```"]
    return "\n\n".join(parts) + "\n"


def _section(experiment: str, outcome: Outcome, targets: Sequence[str | None], folder: pathlib.Path) -> list[str]:
    """Tables and links to pictures."""
    if experiment == "help":
        return [tables.help_table(outcome, targets)]
    if experiment == "share":
        image = figures.share_curves(outcome, targets, folder / "share.png")
        titled = [f"{tables.named(target)}:\n\n{tables.share_table(outcome, target)}" for target in targets]
        return [f"![Score against share of training data]({image})", *titled]
    rows = tables.rows_by_target(outcome, experiment, targets, "layer" if experiment == "layers" else "setting")
    if experiment == "layers":
        image = figures.layer_scores(outcome, targets, folder / "layers.png")
        return [rows, f"![Score of each layer alone]({image})"]
    if experiment == "placement":
        image = figures.weight_map(outcome, targets, folder / "weights.png")
        return [rows, f"The learned weights of the layers, figure 2 of the paper:\n\n![Learned weights]({image})"]
    return [rows]


def _as_yaml(settings: ReportSettings) -> str:
    """The settings that reproduce the report, without the paths of this machine."""
    import yaml

    values: dict[str, Any] = {
        name: list(v) if isinstance(v, tuple) else v for name, v in dataclasses.asdict(settings).items()
    }
    del values["note"]
    for name in ("model", *SPLITS.values(), "vectors", "save_dir"):
        if values[name]:
            values[name] = pathlib.Path(values[name]).name or values[name]
    return str(yaml.safe_dump(values, sort_keys=False, allow_unicode=True)).rstrip("\n")
