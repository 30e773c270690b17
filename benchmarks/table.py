"""Reduces benchmarks to medians and writes the tables of README.md and docs/.

`python -m benchmarks.table RUN.json` reads what pytest-benchmark wrote (`--benchmark-json RUN.json`), reduces the turns
of each side to a row of benchmarks/results/CPU/CASE.json, and rewrites the text between `<!-- bench:NAME -->` and
`<!-- /bench:NAME -->` on each page. Without a file it only rewrites the pages.
"""

import json
import pathlib
import re
import statistics
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from benchmarks import gpu_model
from benchmarks.machine import ROOT, significant

README = ROOT / "README.md"
RESULTS = ROOT / "benchmarks" / "results"
MARKED = re.compile(r"(<!-- bench:(\w+) -->\n).*?(<!-- /bench:\2 -->)", re.DOTALL)
LONG_NOTE = 180  # characters
INSTRUCTION_SETS = ("amx", "avx512_bf16", "avx512", "avx2", "neon", "none")
BATCHES = "batches of 32"  # of the case `embed`, in README.md
Content = dict[str, Any]
# Commits whose results say nothing of the present code, and why; a new measurement replaces them.
OUTDATED = dict.fromkeys(("d9d809a9534a", "91f561e6bc9e", "06e5610149b4"), "before the present tiles and LSTM code")


def cases() -> list[str]:
    """List the names of all cases: NAME of each bench_NAME.py, and of each mark `case(NAME)`."""
    names = set()
    for path in ROOT.glob("benchmarks/bench_*.py"):
        marks = "".join(re.findall(r"mark\.case\((.*)\)", path.read_text("utf-8")))
        names |= {path.stem.removeprefix("bench_"), *re.findall(r'"(\w+)"', marks)}
    return sorted(names)


# ---------------------------------------------------------------- from pytest-benchmark's file to rows


def reduce_run(run: Content) -> dict[str, Content]:
    """Return {case: content of its result file} of one file of pytest-benchmark."""
    about = dict(run["machine_info"]["elmo_fast"])
    contents: dict[str, Content] = {}
    values: dict[tuple[str, str, str], list[float]] = {}
    rows: dict[tuple[str, str, str], Content] = {}

    def add(case: str, value: float, **row: Any) -> None:
        key = case, row["variant"], row["side"]
        values.setdefault(key, []).append(value)
        rows.setdefault(key, {"threads": 1}).update({name: each for name, each in row.items() if each is not None})

    for each in run["benchmarks"]:
        info = dict(each["extra_info"])
        case, figures, notes = (info.pop(name) for name in ("case", "figures", "notes"))
        content = contents.setdefault(case, {"case": case, **about, "notes": {}, "skipped": [], "rows": []})
        content["command"], content["skipped"] = f"make bench CASE={case}", run.get("skipped", {}).get(case, [])
        content["notes"] |= notes
        if "variant" in info:
            amount, unit = info.pop("amount"), info["unit"]
            for seconds in each["stats"]["data"]:
                add(case, amount / seconds if unit.endswith("/s") else amount * seconds, **info)
        for figure in figures:
            other = figure.pop("case", case)
            contents.setdefault(other, {**content, "case": other, "rows": []})
            add(other, figure.pop("value"), **figure)
    for key, row in rows.items():
        low, middle, high = (significant(quantile(values[key], share)) for share in (0.2, 0.5, 0.8))
        contents[key[0]]["rows"].append({**row, "samples": len(values[key]), "median": middle, "p20": low, "p80": high})
    for content in contents.values():
        for row in content["rows"]:
            row["ratio"] = ratio(row, content["rows"])
    return contents


def ratio(row: Content, rows: Iterable[Content]) -> float | None:
    """Return how many times faster a row is than the side that it is compared with."""
    peers = [each for each in rows if each["variant"] == row["variant"] and each["side"] == row.get("against")]
    if not peers or peers[0] is row:
        return None
    peer = peers[0]["median"]
    return significant(row["median"] / peer if row["unit"].endswith("/s") else peer / row["median"])


def quantile(values: Sequence[float], share: float) -> float:
    """Return the value below which `share` of the values lie, interpolated."""
    if len(values) == 1:
        return values[0]
    return statistics.quantiles(values, n=100, method="inclusive")[round(share * 100) - 1]


def save(content: Content, folder: pathlib.Path = RESULTS) -> pathlib.Path:
    """Write a result to FOLDER/CPU/CASE.json, or FOLDER/GPU/CASE.json for a GPU's, and return the path."""
    card = content.get("gpu", {}).get("gpu")
    place = content["folder"] if card is None else "gpu-" + re.sub(r"\W+", "-", card.lower())
    path = folder / place / f"{content['case']}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    return path


def load(case: str, folder: pathlib.Path = RESULTS) -> list[Content]:
    """Read all results of a case, the best instruction set first."""

    def order(path: pathlib.Path) -> tuple[int, str]:
        name = path.parent.name.split("-")[0]
        return (INSTRUCTION_SETS.index(name) if name in INSTRUCTION_SETS else len(INSTRUCTION_SETS), str(path))

    paths = sorted([*folder.glob(f"{case}.json"), *folder.glob(f"*/{case}.json")], key=order)
    return [json.loads(path.read_text(encoding="utf-8")) for path in paths]


# ---------------------------------------------------------------- tables


def number(value: float) -> str:
    """Write three significant digits, thousands separated by commas: 12,300; 142; 1.64."""
    if value >= 100:
        digits = max(0, len(str(int(value))) - 3)
        return f"{round(value / 10**digits) * 10**digits:,}"
    return f"{value:.3g}"


def small(value: float) -> str:
    """Write an error: 3.1e-06 as 3.1e-6, zero as 0."""
    if value == 0:
        return "0"
    mantissa, exponent = f"{value:.1e}".split("e")
    return f"{mantissa}e{int(exponent)}"


def markdown(align: str, *rows: Sequence[str]) -> list[str]:
    """Return the lines of a table, its heading first; align: "l" or "r" for each column."""
    heading, *others = rows
    sides = [{"l": ":--", "r": "--:"}[each] for each in align]
    return [f"| {' | '.join(cells)} |" for cells in (heading, sides, *others)]


def case_table(content: Content) -> str:
    """Return every row of a case (medians with the 20th and 80th percentile, ratio, error) and its footnotes."""
    columns: dict[str, Callable[[Content], str]] = {
        "what": lambda row: row["variant"],
        "side": lambda row: row["side"],
        "threads": lambda row: str(row["threads"]),
        "median (p20 to p80)": spread,
    }
    if any(row.get("ratio") is not None for row in content["rows"]):
        columns["speed-up"] = lambda row: (
            "" if row.get("ratio") is None else f"**{number(row['ratio'])}x** {row['against']}"
        )
    if any(row.get("error") is not None for row in content["rows"]):
        columns["largest difference"] = lambda row: (
            "" if row.get("error") is None else f"{small(row['error'])} from {row['error_to']}"
        )
    rows = [[cell(row) for cell in columns.values()] for row in content["rows"]]
    notes = [f"{name}: {words(value)}" for name, value in content["notes"].items() if len(words(value)) < LONG_NOTE]
    skipped = [f"skipped: {reason}" for reason in content["skipped"]]
    footnotes = [provenance(content), *notes, *skipped, f"reproduce: `make bench CASE={content['case']}`"]
    return "\n".join(
        [*markdown("ll".ljust(len(columns), "r"), [*columns], *rows), "", *(f"- {each}" for each in footnotes)]
    )


def spread(row: Content) -> str:
    """Write a median with its percentiles; a figure that does not vary stands alone."""
    middle, low, high = (number(row[name]) for name in ("median", "p20", "p80"))
    return f"{middle} {row['unit']}" + (f" ({low} to {high})" if (low, high) != (middle, middle) else "")


def processor(content: Content) -> str:
    """Name the CPU, the instruction set, and the limit where one was set."""
    machine = content["machine"]
    used = machine.get("instruction set")  # older results do not say
    limit = f", limited by {machine['limit']}" if "limit" in machine else ""
    limit += " on a CPU with AVX-512" if limit and "avx512f" in machine["flags"] else ""
    return f"{machine['cpu']} ({used or 'amx'}{limit})"


def provenance(content: Content) -> str:
    """Name machine, versions, date and commit of a result."""
    machine, versions, card = content["machine"], content["versions"], content.get("gpu")
    where = f"{processor(content)}, {machine['cores']} cores"
    older = f"; {OUTDATED[content['commit']]}" if content["commit"] in OUTDATED else ""
    if card:
        where = f"{card['gpu']}, driver {card['driver']}, CUDA {card['cuda']}, Triton {versions.get('triton')}"
    return (
        f"{where}, Python {versions['python']}, torch {versions['torch']}, {content['date']}, "
        f"commit {content['commit']}{older}{', QUICK: no figure means anything' * content.get('quick', False)}"
    )


def words(value: Any) -> str:
    """Write a note's value."""
    if isinstance(value, dict):
        if len(value) > 1 and len(set(map(str, value.values()))) == 1:
            return f"all {next(iter(value.values()))}"
        return ", ".join(f"{name} {words(each)}" for name, each in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def comparison(contents: list[Content]) -> str:
    """Return README.md's table of the case `embed`: a row for each machine, the largest differences of all machines."""
    names = ("float32", "bfloat16", "int8")
    rows = [["CPU (instruction set)", f"AllenNLP {contents[0]['notes']['AllenNLP']}", *(f"`{name}`" for name in names)]]
    errors: dict[str, list[tuple[float, float]]] = {name: [] for name in names}
    for content in contents:
        sides = {
            each["side"].removeprefix("elmo_fast, "): each for each in content["rows"] if each["variant"] == BATCHES
        }
        carried = next((each for name, each in content["notes"].items() if "state is carried" in name), {})
        for name in filter(sides.get, names):
            errors[name].append((sides[name]["error"], float(carried[name])))
        cells = (
            f"{number(sides[n]['median'])} (**{number(sides[n]['ratio'])}x**)" if n in sides else "" for n in names
        )
        older = ", older code" if content["commit"] in OUTDATED else ""
        rows.append(
            [f"{processor(content)}, {content['date'].split()[0]}{older}", number(sides["AllenNLP"]["median"]), *cells]
        )
    worst = (map(max, zip(*errors[name], strict=True)) for name in names)
    last = (" / ".join(small(each) if each < 0.01 else number(each) for each in pair) for pair in worst)
    rows.append(["largest difference, stateless / carried state", "", *last])
    return "\n".join([*markdown("lrrrr", *rows), "", *(f"- {provenance(each)}" for each in contents)])


def demo(content: Content) -> str:
    """Say in one sentence how `make demo` ended."""
    before, after = content["rows"]
    machine, notes = content["machine"], content["notes"]
    return (
        f"On {machine['cores']} cores ({machine['cpu']}) it took {notes['seconds in all']} s, and the perplexity of "
        f"{notes['held-out words']} held-out words fell from {number(before['median'])} to {number(after['median'])}, "
        f"{number(before['median'] / after['median'])} times lower."
    )


def torture(content: Content) -> str:
    """Return what `make torture` killed, how often, and how it ended."""
    names = ("kind", "kills", "runs", "equal")
    rows = [[str(each[name]) for name in names] for each in content["kinds"]]
    lines = markdown("lrrr", ["killed", "kills", "runs", "of these ended as the undisturbed run"], *rows)
    kills, runs, equal = (sum(each[name] for each in content["kinds"]) for name in names[1:])
    differing = "".join(f" **Differs**: {failure}." for failure in content["failures"])
    summary = f"{kills} kills of {runs} runs, {equal} ended equal.{differing}"
    return "\n".join([*lines, "", f"{summary} {provenance(content)}. Reproduce: `{content['command']}`."])


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
    return "\n".join([*markdown("llrrrr", *rows), "", summary])


# Markers that are not the table of a case's rows: the case whose result they render, and how.
RENDERED: dict[str, tuple[str, Callable[[Content], str]]] = {
    "demo": ("demo", demo),
    "torture": ("torture", torture),
    "fuzz": ("fuzz", fuzz),
}


def render(name: str, folder: pathlib.Path = RESULTS) -> str:
    """Return the text that belongs between the markers of `name`."""
    case, function = ("embed", None) if name == "comparison" else RENDERED.get(name, (name, case_table))
    if name == "gpu_counts":
        return gpu_model.table()
    if contents := load(case, folder):
        return "\n\n".join(map(function, contents)) if function else comparison(contents)
    if name == "gpu":
        return "No GPU has run these kernels yet, so there is no figure (`make gpu` on a machine with one writes them)."
    return f"(Not measured yet: `make {f'bench CASE={case}' if case in cases() else case}` writes this.)"


def filled(text: str, folder: pathlib.Path = RESULTS) -> str:
    """Return `text` with the text between its markers written again."""
    return MARKED.sub(lambda match: match[1] + render(match[2], folder) + "\n" + match[3], text)


def main(arguments: Sequence[str]) -> int:
    """Reduce the files of pytest-benchmark that are named, and rewrite the pages whose tables differ."""
    for argument in arguments:
        for content in reduce_run(json.loads(pathlib.Path(argument).read_text(encoding="utf-8"))).values():
            if content.get("quick"):
                print(f"{content['case']}: a quick run is not saved\n{case_table(content)}")
            else:
                print(f"{content['case']} -> {save(content).relative_to(ROOT)}")
    for page in (README, *sorted((ROOT / "docs").glob("*.md"))):
        text = page.read_text(encoding="utf-8")
        if (new := filled(text)) != text:
            page.write_text(new, encoding="utf-8")
            print(f"rewrote the tables of {page.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
