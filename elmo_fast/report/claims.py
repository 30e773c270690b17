"""The paper's findings, and whether these runs confirm them; every verdict is computed."""

from collections.abc import Sequence

from elmo_fast.report.outcome import Outcome
from elmo_fast.report.settings import ReportSettings
from elmo_fast.report.statistics import Spread, comparison
from elmo_fast.report.tables import by_share, named, share_needed, table

VERDICTS = {1: "yes", 0: "cannot be told from the seeds' spread", -1: "no, the opposite"}


def claims(outcome: Outcome, settings: ReportSettings, layers: int) -> str:
    """A table: the paper's finding, the labels, the verdict, and the scores behind it."""
    rows: list[list[str]] = []
    for target in settings.targets:
        for experiment, judge in _JUDGES.items():
            found = outcome.rows(experiment, target)
            if found:
                rows += [[claim, named(target), *rest] for claim, *rest in judge(found, settings, layers)]
        if outcome.rows("share", target):
            rows += [[claim, named(target), *rest] for claim, *rest in _efficiency(outcome, settings, target)]
    return table(["in the paper", "labels", "here", "scores"], rows)


def _judged(claim: str, better: tuple[str, Spread], worse: tuple[str, Spread]) -> list[str]:
    verdict = VERDICTS[comparison(better[1], worse[1])]
    return [claim, verdict, f"{better[0]} {better[1]}; {worse[0]} {worse[1]}"]


def _help(found: dict[str, Spread], settings: ReportSettings, layers: int) -> list[list[str]]:
    base, ours = found.items()
    return [_judged("ELMo helps (table 1)", ours, base)]


def _regularisation(found: dict[str, Spread], settings: ReportSettings, layers: int) -> list[list[str]]:
    base, last, large, small = found.items()
    return [
        _judged("the last layer alone helps (table 2)", last, base),
        _judged("all layers are better than the last (table 2)", small, last),
        _judged("a small λ is better than a large one (table 2)", small, large),
    ]


def _placement(found: dict[str, Spread], settings: ReportSettings, layers: int) -> list[list[str]]:
    entry, both, exit_ = found.items()
    return [
        _judged("the input is a better place than the output (table 3, labelling of roles)", entry, exit_),
        _judged("both are better than the input alone (table 3, entailment and answers)", both, entry),
    ]


def _alone(found: dict[str, Spread], settings: ReportSettings, layers: int) -> list[list[str]]:
    contextual = list(found.items())[1:layers]
    rows = [_judged("the first LSTM layer knows more of syntax than the last (table 6)", contextual[0], contextual[-1])]
    return rows if len(contextual) > 1 else []


def _efficiency(outcome: Outcome, settings: ReportSettings, target: str | None) -> list[list[str]]:
    base = by_share(outcome, target, settings.shares, "baseline")
    ours = by_share(outcome, target, settings.shares, "+ ELMo")
    least = min(base)
    rows = [
        _judged(
            f"ELMo helps where data is scarce (figure 1), here at {least:.1%}",
            ("+ ELMo", ours[least]),
            ("baseline", base[least]),
        )
    ]
    needed = share_needed(base, ours)
    claim = "with ELMo less data gives the score that the baseline needs all for (section 5.4)"
    if needed and needed[0] < needed[1]:
        scores = f"+ ELMo {ours[needed[0]]} with {needed[0]:.1%}; baseline {base[needed[1]]} with {needed[1]:.1%}"
        return [*rows, [claim, "yes, by the means", scores]]
    return [
        *rows,
        [claim, "no, by the means", f"+ ELMo {ours[max(ours)]}; baseline {base[max(base)]}, both with {max(base):.1%}"],
    ]


_JUDGES = {"help": _help, "regularisation": _regularisation, "placement": _placement, "layers": _alone}


def tested(targets: Sequence[str | None]) -> str:
    """How a verdict is reached, as one sentence."""
    return (
        '"Yes" means that every seed of one side scored above every seed of the other, "no, the opposite" the reverse; '
        "if the ranges overlap, the seeds may explain the difference."
    )
