"""Writes README.md's tables from benchmarks/results/, between `<!-- bench:NAME -->` and `<!-- /bench:NAME -->`.

No figure is typed by hand: `python -m benchmarks.table` rewrites README.md, and tests/test_readme.py fails while it
differs from what this would write.
"""

import pathlib
import re
import sys
from collections.abc import Callable
from typing import Any

from benchmarks import results
from benchmarks.machine import ROOT
from benchmarks.results import Row

README = ROOT / "README.md"
RESULTS = ROOT / "benchmarks" / "results"
MARKED = re.compile(r"(<!-- bench:(\w+) -->\n).*?(<!-- /bench:\2 -->)", re.DOTALL)
Content = dict[str, Any]


def number(value: float) -> str:
    """Three significant digits, thousands parted: 12,300; 142; 1.64."""
    if value >= 100:
        digits = max(0, len(str(int(value))) - 3)
        return f"{round(value / 10**digits) * 10**digits:,}"
    return f"{value:.3g}"


def small(value: float) -> str:
    """An error as 3.1e-06 reads in text: 3e-6; zero is 0."""
    if value == 0:
        return "0"
    mantissa, exponent = f"{value:.1e}".split("e")
    return f"{mantissa}e{int(exponent)}"


def line(cells: list[str]) -> str:
    """One line of a table."""
    return "| " + " | ".join(cells) + " |"


def case_table(content: Content) -> str:
    """Every row of a case: medians with the 20th and 80th percentile, the ratio, the error."""
    rows: list[Row] = content["rows"]
    errors = any(each.error is not None for each in rows)
    ratios = any(each.ratio is not None for each in rows)
    lines = [
        line(
            [
                "",
                "side",
                "threads",
                "median (p20 to p80)",
                *ratios * ["times faster"],
                *errors * ["max abs. difference"],
            ]
        )
    ]
    lines.append(line([":--", ":--", "--:", "--:", *ratios * ["--:"], *errors * ["--:"]]))
    for each in rows:
        cells = [each.variant, each.side, str(each.threads)]
        cells.append(f"{number(each.median)} {each.unit} ({number(each.p20)} to {number(each.p80)})")
        if ratios:
            cells.append("" if each.ratio is None else f"**{number(each.ratio)}** than {each.against}")
        if errors:
            cells.append("" if each.error is None else f"{small(each.error)} to {each.error_to}")
        lines.append(line(cells))
    return "\n".join([*lines, "", provenance(content)])


def provenance(content: Content) -> str:
    """One sentence on where, when and how the figures of a case were taken."""
    machine, versions = content["machine"], content["versions"]
    flags = [flag for flag in ("amx_bf16", "avx512f") if flag in machine["flags"]]
    notes = "; ".join(f"{name}: {told(value)}" for name, value in content["notes"].items())
    skipped = "".join(f" Skipped: {reason}." for reason in content["skipped"])
    return (
        f"{machine['cpu']}, {machine['cores']} cores ({', '.join(flags) or 'no AVX-512'}), "
        f"Python {versions['python']}, torch {versions['torch']}, {content['date']}, "
        f"commit {content['commit']}. {notes}.{skipped} Reproduce: `{content['command']}`."
    )


def told(value: Any) -> str:
    """A note's value in words."""
    if isinstance(value, dict):
        return ", ".join(f"{name} {told(each)}" for name, each in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def headline(content: Content) -> str:
    """The one sentence at the top of the README, from the `embed` case."""
    rows: list[Row] = content["rows"]
    mine = {each.side.removeprefix("elmo_fast, "): each for each in rows if each.variant == "batches of 32"}
    exact, half = mine["float32"], mine["bfloat16"]
    if exact.against != "AllenNLP" or exact.ratio is None or half.ratio is None:
        return (
            f"On one core it embeds {number(exact.median)} tokens/s in float32 and {number(half.median)} in bfloat16."
        )
    return (
        f"On one core it gives AllenNLP {content['notes']['AllenNLP']}'s vectors {number(exact.ratio)} times faster "
        f"in float32 (largest difference {small(exact.error or 0)}) and {number(half.ratio)} times faster in bfloat16 "
        f"({small(half.error or 0)})."
    )


def demo(content: Content) -> str:
    """What `make demo` came to, in one sentence."""
    before, after = content["rows"]
    machine, notes = content["machine"], content["notes"]
    return (
        f"On {machine['cores']} cores ({machine['cpu']}) it took {notes['seconds in all']} s, and the perplexity of "
        f"{notes['held-out words']} held-out words fell from {number(before.median)} to {number(after.median)}, "
        f"{number(before.median / after.median)} times lower."
    )


RENDERED: dict[str, tuple[str, Callable[[Content], str]]] = {
    "headline": ("embed", headline),
    "embed": ("embed", case_table),
    "projected_lstm": ("projected_lstm", case_table),
    "train_step": ("train_step", case_table),
    "embed_file": ("embed_file", case_table),
    "limits": ("limits", case_table),
    "text": ("text", case_table),
    "demo": ("demo", demo),
    "ops": ("ops", case_table),
}


def render(name: str, folder: pathlib.Path = RESULTS) -> str:
    """The text that belongs between the markers of `name`."""
    case, function = RENDERED[name]
    content = results.load(folder, case)
    if content is None:
        return f"(Not measured yet: `python -m benchmarks.run --case {case}` writes this.)"
    return function(content)


def filled(text: str, folder: pathlib.Path = RESULTS) -> str:
    """`text` with what stands between its markers written anew."""
    return MARKED.sub(lambda found: found[1] + render(found[2], folder) + "\n" + found[3], text)


def write() -> None:
    """Rewrites README.md where a table differs."""
    text = README.read_text(encoding="utf-8")
    new = filled(text)
    if new != text:
        README.write_text(new, encoding="utf-8")
        print(f"rewrote the tables of {README.name}")


if __name__ == "__main__":
    sys.exit(write())
