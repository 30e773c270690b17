"""Boxes, arrows and pages of the SVG pictures: on white, so that they read alike in light and dark."""

from collections.abc import Iterable

HEIGHT = 44  # of a box
BLUE, GREY = ("#eaf1fb", "#4c78a8"), ("#f4f4f4", "#a0a0a0")  # fill and edge


def text(x: float, y: float, words: str, *, size: int = 13, bold: bool = False, anchor: str = "middle") -> str:
    """Return words at a point, which anchor says is their start, middle or end."""
    looks = (f' text-anchor="{anchor}"' if anchor != "start" else "") + (' font-weight="bold"' if bold else "")
    looks += f' font-size="{size}"' if size != 13 else ""
    return f'<text x="{x:g}" y="{y:g}"{looks}>{words}</text>'


def rectangle(x: float, y: float, width: float, height: float, fill: str, edge: str) -> str:
    """Return a rectangle with round corners."""
    return f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="5" fill="{fill}" stroke="{edge}"/>'


def box(
    x: float, y: float, width: float, title: str, caption: str, *, core: bool = True, bold: bool = False,
    height: float = HEIGHT,
) -> str:  # fmt: skip
    """Return a box, blue or grey, of a title above a smaller caption."""
    shape = rectangle(x, y, width, height, *(BLUE if core else GREY))
    middle, down = x + width / 2, y + (height - HEIGHT) / 2
    return "\n".join([shape, text(middle, down + 19, title, bold=bold), text(middle, down + 35, caption, size=11)])


def arrow(path: str) -> str:
    """Return a line along the points of an SVG path without its first M, which ends in an arrow."""
    return f'<path d="M{path}" fill="none" stroke="#7a8088" marker-end="url(#arrow)"/>'


def page(width: float, height: float, drawn: Iterable[str]) -> str:
    """Return a whole picture."""
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" font-family="sans-serif" '
            'font-size="13">',
            '<marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">',
            '<path d="M0 0 L8 4 L0 8 z" fill="#7a8088"/></marker>',
            f'<rect width="{width:g}" height="{height:g}" fill="white"/>',
            *drawn,
            "</svg>\n",
        ]
    )
