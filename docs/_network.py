"""Draws docs/network.svg, the network with the sizes of the original model: `python docs/_network.py`."""

import pathlib

from _svg import BLUE, GREY, HEIGHT, arrow, box, page, rectangle, text

from elmo_fast.pretrain.config import ModelConfig

PICTURE = pathlib.Path(__file__).with_name("network.svg")
SPELLING = ["[", "h", "a", "n", "d", "]", "·", "·", "…"]  # begin mark, bytes, end mark, empty slots
LEFT, WIDTH = 20, 430  # of the column of the network
HALF = (WIDTH - 30) / 2  # of a box of one direction
NOTES = LEFT + WIDTH + 30
LAYER, MIX = 150, 155  # widths of the boxes at the right
CELL, GAP = 28, 26  # height of a small box, from row to row
WIDE = NOTES + LAYER + GAP + MIX + 20


def row_of(cells: list[tuple[str, str]], y: float) -> list[str]:
    """Return small boxes next to each other, as wide as the column, each of a large and a small text."""
    width = (WIDTH + 4) / len(cells)
    drawn = []
    for number, (title, caption) in enumerate(cells):
        x = LEFT + number * width
        height = CELL + 14 if caption else CELL
        drawn.append(rectangle(x, y, width - 4, height, *BLUE))
        drawn.append(text(x + width / 2 - 2, y + 19, title))
        if caption:
            drawn.append(text(x + width / 2 - 2, y + 35, caption, size=11))
    return drawn


def picture(model: ModelConfig) -> str:
    """Return the picture as SVG, the characters below and the mix of the layers at the right above."""
    filters = model.filters
    width = sum(number for _, number in filters)
    middle, centres = LEFT + WIDTH / 2, [LEFT + 10 + HALF / 2, LEFT + WIDTH - 10 - HALF / 2]
    drawn: list[str] = []
    y = 20.0
    tops = []  # of the rows of the layers, the highest first
    for layer in range(model.n_layers, 0, -1):
        tops.append(y)
        residual = ", plus its input" if layer > 1 and model.use_skip_connections else ""
        for x, name, way in zip(centres, ("forward", "backward"), ("→", "←"), strict=True):
            caption = f"H = {model.dim:,} → D{residual}"
            drawn.append(box(x - HALF / 2, y, HALF, f"{way} {name} LSTM {layer}", caption))
            drawn.append(arrow(f"{x:g} {y + HEIGHT + GAP:g} V{y + HEIGHT + 2:g}"))
        y += HEIGHT + GAP
    drawn.append(rectangle(LEFT, 10, WIDTH, y - GAP - 2, "none", GREY[1]))
    tops.append(y)
    rows = [
        ("projection", f"[B, T + 2, D], D = {model.projection_dim}", ""),
        (f"highway × {model.n_highway}", "[B, T + 2, F]", "g · x + (1 − g) · relu(W x + b), g between 0 and 1"),
        ("maximum over the windows, relu", "[B, T + 2, F]", f"F = {width:,} filters in all"),
    ]
    for title, shape, note in rows:
        drawn.append(box(LEFT, y, WIDTH, title, shape))
        drawn.append(arrow(f"{middle:g} {y + HEIGHT + GAP:g} V{y + HEIGHT + 2:g}"))
        drawn.append(text(NOTES, y + 27, note, anchor="start"))
        y += HEIGHT + GAP
    drawn += row_of([(str(window), f"{number:,}") for window, number in filters], y)
    drawn.append(
        text(NOTES, y + 17, f"CNN: windows of {filters[0][0]} to {filters[-1][0]} characters;", anchor="start")
    )
    drawn.append(text(NOTES, y + 35, "below them, the number of filters", anchor="start"))
    y += CELL + 14 + GAP
    drawn.append(arrow(f"{middle:g} {y:g} V{y - GAP + 2:g}"))
    drawn.append(box(LEFT, y, WIDTH, "character vectors", "[B, T + 2, C, E]"))
    drawn.append(text(NOTES, y + 27, f"E = {model.char_embedding_dim} numbers for each character", anchor="start"))
    y += HEIGHT + GAP
    drawn.append(arrow(f"{middle:g} {y:g} V{y - GAP + 2:g}"))
    drawn += row_of([(character, "") for character in SPELLING], y)
    slots = model.max_characters_per_token
    drawn.append(text(NOTES, y + 10, "characters [B, T + 2, C]: B sentences, T words,", anchor="start"))
    drawn.append(text(NOTES, y + 28, f"&lt;S&gt; and &lt;/S&gt;, C = {slots} slots of a word", anchor="start"))
    for number, top in enumerate(tops):
        layer = model.n_layers - number
        halves = "[→; ←]" if layer else "[x; x]"
        drawn.append(arrow(f"{LEFT + WIDTH} {top + HEIGHT / 2:g} H{NOTES - 2}"))
        drawn.append(box(NOTES, top, LAYER, f"layer {layer}: {halves}", "[B, T + 2, 2D]", core=False))
        drawn.append(arrow(f"{NOTES + LAYER} {top + HEIGHT / 2:g} H{NOTES + LAYER + GAP - 2}"))
    height = tops[-1] + HEIGHT - tops[0]
    mix = box(
        NOTES + LAYER + GAP,
        tops[0],
        MIX,
        "ELMo = γ Σ s h",
        "weighted sum [B, T, 2D]",
        core=False,
        bold=True,
        height=height,
    )
    return page(WIDE, y + CELL + 20, [*drawn, mix])


if __name__ == "__main__":
    PICTURE.write_text(picture(ModelConfig()), encoding="utf-8")
