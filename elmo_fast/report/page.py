"""The report as one Markdown page, with its tables, pictures and the paper's findings; every number and verdict is
computed."""

import dataclasses
import pathlib
import re
from collections.abc import Callable, Sequence
from typing import Any

from elmo_fast.pictures import layer_weights
from elmo_fast.pictures.style import COLOURS, legend_below, new_figure, plain, save, shown
from elmo_fast.report.outcome import Outcome, Spread, beyond_the_spread, comparison, error_reduction
from elmo_fast.report.plan import SPLITS, ReportSettings

BLUE, ORANGE = COLOURS[:2]
Targets = Sequence[str | None]


def share_curves(outcome: Outcome, targets: Targets, path: pathlib.Path) -> str:
    """Score against share of the training data: mean and range over seeds, a panel per column of labels."""

    def draw(axes: Any, target: str | None) -> str:
        for label, colour, marker in (("+ ELMo", ORANGE, "o"), ("baseline", BLUE, "s")):
            curve = outcome.curves(target)[label]
            x = [100 * share for share in curve]
            low, means, high = ([100 * getattr(v, name) for v in curve.values()] for name in ("low", "mean", "high"))
            axes.plot(x, means, color=colour, marker=marker, label=label)
            axes.fill_between(x, low, high, color=colour, alpha=0.2, linewidth=0)
        axes.set_xscale("log")
        axes.set_xticks(x, [f"{value:g} %" for value in x])
        axes.minorticks_off()
        axes.set_xlabel("share of the training sentences")
        return named(target)

    return _panels(outcome, targets, (5.2, 4), path, draw)


def layer_scores(outcome: Outcome, targets: Targets, path: pathlib.Path) -> str:
    """Each layer alone with a linear classifier: a bar per layer, the range over seeds as error bars."""

    def draw(axes: Any, target: str | None) -> str:
        found = outcome.rows("layers", target)
        places, values = range(len(found)), list(found.values())
        means = [100 * value.mean for value in values]
        reach = [[100 * (v.mean - v.low) for v in values], [100 * (v.high - v.mean) for v in values]]
        axes.bar(places, means, 0.7, color=[BLUE] * (len(found) - 1) + [ORANGE])
        axes.errorbar(places, means, reach, fmt="none", ecolor="#333333", capsize=3)
        lowest = min(100 * value.low for value in values)
        span = max(means) - lowest + 2
        bottom = max(0, lowest - 0.35 * span)
        axes.set_ylim(bottom, max(means) + 0.25 * span)
        for place, mean in zip(places, means, strict=True):  # below the error bars, which end above `lowest`
            looks = {"ha": "center", "va": "center", "color": "white", "fontsize": 10}
            axes.text(place, (bottom + lowest) / 2, f"{mean:.1f}", **looks)
        axes.set_xticks(places, list(found))
        return f"{named(target)} (axis does not start at 0)"

    return _panels(outcome, targets, (4.4, 3.6), path, draw)


def _panels(
    outcome: Outcome,
    targets: Targets,
    size: tuple[float, float],
    path: pathlib.Path,
    draw: Callable[[Any, str | None], str],
) -> str:
    """Writes a picture of one panel per column of labels, side by side; `draw` fills a panel and returns its title."""
    figure = new_figure(size[0] * len(targets), size[1])
    panels = figure.subplots(1, len(targets), squeeze=False)[0]
    for axes, target in zip(panels, targets, strict=True):
        plain(axes, shown(draw(axes, target)), grid="y")
    panels[0].set_ylabel(f"{outcome.metric()} on test, %")
    if panels[0].get_legend_handles_labels()[0]:
        legend_below(figure, 10)
    save(figure, path)
    return path.name


def weight_map(outcome: Outcome, targets: Targets, path: pathlib.Path) -> str:
    """The learned weight of each layer, for every place and column of labels: figure 2 of the paper."""
    groups = {
        f"{named(target)}, {label}" + (f": {mix}" if len(mixes) > 1 else ""): weights
        for target in targets
        for label, mixes in outcome.weights("placement", target).items()
        for mix, weights in mixes.items()
    }
    layer_weights(groups, path, "Learned weights of the layers, mean of the seeds")
    return path.name


# A score, a share, a difference, or none: "88.29 ± 0.01", "41.0%", "**+8.13**".
NUMBER = re.compile(r"(\*\*)?[+-]?[\d.,]+( ± [\d.]+)?%?(\*\*)?|none")


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table: number columns are right-aligned, others and the first are left-aligned."""
    others = [[row[place] for row in rows] for place in range(1, len(header))]
    marks = [":--", *("--:" if cells and all(map(NUMBER.fullmatch, cells)) else ":--" for cells in others)]
    return "\n".join("| " + " | ".join(row) + " |" for row in (header, marks, *rows))


def named(target: str | None) -> str:
    """A column's name in headings."""
    return target or "labels"


def help_table(outcome: Outcome, targets: Targets) -> str:
    """Baseline, + ELMo, the difference in points and as a share of the errors, and whether seeds explain it."""
    rows = []
    for target in targets:
        base, ours = outcome.rows("help", target).values()
        points = f"{100 * (ours.mean - base.mean):+.2f}"
        verdict = "yes" if beyond_the_spread(ours, base) else "no"
        rows.append([named(target), str(base), str(ours), points, f"{error_reduction(ours, base):.1%}", verdict])
    return table(["labels", "baseline", "+ ELMo", "difference", "fewer errors", "every seed above every seed"], rows)


def rows_by_target(outcome: Outcome, experiment: str, targets: Targets, first: str) -> str:
    """One row per setting, one column per column of labels, the best in bold."""
    columns = [outcome.rows(experiment, target) for target in targets]
    best = [max(column, key=lambda label: column[label].mean) for column in columns]
    rows = []
    for label in columns[0]:
        scores = [str(column[label]) for column in columns]
        rows.append([label, *(f"**{s}**" if label == top else s for s, top in zip(scores, best, strict=True))])
    return table([first, *map(named, targets)], rows)


def share_table(outcome: Outcome, target: str | None) -> str:
    """Baseline and + ELMo for each share of the training data."""
    base, ours = outcome.curves(target).values()
    rows = [
        [f"{share:.1%}", str(base[share]), str(ours[share]), f"{100 * (ours[share].mean - base[share].mean):+.2f}"]
        for share in base
    ]
    return table(["share of the training sentences", "baseline", "+ ELMo", "difference"], rows)


def share_needed(base: dict[float, Spread], ours: dict[float, Spread]) -> float | None:
    """The smallest share at which + ELMo reaches the baseline's score on its largest share; None if none does."""
    return min((share for share in ours if ours[share].mean >= base[max(base)].mean), default=None)


VERDICTS = {1: "yes", 0: "cannot be told from the seeds' spread", -1: "no, the opposite"}
HOW_JUDGED = (
    '"Yes" means that every seed of one side scored above every seed of the other, "no, the opposite" the reverse; '
    "if the ranges overlap, the seeds may explain the difference."
)
# Of each experiment the paper's findings: the claim, the row that is better, the row that is worse.
FINDINGS = {
    "help": [("ELMo helps (table 1)", 1, 0)],
    "regularisation": [
        ("the last layer alone helps (table 2)", 1, 0),
        ("all layers are better than the last (table 2)", 3, 1),
        ("a small λ is better than a large one (table 2)", 3, 2),
    ],
    "placement": [
        ("the input is a better place than the output (table 3, labelling of roles)", 0, 2),
        ("both are better than the input alone (table 3, entailment and answers)", 1, 0),
    ],
    # The first row is the characters, the last one all layers mixed.
    "layers": [("the first LSTM layer knows more of syntax than the last (table 6)", 1, -2)],
}


def claims(outcome: Outcome, settings: ReportSettings) -> str:
    """A table: the paper's finding, the labels, the verdict, and the scores behind it."""
    rows: list[list[str]] = []
    for target in settings.targets:
        judged: list[list[str]] = []
        for experiment, findings in FINDINGS.items():
            if found := list(outcome.rows(experiment, target).items()):
                pairs = [(claim, found[better], found[worse]) for claim, better, worse in findings]
                judged += [_judged(claim, better, worse) for claim, better, worse in pairs if better != worse]
        if outcome.rows("share", target):
            judged += _efficiency(*outcome.curves(target).values())
        rows += [[claim, named(target), *rest] for claim, *rest in judged]
    return table(["in the paper", "labels", "here", "scores"], rows)


def _judged(claim: str, better: tuple[str, Spread], worse: tuple[str, Spread]) -> list[str]:
    verdict = VERDICTS[comparison(better[1], worse[1])]
    return [claim, verdict, f"{better[0]} {better[1]}; {worse[0]} {worse[1]}"]


def _efficiency(base: dict[float, Spread], ours: dict[float, Spread]) -> list[list[str]]:
    least, most = min(base), max(base)
    claim = f"ELMo helps where data is scarce (figure 1), here at {least:.1%}"
    scarce = _judged(claim, ("+ ELMo", ours[least]), ("baseline", base[least]))
    needed = share_needed(base, ours)
    if needed is not None and needed < most:
        verdict, scores = "yes", f"+ ELMo {ours[needed]} with {needed:.1%}; baseline {base[most]} with {most:.1%}"
    else:
        verdict, scores = "no", f"+ ELMo {ours[most]}; baseline {base[most]}, both with {most:.1%}"
    claim = "with ELMo less data gives the score that the baseline needs all for (section 5.4)"
    return [scarce, [claim, f"{verdict}, by the means", scores]]


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
        return [help_table(outcome, targets)]
    if experiment == "share":
        image = share_curves(outcome, targets, folder / "share.png")
        titled = [f"{named(target)}:\n\n{share_table(outcome, target)}" for target in targets]
        return [f"![Score against share of training data]({image})", *titled]
    rows = rows_by_target(outcome, experiment, targets, "layer" if experiment == "layers" else "setting")
    if experiment == "layers":
        image = layer_scores(outcome, targets, folder / "layers.png")
        return [rows, f"![Score of each layer alone]({image})"]
    if experiment == "placement":
        image = weight_map(outcome, targets, folder / "weights.png")
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
