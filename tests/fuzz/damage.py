"""Damage: bytes flipped, cut, doubled, moved; lines likewise; one value of a JSON text changed to another type."""

import contextlib
import copy
import json
import math
import random
import re
from collections.abc import Callable
from typing import Any

LARGE = (0, 1, -1, 2, 127, 128, 255, 32767, 65536, 2**31 - 1, 2**31, 2**32, 2**63 - 1, 2**63, 2**64, 10**18, 10**30)
ODD_TEXT = ("", " ", "\0", "\n", "\r\n", "\r", "﻿", "é", "\u2028", "nan", "inf", "-", "../x", "/", "1e400",
            "1" * 5000, "x" * 70_000, "</S>", "<S>", "<UNK>")  # fmt: skip


def _span(rng: random.Random, size: int, most: int = 1 << 16) -> tuple[int, int]:
    """A piece of a text of that size, often short."""
    at = rng.randrange(size + 1)
    length = min(rng.choice((1, 1, 2, 4, 8, 64, 512, most)), size - at)
    return at, at + rng.randrange(length + 1)


def _flip(rng: random.Random, data: bytes) -> bytes:
    at = rng.randrange(len(data))
    return data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]


def _cut(rng: random.Random, data: bytes) -> bytes:
    return data[: rng.randrange(len(data))]


def _leave_out(rng: random.Random, data: bytes) -> bytes:
    a, b = _span(rng, len(data))
    return data[:a] + data[b:]


def _double(rng: random.Random, data: bytes) -> bytes:
    a, b = _span(rng, len(data))
    return data[:b] + data[a:b] * rng.choice((1, 1, 2, 50)) + data[b:]


def _splice(rng: random.Random, data: bytes) -> bytes:
    (a, b), at = _span(rng, len(data)), rng.randrange(len(data) + 1)
    return data[:at] + data[a:b] + data[at + (b - a if rng.random() < 0.5 else 0) :]


def _fill(rng: random.Random, data: bytes) -> bytes:
    a, b = _span(rng, len(data))
    return data[:a] + bytes([rng.choice((0, 255, 10, 32, rng.randrange(256)))]) * (b - a) + data[b:]


def _insert(rng: random.Random, data: bytes) -> bytes:
    at = rng.randrange(len(data) + 1)
    new = rng.choice((rng.randbytes(rng.randrange(9)), rng.choice(ODD_TEXT).encode(), b"\x80", b"\t", b"\n\n"))
    return data[:at] + new + data[at:]


def _number(rng: random.Random, data: bytes) -> bytes:
    """Another number in place of a decimal one, or of eight bytes."""
    actual = list(re.finditer(rb"\d+", data[: 1 << 16]))
    if actual and rng.random() < 0.7:
        at = rng.choice(actual)
        return data[: at.start()] + str(rng.choice(LARGE)).encode() + data[at.end() :]
    at, size = rng.randrange(len(data)), rng.choice((1, 2, 4, 8))
    new = (rng.choice(LARGE) % (1 << 8 * size)).to_bytes(size, rng.choice(("little", "big")))
    return data[:at] + new + data[at + size :]


def _lines(rng: random.Random, data: bytes) -> bytes:
    """A line left out, doubled, moved, emptied, or with another end."""
    lines = data.splitlines(keepends=True)
    at, other = rng.randrange(len(lines)), rng.randrange(len(lines))
    how = rng.randrange(5)
    if how == 0:
        del lines[at]
    elif how == 1:
        lines.insert(other, lines[at])
    elif how == 2:
        lines[at], lines[other] = lines[other], lines[at]
    elif how == 3:
        lines[at] = b"\n"
    else:
        lines[at] = lines[at].rstrip(b"\r\n") + rng.choice((b"", b"\r\n", b"\r\r\n", b"\r", b"\t\n", b" \n"))
    return b"".join(lines)


BYTES: tuple[Callable[[random.Random, bytes], bytes], ...] = (
    _flip, _cut, _leave_out, _double, _splice, _fill, _insert, _number, _lines
)  # fmt: skip


def damaged(rng: random.Random, data: bytes) -> bytes:
    """`data` with one to a few kinds of damage."""
    for _ in range(rng.choice((1, 1, 1, 2, 3, 6))):
        if not data:
            return rng.randbytes(rng.randrange(20))
        data = rng.choice(BYTES)(rng, data)
    return data


def value(rng: random.Random) -> Any:
    """A JSON value of any type, nested ones and huge ones among them."""
    return rng.choice(
        (
            lambda: None, lambda: True, lambda: False, lambda: [], dict, lambda: rng.choice(LARGE),
            lambda: -rng.choice(LARGE), lambda: rng.uniform(-10, 10), lambda: math.nan, lambda: math.inf,
            lambda: rng.choice(ODD_TEXT), lambda: [[]], lambda: {"": None},
            lambda: [value(rng) for _ in range(rng.randrange(3))], lambda: {"a": value(rng)},
        )
    )()  # fmt: skip


def _places(tree: Any) -> list[tuple[Any, Any]]:
    """(container, key) of every value of a tree."""
    actual: list[tuple[Any, Any]] = []
    for key, inner in tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ():
        actual += [(tree, key), *_places(inner)]
    return actual


def damaged_json(rng: random.Random, text: str) -> bytes:
    """A JSON text with a value, or a key, changed; sometimes damaged as bytes, or nested without end."""
    how = rng.random()
    if how < 0.2:
        return damaged(rng, text.encode())
    if how < 0.24:
        opening = rng.choice(("[", '{"a":', '[{"a":'))
        return (opening * rng.choice((50, 900, 100_000))).encode()
    tree = json.loads(text)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        places = _places(tree)
        if not places or rng.random() < 0.03:
            tree = value(rng)
            continue
        container, key = rng.choice(places)
        what = rng.randrange(6)
        if what == 0:
            del container[key]
        elif what == 1 and isinstance(container, dict):
            container[rng.choice((*ODD_TEXT[:8], key + "s", key.upper(), "format"))] = container.pop(key)
        elif what == 2:
            container[key] = [container[key]]
        elif what == 3:
            other, name = rng.choice(places)
            with contextlib.suppress(KeyError, IndexError):
                container[key] = copy.deepcopy(other[name])
        else:
            container[key] = value(rng)
    return json.dumps(tree).encode("utf-8", "replace")
