"""PTX text as instructions: what Triton and nvcc write for sm_80, in the terms of the PTX ISA."""

import functools
import re
from typing import NamedTuple

SPECIAL = ("tid", "ctaid", "ntid", "nctaid", "laneid", "warpid", "clock", "clock64", "globaltimer")
COMMENTS = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
ENTRY = re.compile(r"\.entry\s+([\w$]+)\s*\(([^)]*)\)([^{]*)\{")
# A label, a brace that opens or closes a scope, a directive that ends with its line, or a statement.
PIECE = re.compile(
    r"\s*(?:(?P<label>[\w$]+):|(?P<scope>[{}])|\.(?:file|section|pragma)\b[^\n]*"
    r"|\.loc\s+(?P<source>[^\n]*)|(?P<statement>[^;{}]*(?:\{[^{}]*\}[^;{}]*)*);)"
)


class PtxError(Exception):
    """What the program does is wrong, or not known here; the message says where."""


class Register(NamedTuple):
    name: str


class Special(NamedTuple):
    """%tid.x and its like."""

    name: str


class Immediate(NamedTuple):
    bits: int


class Symbol(NamedTuple):
    """A label, a parameter or a variable."""

    name: str


class Address(NamedTuple):
    base: "Operand"
    offset: int


class Vector(NamedTuple):
    """{a, b}, or the p|q of two results."""

    items: "tuple[Operand, ...]"


Operand = Register | Special | Immediate | Symbol | Address | Vector


class Instruction(NamedTuple):
    guard: Register | None
    negated: bool
    opcode: str
    modifiers: tuple[str, ...]
    operands: tuple[Operand, ...]
    text: str
    source: str
    """"folder/file:line:column" of the kernel's source, where known"""


class Program(NamedTuple):
    name: str
    parameters: list[tuple[str, int, int]]
    """name, offset and bits of each, in their order"""
    threads: int | None
    """of a block, where the program demands a number"""
    code: list[Instruction]
    labels: dict[str, int]
    widths: dict[str, int]
    """bits of each register; a predicate has 1"""
    variables: dict[str, int]
    """where each shared variable of a fixed size begins"""
    static: int
    """bytes of those; dynamic shared memory follows them"""


def split(text: str) -> list[str]:
    """At the commas outside brackets."""
    parts, depth = [""], 0
    for character in text:
        depth += (character in "[{(") - (character in ")}]")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts if part.strip()]


def operand(text: str, widths: dict[str, int]) -> Operand:
    if text[0] == "{":
        return Vector(tuple(operand(part, widths) for part in split(text[1:-1])))
    if text[0] == "[":
        base, _, offset = text[1:-1].strip().partition("+")
        return Address(operand(base.strip(), widths), int(offset.strip() or "0", 0))
    if "|" in text:
        return Vector(tuple(operand(part.strip(), widths) for part in text.split("|")))
    if text[0] == "%" and text[1:].split(".")[0] in SPECIAL:
        return Special(text[1:])
    if text.lstrip("%") in widths or text == "_":
        return Register(text.lstrip("%"))
    if re.match(r"0[fFdD][0-9a-fA-F]{8}", text):
        return Immediate(int(text[2:], 16))
    if re.fullmatch(r"-?(0[xX][0-9a-fA-F]+|\d+)U?", text):
        return Immediate(int(text.rstrip("U"), 0))
    if text in ("true", "false"):
        return Immediate(int(text == "true"))
    return Symbol(text)


def declare(statement: str, widths: dict[str, int]) -> None:
    """`.reg .b32 %r<21>, x` gives %r0 to %r20 and x."""
    kind, names = re.match(r"\.reg\s*\.(\w+)\s+(.*)", statement).groups()
    for name in split(names):
        many = re.fullmatch(r"%?(\w+)<(\d+)>", name)
        each = [f"{many[1]}{i}" for i in range(int(many[2]))] if many else [name.lstrip("%")]
        widths.update(dict.fromkeys(each, 1 if kind == "pred" else int(kind[1:])))


def instruction(statement: str, source: str, widths: dict[str, int]) -> Instruction:
    guard, rest = re.match(r"(?:@(!?%?\w+)\s+)?(.*)", statement).groups()
    name, _, operands = rest.partition(" ")
    opcode, *modifiers = re.split(r"::|\.", name)
    return Instruction(
        Register(guard.lstrip("!%")) if guard else None,
        bool(guard) and guard[0] == "!",
        opcode,
        tuple(modifiers),
        tuple(operand(part, widths) for part in split(operands)),
        statement,
        source,
    )


def parameters(text: str) -> list[tuple[str, int, int]]:
    found, offset = [], 0
    for each in split(text):
        bits, array = int(re.search(r"\.[a-z](\d+)\b", each)[1]), re.search(r"\[(\d+)\]$", each)
        align = re.search(r"\.align (\d+) \.b8", each)
        size = bits // 8 * (int(array[1]) if array else 1)
        step = int(align[1]) if align else bits // 8
        offset = -(-offset // step) * step
        found.append((re.search(r"([\w$]+)(?:\[\d+\])?$", each)[1], offset, size * 8))
        offset += size
    return found


def shared_variables(text: str) -> tuple[dict[str, int], int]:
    """Where each begins, those without a size behind the others, and the bytes of the others."""
    variables, size = {}, 0
    found = re.findall(r"\.shared \.align (\d+) \.b(\d+) ([\w$]+)(?:(\[)(\d*)\])?;", text)
    for align, bits, name, bracket, count in sorted(found, key=lambda each: bool(each[3]) and not each[4]):
        size = -(-size // int(align)) * int(align)
        variables[name] = size
        size += int(bits) // 8 * int(count or not bracket)
    return variables, size


@functools.lru_cache(maxsize=4096)
def parse(text: str, entry: str | None = None) -> Program:
    """The kernel of that name, or the only one, of a module."""
    text = COMMENTS.sub("", text)
    head = next(m for m in ENTRY.finditer(text) if entry in (None, m[1]))
    threads = re.search(r"\.reqntid\s+(\d+)", head[3])
    code, labels, widths, source, depth, at = [], {}, {}, "", 1, head.end()
    files = {number: "/".join(path.split("/")[-2:]) for number, path in re.findall(r'\.file\s+(\d+)\s+"([^"]+)"', text)}
    while depth:
        piece = PIECE.match(text, at)
        if piece is None:
            raise PtxError(f"{head[1]}: cannot be read from {text[at : at + 60]!r} on")
        at = piece.end()
        statement = " ".join((piece["statement"] or "").split())
        if piece["scope"]:
            depth += 1 if piece["scope"] == "{" else -1
        elif piece["label"]:
            labels[piece["label"]] = len(code)
        elif piece["source"]:
            number, *place = piece["source"].replace(",", " ").split()[:3]
            source = ":".join((files.get(number, number), *place))
        elif statement.startswith(".reg"):
            declare(statement, widths)
        elif statement and statement[0] != ".":
            code.append(instruction(statement, source, widths))
    own = text[: next(ENTRY.finditer(text)).start()] + text[head.end() : at]  # the module's and the kernel's
    variables, static = shared_variables(own)
    return Program(
        head[1], parameters(head[2]), int(threads[1]) if threads else None, code, labels, widths, variables, static
    )
