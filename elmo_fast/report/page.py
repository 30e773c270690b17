"""The report as one Markdown page: tables, pictures and the paper's findings, all computed from the cells."""

import math
import pathlib
from collections.abc import Callable, Sequence
from statistics import fmean, stdev
from typing import Any

import numpy as np

from elmo_fast.pictures import layer_weights
from elmo_fast.pictures.layers import layer_name
from elmo_fast.pictures.style import COLOURS, legend_below, new_figure, plain, save, shown
from elmo_fast.report.plan import Cell, ReportSettings

BLUE, ORANGE = COLOURS[:2]
PAGE, NUMBERS, SETTINGS = "report.md", "report.json", "report.yaml"
Target = str | None
Scores = list[float]  # of one setting, with each seed
Cells = Sequence[Cell]


def spread(seeds: Scores) -> str:
    """Return mean and standard deviation (n-1), in per cent: "91.23 ± 0.15"; of one run the score."""
    return " ± ".join(f"{100 * number:.2f}" for number in [fmean(seeds), *([stdev(seeds)] if len(seeds) > 1 else [])])


def comparison(one: Scores, other: Scores) -> int:
    """Return 1 if every run of `one` scored above every run of `other`, -1 if below, else 0: seeds may be the reason.

    One run of either proves nothing.
    """
    if min(len(one), len(other)) < 2:
        return 0
    return int(min(one) > max(other)) - int(min(other) > max(one))


def cells_of(cells: Cells, experiment: str, target: Target) -> list[Cell]:
    """Return the cells of an experiment for a column, in the order of the plan; empty if it was not requested."""
    return [cell for cell in cells if (cell.experiment, cell.target) == (experiment, target)]


def on_test(cell: Cell) -> Scores:
    """Return a cell's score on the test text with each seed."""
    return [run["test"]["f1"] for run in cell.runs]


def scores(cells: Cells, experiment: str, target: Target) -> dict[str, Scores]:
    """Return label -> test scores of `cells_of`."""
    return {cell.label: on_test(cell) for cell in cells_of(cells, experiment, target)}


def curves(cells: Cells, target: Target) -> tuple[dict[float, Scores], dict[float, Scores]]:
    """Return the curves of the baseline and of + ELMo: fraction of the training data, ascending -> test scores."""
    both: tuple[dict[float, Scores], dict[float, Scores]] = {}, {}
    for cell in sorted(cells_of(cells, "share", target), key=lambda cell: cell.changes["train_share"]):
        both[cell.changes["elmo"] != "none"][cell.changes["train_share"]] = on_test(cell)
    return both


def targets_of(cells: Cells) -> list[Target]:
    """Return the columns of labels, in order."""
    return list(dict.fromkeys(cell.target for cell in cells))


def column_name(target: Target) -> str:
    """Return a column's name in headings."""
    return target or "labels"


def metric(cells: Cells) -> str:
    """Return the name of the scores, of each column if they differ: for labels, F1 over all of them is the accuracy."""
    names = {cell.target: "F1 of spans" if cell.runs[0]["test"]["spans"] else "accuracy" for cell in cells}
    if len(set(names.values())) == 1:
        return names.popitem()[1]
    return ", ".join(f"{name} ({column_name(target)})" for target, name in names.items())


def unfinished(cells: Cells) -> str:
    """Say of how many runs the best epoch was the last, so that more epochs may change the scores; "" if of none."""
    runs = [run for cell in cells for run in cell.runs]
    last = sum(run["best_epoch"] == len(run["epochs"]) for run in runs)
    return f"the best epoch was the last in {last} of {len(runs)} runs: train longer (--epochs)" if last else ""


def dev_curves(cells: Cells, path: pathlib.Path) -> str:
    """Draw the development score after each epoch, a line per seed, of the baseline and of + ELMo."""

    def draw(axes: Any, target: Target) -> str:
        for cell, colour in zip(cells_of(cells, "help", target), (BLUE, ORANGE), strict=True):
            for number, run in enumerate(cell.runs):
                values = [100 * row["score"] for row in run["epochs"]]
                label = None if number else shown(cell.label)
                axes.plot(range(1, len(values) + 1), values, color=colour, label=label, marker=".")
                axes.plot(run["best_epoch"], values[run["best_epoch"] - 1], color=colour, marker="o")
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.set_xlabel("epoch (a circle at the best)")
        return column_name(target)

    return _panels(cells, (5.2, 4), path, draw, "dev")


def share_curves(cells: Cells, path: pathlib.Path) -> str:
    """Draw score against fraction of the training data: mean and range over seeds, a panel per column of labels."""

    def draw(axes: Any, target: Target) -> str:
        base, elmo = curves(cells, target)
        for label, curve, colour, marker in (("+ ELMo", elmo, ORANGE, "o"), ("baseline", base, BLUE, "s")):
            x = [100 * share for share in curve]
            low, means, high = ([100 * of(seeds) for seeds in curve.values()] for of in (min, fmean, max))
            axes.plot(x, means, color=colour, marker=marker, label=label)
            axes.fill_between(x, low, high, color=colour, alpha=0.2, linewidth=0)
        axes.set_xscale("log")
        axes.set_xticks(x, [f"{value:g} %" for value in x])
        axes.minorticks_off()
        axes.set_xlabel("share of the training sentences")
        return column_name(target)

    return _panels(cells, (5.2, 4), path, draw)


def layer_scores(cells: Cells, path: pathlib.Path) -> str:
    """Draw each layer alone with a linear classifier: a bar per layer, the range over seeds as error bars."""

    def draw(axes: Any, target: Target) -> str:
        layers = scores(cells, "layers", target)
        low, means, high = (100 * np.array([of(seeds) for seeds in layers.values()]) for of in (min, fmean, max))
        places = range(len(layers))
        axes.bar(places, means, 0.7, color=[BLUE] * (len(layers) - 1) + [ORANGE])
        axes.errorbar(places, means, [means - low, high - means], fmt="none", ecolor="#333333", capsize=3)
        span = max(means) - min(low) + 2
        axes.set_ylim(max(0, min(low) - 0.35 * span), max(means) + 0.25 * span)
        axes.set_xticks(places, list(layers))
        return f"{column_name(target)} (axis does not start at 0)"

    return _panels(cells, (4.4, 3.6), path, draw)


def _panels(
    cells: Cells, size: tuple[float, float], path: pathlib.Path, draw: Callable[[Any, Target], str], split: str = "test"
) -> str:
    """Write a picture of one panel per column of labels, side by side; `draw` fills a panel and returns its title."""
    targets = targets_of(cells)
    figure = new_figure(size[0] * len(targets), size[1])
    panels = figure.subplots(1, len(targets), squeeze=False)[0]
    for axes, target in zip(panels, targets, strict=True):
        plain(axes, shown(draw(axes, target)), grid="y")
    panels[0].set_ylabel(f"{metric(cells)} on {split}, %")
    if panels[0].get_legend_handles_labels()[0]:
        legend_below(figure, 10)
    save(figure, path)
    return path.name


def mean_weights(cell: Cell, mix: str) -> list[float]:
    """Return the learned weight of each layer, the mean of the seeds; mix: "input" or "output"."""
    return [fmean(values) for values in zip(*(run["mix_weights"][mix] for run in cell.runs), strict=True)]


def weights_table(cells: Cells) -> str:
    """Show what λ does to the weights of the layers: a row per column of labels and λ."""
    rows = []
    for cell in cells:
        if cell.experiment == "regularisation" and cell.changes.get("layer") == "mix":
            weights = mean_weights(cell, "input")
            numbers = [f"{each:.3f}" for each in [*weights, max(weights) - min(weights)]]
            rows.append([column_name(cell.target), f"{cell.changes['mix_l2']:g}", *numbers])
    return table(["labels", "λ", *map(layer_name, range(len(weights))), "largest less smallest"], rows)


def weight_map(cells: Cells, path: pathlib.Path) -> str:
    """Draw the learned weight of each layer, mean over seeds, for every place and column: figure 2 of the paper."""
    groups = {}
    for cell in cells:
        mixes = cell.runs[0]["mix_weights"] if cell.experiment == "placement" else []
        for mix in mixes:
            name = f"{column_name(cell.target)}, {cell.label}" + (f": {mix}" if len(mixes) > 1 else "")
            groups[name] = mean_weights(cell, mix)
    layer_weights(groups, path, "Learned weights of the layers, mean of the seeds")
    return path.name


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table."""
    return "\n".join(f"| {' | '.join(row)} |" for row in (header, [":--"] * len(header), *rows))


def help_table(cells: Cells) -> str:
    """Compare baseline and + ELMo: in points, as a fraction of the errors, and whether seeds explain it."""
    rows = []
    for target in targets_of(cells):
        base, elmo = scores(cells, "help", target).values()
        gain = fmean(elmo) - fmean(base)
        fewer = gain / (1 - fmean(base)) if fmean(base) < 1 else 0.0
        verdict = "yes" if comparison(elmo, base) > 0 else "no"
        rows.append([column_name(target), spread(base), spread(elmo), f"{100 * gain:+.2f}", f"{fewer:.1%}", verdict])
    return table(["labels", "baseline", "+ ELMo", "difference", "fewer errors", "every seed above every seed"], rows)


def epochs_needed(cells: Cells, target: Target) -> tuple[list[int], list[float]]:
    """Return, for each seed, the baseline's best epoch, and the first one in which + ELMo scores as much on dev.

    The latter is infinite if no epoch does. Empty lists if the experiment was not requested.
    """
    base, elmo = list[int](), list[float]()
    for without, with_elmo in zip(*(cell.runs for cell in cells_of(cells, "help", target)), strict=True):
        best = without["epochs"][without["best_epoch"] - 1]["score"]
        reached = (epoch for epoch, row in enumerate(with_elmo["epochs"], start=1) if row["score"] >= best)
        base.append(without["best_epoch"])
        elmo.append(next(reached, math.inf))
    return base, elmo


def updates_table(cells: Cells, batch_size: int) -> str:
    """Compare the updates until the baseline's best development score: the means of the seeds."""
    rows = []
    for target in targets_of(cells):
        steps = math.ceil(cells_of(cells, "help", target)[0].runs[0]["sentences"] / batch_size)
        base, elmo = (fmean(epochs) * steps for epochs in epochs_needed(cells, target))
        reached = ["not in every run", "none"] if math.isinf(elmo) else [f"{elmo:,.0f}", f"{1 - elmo / base:.1%}"]
        rows.append([column_name(target), f"{base:,.0f}", *reached])
    return table(["labels", "baseline, until its best dev score", "+ ELMo, until that score", "fewer updates"], rows)


def rows_by_target(cells: Cells, experiment: str, first: str) -> str:
    """Return one row per setting, one column per column of labels, the best in bold."""
    targets = targets_of(cells)
    columns = [scores(cells, experiment, target) for target in targets]
    best = [max(f"{fmean(seeds):.4f}" for seeds in column.values()) for column in columns]  # equal as printed
    rows = []
    for label in columns[0]:
        row = [column[label] for column in columns]
        marks = ["**" if f"{fmean(seeds):.4f}" == top else "" for seeds, top in zip(row, best, strict=True)]
        rows.append([label, *(f"{mark}{spread(seeds)}{mark}" for mark, seeds in zip(marks, row, strict=True))])
    return table([first, *map(column_name, targets)], rows)


def share_table(cells: Cells, target: Target) -> str:
    """Compare baseline and + ELMo for each fraction of the training data."""
    base, elmo = curves(cells, target)
    gains = {share: f"{100 * (fmean(elmo[share]) - fmean(base[share])):+.2f}" for share in base}
    rows = [[f"{share:.1%}", spread(base[share]), spread(elmo[share]), gain] for share, gain in gains.items()]
    return table(["share of the training sentences", "baseline", "+ ELMo", "difference"], rows)


VERDICTS = {1: "yes", 0: "within the spread of the seeds", -1: "no, the opposite"}
HOW_JUDGED = (
    '"Yes" means that every seed of one side scored above every seed of the other, "no, the opposite" the reverse; '
    "if the ranges overlap, the seeds may explain the difference."
)
HOW_IT_WAS_RUN = f"## How it was run\n\n`elmo-fast report --config {SETTINGS}` runs it again."
# Of each experiment the paper's findings: the claim, the row that is better, the row that is worse.
FINDINGS = {
    "help": [("ELMo helps (table 1)", 1, 0)],
    "regularisation": [
        ("the last layer alone helps (table 2)", 1, 0),
        ("all layers are better than the last (table 2)", -1, 1),
        ("a small λ is better than a large one (table 2)", -1, 2),
    ],
    "placement": [
        ("the input is a better place than the output (table 3, labelling of roles)", 0, 2),
        ("both are better than the input alone (table 3, entailment and answers)", 1, 0),
    ],
    # The first row is the characters, the last one all layers mixed.
    "layers": [("the first LSTM layer knows more of syntax than the last (table 6)", 1, -2)],
}


def claims(cells: Cells) -> str:
    """Return a table: the paper's finding, the labels, the verdict, and the scores behind it."""
    rows: list[list[str]] = []

    def judge(claim: str, better: Cell, worse: Cell) -> None:
        sides = on_test(better), on_test(worse)
        verdict = "; ".join(filter(None, [VERDICTS[comparison(*sides)], unfinished([better, worse])]))
        evidence = f"{better.label} {spread(sides[0])}; {worse.label} {spread(sides[1])}"
        rows.append([claim, column_name(target), verdict, evidence])

    for target in targets_of(cells):
        for experiment, findings in FINDINGS.items():
            some = cells_of(cells, experiment, target)
            for claim, better, worse in findings if some else ():
                if some[better] != some[worse]:
                    judge(claim, some[better], some[worse])
        epochs = epochs_needed(cells, target)
        if epochs[0]:
            fewer = {(with_elmo < base) - (with_elmo > base) for base, with_elmo in zip(*epochs, strict=True)}
            verdict = VERDICTS[fewer.pop() if len(fewer) == 1 < len(epochs[0]) else 0]
            sides = (", ".join(map(str, side)).replace("inf", "never") for side in epochs)
            claim = "with ELMo fewer updates reach the baseline's best dev score (section 5.4)"
            rows.append([claim, column_name(target), verdict, "+ ELMo epoch {1}; baseline epoch {0}".format(*sides)])
        base, elmo = curves(cells, target)
        if not base:
            continue
        least, most = min(base), max(base)
        scarce = [cell for cell in cells_of(cells, "share", target) if cell.changes["train_share"] == least]
        judge(f"ELMo helps where data is scarce (figure 1), here at {least:.1%}", scarce[1], scarce[0])
        # The smallest fraction at which + ELMo reaches the baseline's score on its largest.
        needed = min((share for share in elmo if fmean(elmo[share]) >= fmean(base[most])), default=most)
        verdict = f"{'yes' if needed < most else 'no'}, by the means"
        evidence = f"+ ELMo {spread(elmo[needed])} with {needed:.1%}; baseline {spread(base[most])} with {most:.1%}"
        claim = "with ELMo less data gives the score that the baseline needs all for (section 5.4)"
        rows.append([claim, column_name(target), verdict, evidence])
    return table(["in the paper", "labels", "here", "scores"], rows)


TITLES = {
    "help": ("Does it help?", "Table 1 of the paper. The score is {metric} on the test text, in per cent."),
    "regularisation": (
        "All layers or the last, and the effect of λ",
        "Table 2 of the paper: ELMo at the input. The penalty λ Σ w² pulls the layers' weights together: a large λ "
        "leaves their plain average, a small one lets the task choose.",
    ),
    "placement": ("Where to put it", "Table 3 of the paper: ELMo with the words, with the LSTM's output, or both."),
    "layers": (
        "What each layer knows",
        "Table 6 of the paper: one frozen layer and a linear classifier; no other input.",
    ),
    "share": (
        "How much data it saves",
        "Figure 1 of the paper; bands extend from the worst to the best seed. Every share has the same maximum number "
        "of passes, so a small one takes few steps, with and without ELMo.",
    ),
}


def page(cells: Cells, settings: ReportSettings, facts: Sequence[str], near: str, folder: pathlib.Path) -> str:
    """Return the page; its pictures are written to `folder`.

    facts: sentences about data, model and machine; near: the section on neighbours, or empty.
    """
    parts = ["# Does ELMo help?", *filter(None, [settings.note]), "\n".join(f"- {fact}" for fact in facts)]
    parts += ["## What agrees with the paper, and what does not", claims(cells), HOW_JUDGED]
    for experiment, (title, text) in TITLES.items():
        if experiment in settings.experiments:
            parts += [f"## {title}", text.format(metric=metric(cells)), *_section(experiment, cells, settings, folder)]
    if near:
        parts += ["## Neighbours of ambiguous words", "Table 4 of the paper.", near]
    return "\n\n".join([*parts, HOW_IT_WAS_RUN]) + "\n"


def _section(experiment: str, cells: Cells, settings: ReportSettings, folder: pathlib.Path) -> list[str]:
    """Return tables and links to pictures."""
    if experiment == "help":
        image = f"![Development score by epoch]({dev_curves(cells, folder / 'epochs.png')})"
        updates = f"Updates (steps of {settings.batch_size} sentences), as in section 5.4 of the paper:"
        return [help_table(cells), image, updates, updates_table(cells, settings.batch_size)]
    if experiment == "share":
        image = share_curves(cells, folder / "share.png")
        titled = [f"{column_name(target)}:\n\n{share_table(cells, target)}" for target in targets_of(cells)]
        return [f"![Score against share of training data]({image})", *titled]
    rows = rows_by_target(cells, experiment, "layer" if experiment == "layers" else "setting")
    if experiment == "layers":
        return [rows, f"![Score of each layer alone]({layer_scores(cells, folder / 'layers.png')})"]
    if experiment == "placement":
        image = weight_map(cells, folder / "weights.png")
        return [rows, f"The learned weights of the layers, figure 2 of the paper:\n\n![Learned weights]({image})"]
    return [rows, "The learned weights of the layers, mean of the seeds:", weights_table(cells)]
