"""The masks of the kernels' sources, and why some of them may be taken away without a test being red.

They are named by the folder of their op and their text, in whichever file that stands.
A mask of the source is what guards each instruction that its load or store became; `breaks.py` takes them all away at
once. Guards that Triton itself adds (one of the threads that hold a number stores it) have no mask in the source.
"""

import ast
import collections
import functools
import pathlib

from tests.ptx.program import Instruction

OPS = pathlib.Path(__file__).parents[2] / "elmo_fast" / "ops"

CLAMPED = (
    "the word was clamped before: without the mask rows past the last would read a word's number, which is not stored"
)
PATH = "past a path its last step is read again, and is worth nothing; unread it costs nothing"
LEFT = {
    "char_cnn: tl.load(bias_sums + place, mask=known, other=0.0)": (
        "the sums fill whole tiles: there are more than are stored; unread they cost nothing"
    ),
    "hierarchical_softmax: tl.load(bias + node * bias_step, mask=on, other=0.0)": PATH,
    "hierarchical_softmax: tl.load(codes + step, mask=on, other=0)": PATH,
    "hierarchical_softmax: tl.load(nodes + step, mask=(j < longest) & (length > 0), other=0)": PATH,
    "highway: tl.load(bias_ptr + c, mask=within, other=0.0)": (
        "beyond the transform's biases lie the gate's, for columns that are not stored"
    ),
    "ops: tl.load(bias + word * bias_step, mask=inside, other=0.0)": CLAMPED,
    "ops: tl.load(law + word, mask=inside, other=0.0)": CLAMPED,
}
"""what `call` gives -> why neither an error nor another result shows that its mask is gone"""


@functools.cache
def calls(path: str) -> list[tuple[ast.Call, str]]:
    """The loads and stores with a mask in a file "folder/name", the innermost last, each with its text in one line."""
    root = OPS.parent if path.startswith("ops/") else OPS
    found = ast.walk(ast.parse((root / path).read_text(encoding="utf-8")))
    return [
        (each, f"{path.split('/')[0]}: {ast.unparse(each)}")
        for each in found
        if isinstance(each, ast.Call)
        and isinstance(each.func, ast.Attribute)
        and each.func.attr in ("load", "store")
        and any(keyword.arg == "mask" for keyword in each.keywords)
    ]


@functools.cache
def all_of_them() -> frozenset[str]:
    """The text of each masked load and store of the package's kernels."""
    return frozenset(text for path in OPS.rglob("*.py") for _, text in calls(f"{path.parent.name}/{path.name}"))


def call(source: str) -> str | None:
    """The masked load or store of the kernel's source that an instruction was made of, if it was made of one."""
    path, line, column = source.split(":")
    at = int(line), int(column) - 1
    for each, text in reversed(calls(path)):
        if (each.lineno, each.col_offset) <= at <= (each.end_lineno, each.end_col_offset):
            return text
    return None


def masked(code: list[Instruction]) -> dict[str, list[int]]:
    """The text of each masked load and store -> the numbers of the instructions that its mask guards."""
    found = collections.defaultdict(list)
    for number, i in enumerate(code):
        guarded = i.opcode in ("ld", "st") and i.guard is not None and "global" in i.modifiers
        if (guarded or (i.opcode == "cp" and len(i.operands) > 3)) and (text := call(i.source)):
            found[text].append(number)
    return found
