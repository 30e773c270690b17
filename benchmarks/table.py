"""Writes tables from benchmarks/results/ into README.md and docs/: `<!-- bench:NAME -->` to `<!-- /bench:NAME -->`.

No figure is typed by hand: `python -m benchmarks.table` rewrites them, and tests/benchmarks/test_table.py fails while
they are not what it would write.
"""

import pathlib
import re
import sys
from collections.abc import Callable
from typing import Any

from benchmarks import results
from benchmarks.machine import ROOT
from benchmarks.results import GpuRow, Row

README = ROOT / "README.md"
RESULTS = ROOT / "benchmarks" / "results"
MARKED = re.compile(r"(<!-- bench:(\w+) -->\n).*?(<!-- /bench:\2 -->)", re.DOTALL)
Content = dict[str, Any]
GPU_SECTIONS = ("ceilings", "tests", "lstm", "embed", "encoder", "softmax", "mix", "adagrad", "train_step",
                "thresholds", "sanitizer")  # fmt: skip


def number(value: float) -> str:
    """Three significant digits, thousands separated by commas: 12,300; 142; 1.64."""
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
    return "\n".join([*lines, "", *footnotes(content)])


def footnotes(content: Content) -> list[str]:
    """The list below a table: where and when it was measured, notes, what was skipped, how to reproduce it."""
    notes = [f"{name}: {told(value)}" for name, value in content["notes"].items()]
    skipped = [f"skipped: {reason}" for reason in content["skipped"]]
    return [f"- {each}" for each in (provenance(content), *notes, *skipped, f"reproduce: `{content['command']}`")]


def provenance(content: Content) -> str:
    """The machine, the versions, the date and the commit of a case."""
    machine, versions = content["machine"], content["versions"]
    flags = [flag for flag in ("amx_bf16", "avx512f") if flag in machine["flags"]]
    return (
        f"{machine['cpu']}, {machine['cores']} cores ({', '.join(flags) or 'no AVX-512'}), "
        f"Python {versions['python']}, torch {versions['torch']}, {content['date']}, commit {content['commit']}"
    )


def told(value: Any) -> str:
    """A note's value in words."""
    if isinstance(value, dict):
        return ", ".join(f"{name} {told(each)}" for name, each in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def comparison(content: Content) -> str:
    """README.md's table, from the `embed` case: speed beside AllenNLP, error with and without carried state."""
    rows: list[Row] = [each for each in content["rows"] if each.variant == "batches of 32"]
    carried = next((each for name, each in content["notes"].items() if "state is carried" in name), {})
    lines = [
        line(["one core, batches of 32", "tokens/s", "speed-up", "max abs. difference, stateless / carried state"]),
        line([":--", "--:", "--:", "--:"]),
    ]
    for each in rows:
        name = each.side.removeprefix("elmo_fast, ")
        side = f"AllenNLP {content['notes']['AllenNLP']}" if name == "AllenNLP" else f"elmo_fast, `{name}`"
        ratio = "" if each.ratio is None else f"**{number(each.ratio)}x** {each.against}"
        errors = [] if each.error is None else [each.error, float(carried[name])]
        error = " / ".join(small(value) if value < 0.01 else number(value) for value in errors)
        lines.append(line([side, number(each.median), ratio, error]))
    return "\n".join([*lines, "", f"{provenance(content)}."])


def demo(content: Content) -> str:
    """What `make demo` came to, in one sentence."""
    before, after = content["rows"]
    machine, notes = content["machine"], content["notes"]
    return (
        f"On {machine['cores']} cores ({machine['cpu']}) it took {notes['seconds in all']} s, and the perplexity of "
        f"{notes['held-out words']} held-out words fell from {number(before.median)} to {number(after.median)}, "
        f"{number(before.median / after.median)} times lower."
    )


def torture(content: Content) -> str:
    """What was killed, how often, and how it ended."""
    lines = [
        line(["killed", "kills", "runs", "of these ended as the undisturbed run"]),
        line([":--", "--:", "--:", "--:"]),
    ]
    lines += [
        line([each["kind"], str(each["kills"]), str(each["runs"]), str(each["equal"])]) for each in content["kinds"]
    ]
    kills, runs, equal = (sum(each[name] for each in content["kinds"]) for name in ("kills", "runs", "equal"))
    differing = "".join(f" **Differs**: {failure}." for failure in content["failures"])
    summary = f"{kills} kills of {runs} runs, {equal} ended equal.{differing}"
    return "\n".join([*lines, "", f"{summary} {provenance(content)}. Reproduce: `{content['command']}`."])


def gpu_files(folder: pathlib.Path, *, rehearsals: bool = False) -> dict[str, Content]:
    """The results of each section that a GPU has run, in the order of the plan."""
    found = {}
    for section in GPU_SECTIONS:
        content = results.load(folder, f"gpu_{section}")
        if content is not None and (rehearsals or not content["rehearsal"]):
            found[section] = content
    return found


def gpu(folder: pathlib.Path, *, rehearsals: bool = False) -> str:
    """Every comparison of ours on a GPU, its goal, its floor and its rivals; then tests, failures and provenance."""
    files = gpu_files(folder, rehearsals=rehearsals)
    if not files:
        return (
            "No GPU has run these kernels yet: there is no result file, so there is no figure "
            "(`make gpu` on a machine with one writes them)."
        )
    lines = [line(["what", "goal", "ours", "floor", "share of it", "rivals"])]
    lines.append(line([":--", ":--", "--:", "--:", "--:", ":--"]))
    for content in files.values():
        rows: list[GpuRow] = content["rows"]
        variants = dict.fromkeys(each.variant for each in rows if each.ours)
        lines += [gpu_line(variant, [each for each in rows if each.variant == variant]) for variant in variants]
    tests, ceilings = files.get("tests"), files.get("ceilings")
    said = []
    if tests is not None:
        said.append(f"{tests['notes'].get('passed', 0)} tests passed on it.")
    if ceilings is not None:
        rates = (f"{each.variant} {number(each.median)} {each.unit}" for each in ceilings["rows"])
        said.append(f"Ceilings of the same run: {', '.join(rates)}.")
    for section, content in files.items():
        said += [f"**Failed** ({section}): {failure}." for failure in content.get("failures", [])]
        said += [f"Left out ({section}): {reason}." for reason in content["skipped"]]
    said.append(gpu_provenance(list(files.values())))
    return "\n".join([*lines, "", *(f"- {each}" for each in said)])


def gpu_line(variant: str, rows: list[GpuRow]) -> str:
    """One comparison: each side by its better way of launching."""
    rate = "/" in rows[0].unit
    best: dict[str, GpuRow] = {}
    for each in sorted(rows, key=lambda each: -each.median if rate else each.median):
        best.setdefault(each.side, each)
    ours = next(each for each in best.values() if each.ours)
    with_memory = any(aim["text"].endswith("memory") for aim in ours.aims)

    def figure(each: GpuRow) -> str:
        said = f"{number(each.median)} {each.unit}"
        return f"{said}, {number(each.memory)} MiB" if with_memory and each.memory is not None else said

    others = "; ".join(f"{number(e.median)} {e.launched}" for e in rows if e.ours and e is not ours and e.launched)
    launched = f" ({ours.launched}{'; ' + others if others else ''})" if ours.launched else ""
    aims = "; ".join(f"{aim['text']}: {'reached' if aim['reached'] else '**not reached**'}" for aim in ours.aims)
    rivals = [
        f"{each.side} {figure(each)} ({number(ours.median / each.median if rate else each.median / ours.median)} x)"
        for each in best.values()
        if not each.ours
    ]
    floor = "" if ours.floor is None else f"{number(ours.floor)} ({ours.bound})"
    share = "" if ours.share is None else f"{number(100 * ours.share)} %"
    return line([variant, aims, f"**{figure(ours)}**{launched}", floor, share, ", ".join(rivals)])


def gpu_provenance(files: list[Content]) -> str:
    """On which card, with what, when; sections of other runs are named apart."""
    runs = dict.fromkeys(
        f"{c['gpu']['gpu']}, driver {c['gpu']['driver']}, CUDA {c['gpu']['cuda']}, Python {c['versions']['python']}, "
        f"torch {c['versions']['torch']}, Triton {c['versions'].get('triton', 'absent')}, "
        f"{c['date'].split()[0]}, commit {c['commit']}{', a REHEARSAL: no figure means anything' * c['rehearsal']}"
        for c in files
    )
    return (
        f'{"; ".join(runs)}. Medians by events, L2 flushed before each call, sides in turn; "x" is how many times '
        "faster ours is, each side by its better way of launching. Reproduce: `make gpu`."
    )


def mutants(content: Content) -> str:
    """The score of `make mutants`, what survived it and what is known to change nothing."""
    survivors, equivalent = content["survivors"], content["equivalent"]
    real = content["judged"] - len(equivalent)
    none = content["refused"] + content["same"]
    share = number(100 * content["killed"] / max(1, real))
    fewer = "" if content["judged"] == content["asked"] else f" of the {content['asked']} asked for, in the time given"
    lines = [
        f"{content['judged']} mutants{fewer} (seed {content['seed']}): {len(equivalent)} change nothing that a test "
        f"could see; of the other {real} the tests killed {content['killed']}, {share} %, and {len(survivors)} "
        f"survived. {none} more do not count: the compiler refused them or produced the same object. "
        f"Left out: {'; '.join(content['left_out'])}."
    ]
    for heading, found in (("survived", survivors), ("changes nothing", equivalent)):
        if found:
            lines += ["", line([heading, "before", "after", *["why"] * (found is equivalent)])]
            lines.append(line([":--"] * (3 + (found is equivalent))))
            lines += [mutant_line(each) for each in found]
    machine, versions = content["machine"], content["versions"]
    return "\n".join(
        [
            *lines,
            "",
            f"{machine['cpu']}, Python {versions['python']}, torch {versions['torch']}, {content['date']}, "
            f"commit {content['commit']}, `{' '.join(content['options'])}`. Reproduce: `{content['command']}`.",
        ]
    )


def mutant_line(each: Content) -> str:
    """One mutant as a row: the file, the line before and after, and why it changes nothing where that is known."""

    def code(text: str) -> str:
        return f"`` {text} ``".replace("|", "\\|")

    said = [each["why"]] if "why" in each else []
    return line([f"`{each['file']}`", code(each["before"]), code(each["after"]), *said])


def fuzz(content: Content) -> str:
    """The runs of `make fuzz`, each with its commit: how many cases of what, and how many different findings."""
    lines = [line(["commit", "date", "ops", "files", "command lines", "findings"])]
    lines.append(line([":--", ":--", "--:", "--:", "--:", "--:"]))
    for run in content["runs"]:
        sums = dict.fromkeys(("ops", "files", "command lines"), 0)
        for target, cases in run["cases"].items():
            kind = "ops" if target.startswith("op_") else "command lines" if target == "command_line" else "files"
            sums[kind] += cases
        found = str(len(run["findings"]))
        lines.append(line([run["commit"], run["date"].split()[0], *(f"{cases:,}" for cases in sums.values()), found]))
    about = content["runs"][-1]
    versions = ", ".join(f"{name} {about['versions'][name]}" for name in ("python", "torch", "numpy", "h5py"))
    total = sum(sum(run["cases"].values()) for run in content["runs"])
    lines += [
        "",
        f"{total:,} cases in all; {about['machine']['cpu']}, {versions}. Reproduce: `make fuzz SECONDS=3600`.",
    ]
    return "\n".join(lines)


RENDERED: dict[str, tuple[str, Callable[[Content], str]]] = {
    "comparison": ("embed", comparison),
    "embed": ("embed", case_table),
    "projected_lstm": ("projected_lstm", case_table),
    "train_step": ("train_step", case_table),
    "embed_file": ("embed_file", case_table),
    "limits": ("limits", case_table),
    "pretrain": ("pretrain", case_table),
    "vocabulary": ("vocabulary", case_table),
    "corpus": ("corpus", case_table),
    "text": ("text", case_table),
    "task": ("task", case_table),
    "output_layers": ("output_layers", case_table),
    "output_layer_ops": ("output_layer_ops", case_table),
    "static": ("static", case_table),
    "static_files": ("static_files", case_table),
    "static_quality": ("static_quality", case_table),
    "demo": ("demo", demo),
    "ops": ("ops", case_table),
    "mutants": ("mutants", mutants),
    "torture": ("torture", torture),
    "fuzz": ("fuzz", fuzz),
}


def render(name: str, folder: pathlib.Path = RESULTS) -> str:
    """The text that belongs between the markers of `name`."""
    if name == "gpu":
        return gpu(folder)
    case, function = RENDERED[name]
    content = results.load(folder, case)
    if content is None:
        command = (
            f"make {case}" if case in ("fuzz", "torture", "mutants") else f"python -m benchmarks.run --case {case}"
        )
        return f"(Not measured yet: `{command}` writes this.)"
    return function(content)


def filled(text: str, folder: pathlib.Path = RESULTS) -> str:
    """`text` with what stands between its markers written anew."""
    return MARKED.sub(lambda found: found[1] + render(found[2], folder) + "\n" + found[3], text)


def write() -> None:
    """Rewrites README.md and the pages of docs/ where a table differs."""
    for page in (README, *sorted((ROOT / "docs").glob("*.md"))):
        text = page.read_text(encoding="utf-8")
        new = filled(text)
        if new != text:
            page.write_text(new, encoding="utf-8")
            print(f"rewrote the tables of {page.name}")


if __name__ == "__main__":
    sys.exit(write())
