"""Small calls of char_cnn: words of several lengths, filters of several widths and numbers."""

from typing import Any

import torch

from elmo_fast.ops._cases import Case, Draw, How, Tensors, listed, numbered
from elmo_fast.ops.char_cnn.op import char_cnn

MULTIPLIES = True
FILTERS = ((1, 5), (3, 20), (6, 17))  # (width, filters)
CHARACTERS, SLOTS, SIZE = 31, 9, 16


def cases(draw: Draw) -> list[Case]:
    """Words that end early, padding behind them; with tanh, the last rows not counted and a number that 16 divides."""
    rows = 48
    ids, padding = draw.whole(CHARACTERS - 1, rows, SLOTS), CHARACTERS - 1
    ids = torch.where(torch.arange(SLOTS) < draw.whole(SLOTS + 1, rows, 1), ids, padding)
    tensors = {
        "ids": ids,
        "embedding": draw.normal(CHARACTERS, SIZE),
        **numbered("weights", [draw.normal(number, SIZE, k, scale=(SIZE * k) ** -0.5) for k, number in FILTERS]),
        **numbered("biases", [draw.normal(number) for _, number in FILTERS]),
    }

    def call(t: Tensors, how: How) -> Tensors:
        counted: dict[str, Any] = {"activation": "tanh", "count": t["count"]} if "count" in t else {}
        weights, biases = listed("weights", t), listed("biases", t)
        return {"features": char_cnn(t["ids"], t["embedding"], weights, biases, **counted, **how)}

    return [Case({**tensors, "ids": ids[:35]}, call), Case({**tensors, "count": draw.whole(1) + 21}, call)]
