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
from benchmarks.cases import BY_CPU, CASES
from benchmarks.gpu import predict
from benchmarks.machine import ROOT
from benchmarks.results import GpuRow, Row, table
from elmo_fast.ops._products import INSTRUCTION_SETS

README = ROOT / "README.md"
RESULTS = ROOT / "benchmarks" / "results"
MARKED = re.compile(r"(<!-- bench:(\w+) -->\n).*?(<!-- /bench:\2 -->)", re.DOTALL)
LONG_NOTE = 180  # characters
Content = dict[str, Any]
# Commits whose results say nothing of the present code, and why; a new measurement replaces them.
OUTDATED = dict.fromkeys(("d9d809a9534a", "91f561e6bc9e", "06e5610149b4"), "before the present tiles and LSTM code")
BATCHES = "batches of 32"  # of the case `embed`, in README.md
GPU_SECTIONS = ("ceilings", "check", "tests", "lstm", "embed", "encoder", "softmax", "mix", "adagrad", "train_step",
                "tune", "sanitizer")  # fmt: skip


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


def case_table(content: Content) -> str:
    """Every row of a case: medians with the 20th and 80th percentile, the ratio, the error."""
    found: list[Row] = content["rows"]
    columns: dict[str, Callable[[Row], str]] = {
        "what": lambda each: each.variant,
        "side": lambda each: each.side,
        "threads": lambda each: str(each.threads),
        "median (p20 to p80)": spread,
    }
    if any(each.ratio is not None for each in found):
        columns["speed-up"] = lambda each: "" if each.ratio is None else f"**{number(each.ratio)}x** {each.against}"
    if any(each.error is not None for each in found):
        columns["largest difference"] = lambda each: (
            "" if each.error is None else f"{small(each.error)} from {each.error_to}"
        )
    rows = [[cell(each) for cell in columns.values()] for each in found]
    return "\n".join([*table("ll".ljust(len(columns), "r"), [*columns], *rows), "", *footnotes(content)])


def spread(each: Row) -> str:
    """A median with its percentiles; a figure that does not vary stands alone."""
    median, low, high = map(number, (each.median, each.p20, each.p80))
    return f"{median} {each.unit}" + (f" ({low} to {high})" if (low, high) != (median, median) else "")


def footnotes(content: Content) -> list[str]:
    """The list below a table: where and when it was measured, notes (series of figures stay in the result file), what
    was skipped, how to reproduce it."""
    notes = [f"{name}: {told(value)}" for name, value in content["notes"].items() if len(told(value)) < LONG_NOTE]
    skipped = [f"skipped: {reason}" for reason in content["skipped"]]
    return [f"- {each}" for each in (provenance(content), *notes, *skipped, f"reproduce: `{content['command']}`")]


def provenance(content: Content) -> str:
    """The machine, the versions, the date and the commit of a case."""
    machine, versions = content["machine"], content["versions"]
    flags = [flag for flag in ("amx_bf16", "avx512f") if flag in machine["flags"]]
    used = machine.get("instruction set")  # older results do not say
    has = ", ".join(flags) or "no AVX-512" if used is None else f"instruction set {used}"
    has += f", limited by {machine['limit']}; the CPU has {', '.join(machine['flags'])}" if "limit" in machine else ""
    older = f"; {OUTDATED[content['commit']]}" if is_outdated(content) else ""
    return (
        f"{machine['cpu']}, {machine['cores']} cores ({has}), "
        f"Python {versions['python']}, torch {versions['torch']}, {content['date']}, commit {content['commit']}{older}"
    )


def is_outdated(content: Content) -> bool:
    """Whether the kernels that a case measured have been replaced since."""
    return content["case"] in BY_CPU and content["commit"] in OUTDATED


def told(value: Any) -> str:
    """A note's value in words."""
    if isinstance(value, dict):
        if len(value) > 1 and len(set(map(str, value.values()))) == 1:
            return f"all {next(iter(value.values()))}"
        return ", ".join(f"{name} {told(each)}" for name, each in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def comparison(files: list[Content]) -> str:
    """README.md's table, from the `embed` case: a row for each machine; differences are the largest of all machines."""
    names = ("float32", "bfloat16", "int8")
    rows = [["instruction set (CPU)", f"AllenNLP {files[0]['notes']['AllenNLP']}", *(f"`{name}`" for name in names)]]
    errors: dict[str, list[tuple[float, float]]] = {name: [] for name in names}
    for content in files:
        machine = content["machine"]
        sides = {each.side.removeprefix("elmo_fast, "): each for each in content["rows"] if each.variant == BATCHES}
        carried = next((each for name, each in content["notes"].items() if "state is carried" in name), {})
        for name in filter(sides.get, names):
            errors[name].append((sides[name].error, float(carried[name])))
        cells = (f"{number(sides[n].median)} (**{number(sides[n].ratio)}x**)" if n in sides else "" for n in names)
        limited = ", a CPU with AVX-512 limited to it" if "limit" in machine and "avx512f" in machine["flags"] else ""
        older = f", {content['date'].split()[0]}, older code" if is_outdated(content) else ""
        told_machine = f"{machine.get('instruction set', 'amx')} ({machine['cpu']}{limited}{older})"
        rows.append([told_machine, number(sides["AllenNLP"].median), *cells])
    worst = (map(max, zip(*errors[name], strict=True)) for name in names)
    last = (" / ".join(small(each) if each < 0.01 else number(each) for each in pair) for pair in worst)
    rows.append(["largest difference, stateless / carried state", "", *last])
    return "\n".join([*table("lrrrr", *rows), "", *(f"- {provenance(each)}" for each in files)])


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
    names = ("kind", "kills", "runs", "equal")
    rows = [[str(each[name]) for name in names] for each in content["kinds"]]
    lines = table("lrrr", ["killed", "kills", "runs", "of these ended as the undisturbed run"], *rows)
    kills, runs, equal = (sum(each[name] for each in content["kinds"]) for name in names[1:])
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
    lines = [["what", "goal", "ours", "floor", "share of it", "rivals"]]
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
    return "\n".join([*table("llrrrl", *lines), "", *(f"- {each}" for each in said)])


def gpu_line(variant: str, rows: list[GpuRow]) -> list[str]:
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
    aims = "; ".join(results.told_aims(ours.aims, "**not reached**"))
    rivals = [
        f"{each.side} {figure(each)} ({number(ours.median / each.median if rate else each.median / ours.median)} x)"
        for each in best.values()
        if not each.ours
    ]
    floor = "" if ours.floor is None else f"{number(ours.floor)} ({ours.bound})"
    share = "" if ours.share is None else f"{number(100 * ours.share)} %"
    return [variant, aims, f"**{figure(ours)}**{launched}", floor, share, ", ".join(rivals)]


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
    """The score of `make mutants` and what survived it."""
    survivors, equivalent = content["survivors"], content["equivalent"]
    real = content["judged"] - len(equivalent)
    none = content["refused"] + content["same"]
    share = number(100 * content["killed"] / max(1, real))
    fewer = "" if content["judged"] == content["asked"] else f" of the {content['asked']} asked for, in the time given"
    lines = [
        f"{content['judged']} mutants{fewer} (seed {content['seed']}): {len(equivalent)} change nothing that a test "
        f"could see (`tools/mutants/equivalents.toml` explains each); of the other {real} the tests killed "
        f"{content['killed']}, {share} %, and {len(survivors)} survived. {none} more do not count: the compiler "
        f"refused them or produced the same object. Left out: {'; '.join(content['left_out'])}."
    ]
    if survivors:
        lines += ["", *table("lll", ["survived", "before", "after"], *map(mutant_line, survivors))]
    if content.get("first_draws"):
        lines += ["", *map(first_draw_line, content["first_draws"])]
    machine, versions = content["machine"], content["versions"]
    about = (
        f"{machine['cpu']}, Python {versions['python']}, torch {versions['torch']}, {content['date']}, "
        f"commit {content['commit']}, `{' '.join(content['options'])}`. Reproduce: `{content['command']}`."
    )
    return "\n".join([*lines, "", about])


def first_draw_line(draw: Content) -> str:
    """The score of mutants that no test was written for."""
    real = draw["judged"] - draw["explained"]
    return (
        f"First draw of seed {draw['seed']}{', ' + draw['only'] if draw['only'] else ''}: {draw['judged']} mutants, "
        f"{draw['explained']} known to change nothing; of the other {real} the tests killed {draw['killed']}, "
        f"{number(100 * draw['killed'] / max(1, real))} % ({draw['date'].split()[0]}, commit {draw['commit']})."
    )


def mutant_line(each: Content) -> list[str]:
    """One mutant's cells: the file, the line before and after."""
    codes = [f"`` {each[name]} ``".replace("|", "\\|") for name in ("before", "after")]
    return [f"`{each['file']}`", *codes]


def fuzz(content: Content) -> str:
    """The runs of `make fuzz`, each with its commit: how many cases of what, and how many different findings."""
    rows = [["commit", "date", "ops", "files", "command lines", "findings"]]
    for run in content["runs"]:
        sums = dict.fromkeys(("ops", "files", "command lines"), 0)
        for target, cases in run["cases"].items():
            kind = "ops" if target.startswith("op_") else "command lines" if target == "command_line" else "files"
            sums[kind] += cases
        counts = [f"{cases:,}" for cases in sums.values()]
        rows.append([run["commit"], run["date"].split()[0], *counts, str(len(run["findings"]))])
    about = content["runs"][-1]
    versions = ", ".join(f"{name} {about['versions'][name]}" for name in ("python", "torch", "numpy", "h5py"))
    total = sum(sum(run["cases"].values()) for run in content["runs"])
    summary = f"{total:,} cases in all; {about['machine']['cpu']}, {versions}. Reproduce: `make fuzz SECONDS=3600`."
    return "\n".join([*table("llrrrr", *rows), "", summary])


def scaling_measured(content: Content) -> str:
    """Bytes that a process sends in a step, predicted and measured."""
    rows = [["processes", "dense, MB", "ids, MB", "rows, MB", "predicted, MB", "measured, MB", "measured / predicted"]]
    for each in content["notes"]["measured"]:
        sizes = [each[name] for name in ("predicted_dense", "predicted_ids", "predicted_rows", "predicted", "sent")]
        shown = [f"{value / 1e6:.3f}" for value in sizes]
        how = ", exact shards" * each.get("exact", False)
        rows.append([f"{each['processes']:.0f}{how}", *shown, f"{each['sent'] / each['predicted']:.3f}"])
    return "\n".join(table("rrrrrrr", *rows))


def scaling_predicted(content: Content) -> str:
    """Seconds of a step on many GPUs."""
    columns = {
        "GPU alone, tokens/s": "{rate:.1f} M", "GPUs": "{gpus}", "U, M": "{union:.3f}", "compute, ms": "{compute:.1f}",
        "dense, ms (hidden)": "{dense:.1f} ({hidden:.1f})", "rows, ms": "{rows:.1f}", "step, ms": "{step:.1f}",
        "tokens/s": "{tokens:.1f} M", "efficiency": "{efficiency:.0%}", "first bottleneck": "{bottleneck}",
    }  # fmt: skip
    rows = [[form.format(**each) for form in columns.values()] for each in content["notes"]["predicted"]]
    return "\n".join(table("rrrrrrrrrl", [*columns], *rows))


def scaling_exact(content: Content) -> str:
    """Seconds of a step with exact shards on many GPUs."""
    columns = {
        "GPU alone, tokens/s": "{rate:.1f} M", "GPUs": "{gpus}", "compute, ms": "{compute:.1f}",
        "dense, ms": "{dense:.1f}", "rows, ms": "{rows:.1f}", "step, ms": "{step:.1f}",
        "without, ms": "{without:.1f}", "slower by": "{slower:.0%}",
    }  # fmt: skip
    rows = [[form.format(**each) for form in columns.values()] for each in content["notes"].get("exact", ())]
    return "\n".join(table("rrrrrrrr", [*columns], *rows))


# What is not the table of a case's rows: the result that it is made from, and how.
RENDERED: dict[str, tuple[str, Callable[[Content], str]]] = {
    "demo": ("demo", demo),
    "mutants": ("mutants", mutants),
    "torture": ("torture", torture),
    "fuzz": ("fuzz", fuzz),
    "scaling_measured": ("scaling", scaling_measured),
    "scaling_predicted": ("scaling", scaling_predicted),
    "scaling_exact": ("scaling", scaling_exact),
}


def render(name: str, folder: pathlib.Path = RESULTS) -> str:
    """The text that belongs between the markers of `name`."""
    if name == "gpu":
        return gpu(folder)
    if name == "gpu_predicted":
        return predict.table()
    case, function = ("embed", None) if name == "comparison" else RENDERED.get(name, (name, case_table))
    sets = reversed(INSTRUCTION_SETS)
    folders = [each for name in sets for each in (folder / name, *sorted(folder.glob(f"{name}-*")))]
    folders = folders if case in BY_CPU else [folder]
    if found := [content for each in folders if (content := results.load(each, case)) is not None]:
        return "\n\n".join(map(function, found)) if function else comparison(found)
    command = f"python -m benchmarks.run --case {case}" if case in CASES else f"make {case}"
    return f"(Not measured yet: `{command}` writes this.)"


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
