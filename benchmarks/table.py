"""Reduces benchmarks to medians and writes the tables of README.md and docs/.

`python -m benchmarks.table RUN.json` reads what pytest-benchmark wrote (`--benchmark-json RUN.json`), reduces the turns
of each side to a row of benchmarks/results/CPU/CASE.json, and rewrites the text between `<!-- bench:NAME -->` and
`<!-- /bench:NAME -->` on each page, the chart docs/benchmarks.svg and the appendix docs/benchmarks.csv. Without a file
it only rewrites these. `python -m benchmarks.table --compare BEFORE.json AFTER.json` prints the medians of two such
files and their ratios, `--show RUN.json ...` every row of some, and both write nothing.
"""

import csv
import io
import json
import pathlib
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from benchmarks.machine import ROOT, significant

README = ROOT / "README.md"
DOCS = ROOT / "docs"
CHART, APPENDIX = DOCS / "benchmarks.svg", DOCS / "benchmarks.csv"
RESULTS = ROOT / "benchmarks" / "results"
MARKED = re.compile(r"(<!-- bench:(\w+) -->\n).*?(<!-- /bench:\2 -->)", re.DOTALL)
LONG_NOTE = 180  # characters
INSTRUCTION_SETS = ("amx", "avx512_bf16", "avx512", "avx2", "neon", "none")
BATCHES = "batches of 32"  # of the case `embed`, in README.md
EQUAL = "32 x 20 words"  # of the case `onnx`, in README.md
STEP = "one step, 8 x 20"  # of the case `train_step`
Content = dict[str, Any]


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
    about = dict(run["elmo_fast"])
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
        content["command"], content["skipped"] = command(content), run.get("skipped", {}).get(case, [])
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
        low, middle, high = map(significant, np.quantile(values[key], [0.2, 0.5, 0.8]))
        contents[key[0]]["rows"].append({**row, "samples": len(values[key]), "median": middle, "p20": low, "p80": high})
    for content in contents.values():
        for row in content["rows"]:
            row["ratio"] = ratio(row, content["rows"])
    return contents


def command(content: Content) -> str:
    """Return the command that measures a case again."""
    return "make gpu" if "gpu" in content else f"make bench CASE={content['case']}"


def ratio(row: Content, rows: Iterable[Content]) -> float | None:
    """Return how many times faster a row is than the side that it is compared with."""
    peers = [each for each in rows if each["variant"] == row["variant"] and each["side"] == row.get("against")]
    if not peers or peers[0] is row or row["median"] == 0:  # a replay of a CUDA graph allocates nothing
        return None
    peer = peers[0]["median"]
    return significant(row["median"] / peer if row["unit"].endswith("/s") else peer / row["median"])


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
    heading, *others = (f"| {' | '.join(cells)} |" for cells in rows)
    return [heading, f"|{'|'.join({'l': ':--', 'r': '--:'}[each] for each in align)}|", *others]


def case_table(content: Content) -> str:
    """Return every row of a case (medians with the 20th and 80th percentile, ratio, error) and its footnotes.

    Threads have a column where a row has more than one.
    """
    rows = [["what", "side", "threads", "median (p20 to p80)", "speed-up", "largest difference"]]
    for row in content["rows"]:
        middle, low, high = (number(row[name]) for name in ("median", "p20", "p80"))
        spread = f" ({low} to {high})" if (low, high) != (middle, middle) else ""
        gain = "" if row.get("ratio") is None else f"**{number(row['ratio'])}x** {row['against']}"
        error = "" if row.get("error") is None else f"{small(row['error'])} from {row['error_to']}"
        cells = row["variant"], row["side"], str(row["threads"]), f"{middle} {row['unit']}{spread}", gain, error
        rows.append([*cells])
    filled = [index for index in range(6) if index in (0, 1, 3) or any(row[index] not in ("", "1") for row in rows[1:])]
    rows = [[row[index] for index in filled] for row in rows]
    notes = [f"{name}: {words(value)}" for name, value in content["notes"].items() if len(words(value)) < LONG_NOTE]
    skipped = [f"skipped: {reason}" for reason in content["skipped"]]
    footnotes = [provenance(content), *notes, *skipped, f"reproduce: `{command(content)}`"]
    return "\n".join([*markdown("ll".ljust(len(filled), "r"), *rows), "", *(f"- {each}" for each in footnotes)])


def processor(content: Content) -> str:
    """Name the CPU, the instruction set if the result has it, and the limit where one was set."""
    machine = content["machine"]
    limit = f"limited by {machine['limit']}" if "limit" in machine else ""
    limit += " on a CPU with AVX-512" if limit and "avx512f" in machine["flags"] else ""
    about = ", ".join(filter(None, [machine.get("instruction set"), limit]))
    return f"{machine['cpu']} ({about})" if about else machine["cpu"]


def machine_of(content: Content) -> str:
    """Name the machine and the versions of a result."""
    versions, card = content["versions"], content.get("gpu")
    where = f"{processor(content)}, {content['machine']['cores']} cores"
    if card:
        where = f"{card['gpu']}, driver {card['driver']}, CUDA {card['cuda']}, Triton {versions.get('triton')}"
    return f"{where}, Python {versions['python']}, torch {versions['torch']}"


def provenance(content: Content) -> str:
    """Name machine, versions, date and commit of a result."""
    return (
        f"{machine_of(content)}, {content['date']}, "
        f"commit {content['commit']}{', QUICK: no figure means anything' * content.get('quick', False)}"
    )


def words(value: Any) -> str:
    """Write a note's value."""
    if isinstance(value, dict):
        if len(value) > 1 and len(set(map(str, value.values()))) == 1:
            return f"all {next(iter(value.values()))}"
        return ", ".join(f"{name} {words(each)}" for name, each in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


# Tables of the summary: what is measured, its case, and its columns (heading, variant, side).
SUMMARY = (
    (
        "Vectors, original model",
        "embed",
        (
            ("`float32`", BATCHES, "elmo_fast, float32"),
            ("`bfloat16`", BATCHES, "elmo_fast, bfloat16"),
            ("`int8`", BATCHES, "elmo_fast, int8"),
            ("`int8`, one sentence at a time", "batches of 1", "elmo_fast, int8"),
        ),
    ),
    (
        "Vectors of sentences of 20 words, original model",
        "onnx",
        (
            ("`float32`", EQUAL, "elmo_fast, float32"),
            ("`int8`", EQUAL, "elmo_fast, int8"),
            ("`int8` of ONNX Runtime", EQUAL, "ONNX Runtime, int8"),
            ("`int8`, one sentence at a time", "1 x 20 words", "elmo_fast, int8"),
        ),
    ),
    (
        "A training step, original model",
        "train_step",
        (("`float32`", STEP, "elmo_fast, float32"), ("`bfloat16`", STEP, "elmo_fast, bfloat16")),
    ),
    ("Pretraining, preset `small`", "pretrain", (("`float32`", "training, small", "elmo_fast, float32"),)),
    ("An epoch of GloVe", "static", (("elmo_fast", "training", "elmo_fast"),)),
)
Columns = Sequence[tuple[str, str, str]]


def summary(folder: pathlib.Path = RESULTS) -> str:
    """Return the most important figures: a table for each kind of work, in it a row for each machine."""
    tables = [summary_table(title, load(case, folder), columns) for title, case, columns in SUMMARY]
    return "\n\n".join(filter(None, tables))


def summary_table(title: str, contents: Iterable[Content], columns: Columns) -> str:
    """Return the table of a kind of work: for each machine, the other side's speed, then each column's and its gain.

    "" if no machine measured it.
    """
    rows, errors = list[list[str]](), dict[str, float]()
    heading = list[str]()
    for content in contents:
        of = {(each["variant"], each["side"]): each for each in reversed(content["rows"])}
        cells = {name: row for name, variant, side in columns if (row := of.get((variant, side)))}
        if (first := cells.get(columns[0][0])) is None:
            raise KeyError(f"{content['case']}, {content['machine']['cpu']}: no row {columns[0][1:]} for the summary")
        peer = of.get((first["variant"], first.get("against")))
        others = {peer["side"]: peer} if peer else {}
        heading = [f"{title}, {first['unit']}", *others, *(name for name, _, _ in columns)]
        texts = {name: speed_and_gain(row) for name, row in (others | cells).items()}
        rows.append([f"{processor(content)}; {content['date'].split()[0]}", *(texts.get(n, "") for n in heading[1:])])
        for name, row in cells.items():
            errors[name] = max(errors.get(name, 0.0), row.get("error") or 0.0)
    if any(errors.values()):
        largest = [small(errors[name]) if errors.get(name) else "" for name in heading[2:]]
        rows.append([f"largest difference from {heading[1]}", "", *largest])
    return "\n".join(markdown("l".ljust(len(heading), "r"), heading, *rows)) if rows else ""


def speed_and_gain(row: Content) -> str:
    """Write a median and, in brackets, how many times faster it is than the side that it is compared with."""
    gain = f" ({number(row['ratio'])}x)" if row.get("ratio") else ""
    return number(row["median"]) + gain


MODELS = {"small": (256, 128), "original": (4096, 1024)}  # cells and 2D of the models of benchmarks/inputs.py


def costs(content: Content) -> str:
    """Return time, memory and disk of `elmo-fast embed` for 100 million tokens on a machine, by the model."""
    rows = [
        ["model", "tokens/s, one core", "100 M tokens, hours", "memory", "disk, `average`, f16", "disk, `all`, f32"]
    ]
    of = {each["variant"]: each["median"] for each in reversed(content["rows"]) if each["threads"] == 1}
    for model, (cells, width) in MODELS.items():
        speed, memory = of[f"embed, {model}"], of.get(f"resident memory, {model}")
        disk = [f"{number(1e8 * width * size / 1e9)} GB" for size in (2, 3 * 4)]
        used = "not measured" if memory is None else f"{number(memory)} MiB"
        rows.append([f"2 x {cells} cells, {width} numbers", number(speed), number(1e8 / speed / 3600), used, *disk])
    return "\n".join([f"On {provenance(content)}:", "", *markdown("lrrrrr", *rows)])


def precision(contents: list[Content]) -> str:
    """Return what rounding costs: a row for each precision."""
    rows = [["precision", "RMS error, top layer", "held-out perplexity", "tags right"]]
    values = {(each["variant"], each["side"]): f"{number(each['median'])}" for each in contents[0]["rows"]}
    for name in ("float32", "bfloat16", "float16", "int8"):
        side = f"elmo_fast, {name}"
        kinds = "layer 2, RMS error", "held-out text", "tagger over it"
        error, perplexity, tags = (values.get((kind, side)) for kind in kinds)
        rows.append([f"`{name}`", f"{error} %" if error else "", perplexity or "", f"{tags} %" if tags else ""])
    notes = contents[0]["notes"]
    return "\n".join([*markdown("lrrr", *rows), "", f"Model: {notes['model']}. {provenance(contents[0])}."])


COLORS = {"float32": "#4c78a8", "bfloat16": "#f58518", "int8": "#54a24b"}  # of ours; a rival's is grey


def chart(folder: pathlib.Path = RESULTS) -> str:
    """Return README.md's chart as SVG: tokens per second of `embed` and `onnx`, a group of bars for each machine."""
    left, bar, top, width = 132, 18, 34, 760
    charted = (("embed", BATCHES, ""), ("onnx", EQUAL, ", sentences of 20 words"))
    rows = [
        (content, more, [each for each in content["rows"] if each["variant"] == variant])
        for case, variant, more in charted
        for content in load(case, folder)
    ]
    most = max((row["median"] for _, _, each in rows for row in each), default=1)
    lines, y = list[str](), top
    for content, more, each in rows:
        name = processor(content)
        if " family " not in name:  # measured before results had it: else this would read as every CPU of that name
            name = name.replace(" (", ", model not recorded (", 1)
        lines.append(f'<text x="8" y="{y + 12}" font-weight="bold">{name}{more}</text>')
        y += bar
        for row in each:
            name = row["side"].removeprefix("elmo_fast, ")
            length = round(row["median"] / most * (width - left - 190))
            color = COLORS.get(name, "#9aa0a6")
            lines += [
                f'<rect x="{left + 16}" y="{y}" width="{length}" height="{bar - 4}" fill="{color}"/>',
                f'<text x="{left + 10}" y="{y + 11}" text-anchor="end">{name}</text>',
                f'<text x="{left + 22 + length}" y="{y + 11}">{speed_and_gain(row)}</text>',
            ]
            y += bar
        y += bar // 2
    title = "Tokens per second on one core: original ELMo (93.6 M weights), batches of 32"
    head = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {y}" font-family="sans-serif" font-size="12">',
        f'<rect width="{width}" height="{y}" fill="white"/>',
        f'<text x="8" y="20" font-size="14">{title}</text>',
    ]
    return "\n".join([*head, *lines, "</svg>\n"])


FIGURES = "median", "unit", "p20", "p80", "speed_up", "against", "error", "error_to"
COLUMNS = "case", "what", "side", "threads", *FIGURES


def appendix(folder: pathlib.Path = RESULTS) -> str:
    """Return every row of every result, and where it comes from, as CSV."""
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow([*COLUMNS, "machine", "date", "commit"])
    for case in sorted({path.stem for path in folder.rglob("*.json")}):
        for content in load(case, folder):
            about = machine_of(content) if content.get("rows") else ""
            for row in content.get("rows", ()):
                values = {"case": case, "what": row["variant"], "speed_up": row.get("ratio"), **row}
                table.writerow([*map(values.get, COLUMNS), about, content["date"], content["commit"]])
    return text.getvalue()


def torture(content: Content) -> str:
    """Say in one sentence what `make torture` killed, how often, and how it ended."""
    kinds = content["kinds"]
    kills, runs, equal = (sum(each[name] for each in kinds) for name in ("kills", "runs", "equal"))
    each_kind = ", ".join(f"{each['kind']} {each['kills']}" for each in kinds)
    differing = "".join(f" **Differs**: {failure}." for failure in content["failures"])
    return (
        f"{kills} kills ({each_kind}) of {runs} runs, {equal} ended as the undisturbed run.{differing} "
        f"{provenance(content)}. Reproduce: `{content['command']}`."
    )


def scaling(content: Content) -> str:
    """Return what a process sends in a step, measured and predicted: a row for each number of processes."""
    rows = [["sent by each of N processes in a step", "measured", "predicted"]]
    for variant in dict.fromkeys(row["variant"] for row in content["rows"]):
        of = {
            row["side"]: f"{number(row['median'])} {row['unit']}"
            for row in content["rows"]
            if row["variant"] == variant
        }
        rows.append(
            [
                variant.removeprefix("sent by one of ").removesuffix(" processes in a step"),
                of["measured"],
                of["predicted"],
            ]
        )
    shape = words(content["notes"]["shape"])
    return "\n".join(
        [*markdown("lrr", *rows), "", f"Shape: {shape}. {provenance(content)}. Reproduce: `{command(content)}`."]
    )


def fuzz(content: Content) -> str:
    """Say in one sentence what the runs of `make fuzz` tried and found."""
    sums = dict.fromkeys(("ops", "files", "command lines"), 0)
    for run in content["runs"]:
        for target, cases in run["cases"].items():
            kind = "ops" if target.startswith("op_") else "command lines" if target == "command_line" else "files"
            sums[kind] += cases
    first, last = (content["runs"][index] for index in (0, -1))
    counts = ", ".join(f"{cases:,} of {kind}" for kind, cases in sums.items())
    return (
        f"From {first['date'].split()[0]} to {last['date'].split()[0]}: {len(content['runs'])} runs, "
        f"{sum(sums.values()):,} cases ({counts}), {sum(len(run['findings']) for run in content['runs'])} findings, "
        f"{len(last['findings'])} of them in the last run (commit {last['commit']}). "
        "Reproduce: `make fuzz SECONDS=3600`."
    )


def gpu(contents: list[Content]) -> str:
    """Return the tables of GPUs without their rows of memory, which the appendix has."""
    return "\n\n".join(
        case_table({**each, "rows": [row for row in each["rows"] if row["unit"] != "MiB"]}) for each in contents
    )


GAIN = 1.2  # of a kernel of ours over torch: below, it is not worth its lines


def deleted_next(content: Content) -> str:
    """Return what beats the fastest rival by less than GAIN times: a row for each, the smallest gain first."""
    gains = []
    for variant in dict.fromkeys(
        row["variant"] for row in content["rows"] if "against" in row and row["unit"] != "MiB"
    ):
        rows = [row for row in content["rows"] if row["variant"] == variant]
        speed = {row["side"]: row["median"] if row["unit"].endswith("/s") else 1 / row["median"] for row in rows}
        own = {side: value for side, value in speed.items() if side.startswith("elmo_fast")}
        if own and (rivals := speed.keys() - own.keys()):
            side, rival = max(own, key=own.__getitem__), max(rivals, key=speed.__getitem__)
            gains.append((own[side] / speed[rival], variant, side, rival))
    rows = [(variant, side, rival, f"{number(gain)}x") for gain, variant, side, rival in sorted(gains) if gain < GAIN]
    heading = f"deleted next: less than {GAIN} times as fast as the rival", "fastest side", "fastest rival", "gain"
    return "\n".join(markdown("lllr", heading, *rows)) if rows else ""


def kernel_table(content: Content, most: int = 40) -> str:
    """Return the longest kernels of a training step."""
    kernels = content["notes"].get("kernels of a training step", [])
    total = sum(each["us"] for each in kernels)
    rows = [("kernel", "count", "us", "share", "registers", "spills")]
    for each in kernels[:most]:
        figures = str(each["count"]), number(each["us"]), f"{each['us'] / total:.0%}"
        rows.append((each["kernel"][:70], *figures, *(str(each[name] or "") for name in ("registers", "spills"))))
    return "\n".join([*markdown("lrrrrr", *rows), f"{len(kernels)} kernels, {number(total)} us"]) if kernels else ""


def show(run: Content) -> str:
    """Return every row of a file of pytest-benchmark, and the kernels of a step, to be printed."""
    parts = [f(each) for each in reduce_run(run).values() for f in (case_table, kernel_table)]
    return "\n\n".join(filter(None, parts))


def headline(contents: list[Content]) -> str:
    """Say in one sentence how fast one CPU core embeds with the original model, for the first screen of README.md."""
    rows = {row["side"].removeprefix("elmo_fast, "): row for row in contents[0]["rows"] if row["variant"] == BATCHES}
    exact, fastest = rows["float32"], max(rows.values(), key=lambda row: row.get("ratio") or 0)
    return (
        f"On one CPU core it embeds {number(exact['median'])} tokens per second with the original model, "
        f"{number(exact['ratio'])} times as many as {exact['against']}, and {number(fastest['ratio'])} times as many "
        f"in `{fastest['side'].removeprefix('elmo_fast, ')}` ([measurements](docs/benchmarks.md))."
    )


def gpu_summary(contents: list[Content]) -> str:
    """Say in one sentence, for the first screen of README.md, how fast a GPU trains and embeds, and when it did."""
    content, words = contents[0], []
    works = {
        "trains on": "training step, 128 x 20, 793,471 words, bfloat16",
        "embeds": "embed, 128 x 20, bfloat16",
    }
    for verb, work in works.items():
        rows = [r for r in content["rows"] if r["variant"] == work and r["side"].startswith("elmo_fast")]
        best = max(rows, key=lambda row: row["median"])
        ratio = f" ({number(best['ratio'])} times as many as plain torch)" if best["ratio"] else ""
        words.append(f"{verb} {number(best['median'])} tokens per second{ratio}")
    return (
        f"On an {content['gpu']['gpu']}, in `bfloat16`, the original model {' and '.join(words)} "
        f"({content['date'][:10]}, commit {content['commit'][:7]}; [measurements](docs/benchmarks.md#on-a-gpu))."
    )


# Markers that are not the table of a case's rows: the case whose results they render, and how.
RENDERED: dict[str, tuple[str, Callable[[list[Content]], str]]] = {
    "gpu": ("gpu", gpu),
    "gpu_summary": ("gpu", gpu_summary),
    "headline": ("embed", headline),
    "torture": ("torture", lambda contents: torture(contents[0])),
    "scaling": ("scaling", lambda contents: scaling(contents[0])),
    "fuzz": ("fuzz", lambda contents: fuzz(contents[0])),
    "costs": ("embed_file", lambda contents: "\n\n".join(map(costs, contents))),
    "precision": ("precision", precision),
}


def render(name: str, folder: pathlib.Path = RESULTS) -> str:
    """Return the text that belongs between the markers of `name`."""
    if name == "summary":
        return summary(folder)
    case, function = RENDERED.get(name, (name, lambda contents: "\n\n".join(map(case_table, contents))))
    if contents := load(case, folder):
        return function(contents)
    if name == "gpu":
        return "Not measured yet: `make gpu` on a machine with a GPU writes the figures."
    return f"(Not measured yet: `make {f'bench CASE={case}' if case in cases() else case}` writes this.)"


def filled(text: str, folder: pathlib.Path = RESULTS) -> str:
    """Return `text` with the text between its markers written again."""
    return MARKED.sub(lambda match: match[1] + render(match[2], folder) + "\n" + match[3], text)


def written() -> dict[pathlib.Path, str]:
    """Return every file that this module writes, and its text by the results."""
    pages = (README, *sorted(DOCS.glob("*.md")))
    return {page: filled(page.read_text(encoding="utf-8")) for page in pages} | {CHART: chart(), APPENDIX: appendix()}


def comparison(before: Content, after: Content) -> str:
    """Return the medians of two files of pytest-benchmark, and how many times faster the second is."""
    rows = [["what", "side", "before", "after", "speed-up"]]
    old, new = (
        {
            (case, row["variant"], row["side"]): row
            for case, content in reduce_run(run).items()
            for row in content["rows"]
        }
        for run in (before, after)
    )
    for key in filter(old.get, new):
        was, now = {**old[key], "side": "before"}, {**new[key], "against": "before"}
        if was["median"] and (gain := ratio(now, [was])) is not None:
            medians = [f"{number(each['median'])} {each['unit']}" for each in (was, now)]
            rows.append([*key[1:], *medians, f"{gain:.2f}x"])
    return "\n".join(markdown("llrrr", *rows))


def measured(run: Content) -> tuple[str, str | None]:
    """Return the commit and the GPU of a run: only runs that share both can be one result."""
    return run["elmo_fast"]["commit"], run["elmo_fast"].get("gpu", {}).get("gpu")


def main(arguments: Sequence[str]) -> int:
    """Reduce the files of one machine that are named, and rewrite the pages whose tables differ."""
    if arguments[:1] == ["--compare"]:
        print(comparison(*(json.loads(pathlib.Path(path).read_text(encoding="utf-8")) for path in arguments[1:])))
        return 0
    shows, arguments = arguments[:1] == ["--show"], [each for each in arguments if each != "--show"]
    texts = [pathlib.Path(argument).read_text(encoding="utf-8") for argument in arguments]
    runs = [json.loads(text) for text in texts if text]  # a run that was stopped leaves an empty file
    if runs:
        newest = measured(max(runs, key=lambda run: run["elmo_fast"]["date"]))
        if others := sum(measured(run) != newest for run in runs):
            print(f"{others} of these files are of a different commit or GPU than the newest one, and left out")
        runs = [run for run in runs if measured(run) == newest]
        skipped: dict[str, list[str]] = {}
        for case, reasons in [each for run in runs for each in run.get("skipped", {}).items()]:
            skipped[case] = [*dict.fromkeys([*skipped.get(case, []), *reasons])]
        run = {**runs[-1], "benchmarks": [each for run in runs for each in run["benchmarks"]], "skipped": skipped}
        if shows:
            print(show(run))
            return 0
        for content in reduce_run(run).values():
            if content.get("quick"):
                print(f"{content['case']}: a quick run is not saved\n{case_table(content)}")
            else:
                print(f"{content['case']} -> {save(content).relative_to(ROOT)}")
                print(deleted_next(content) if "gpu" in content else case_table(content))
    for page, new in written().items():
        if not page.exists() or page.read_text(encoding="utf-8") != new:
            page.write_text(new, encoding="utf-8")
            print(f"rewrote {page.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
