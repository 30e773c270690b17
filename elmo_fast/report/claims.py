"""The paper's findings, and whether these runs confirm them; every verdict is computed."""

from elmo_fast.report.outcome import Outcome, Spread, comparison
from elmo_fast.report.settings import ReportSettings
from elmo_fast.report.tables import named, share_needed, table

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
