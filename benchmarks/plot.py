"""A curve as SVG: both scales logarithmic, every line named at its end with its slope. The same values give the same bytes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from html import escape

from benchmarks.curve import Curve, Series
from benchmarks.table import amount, digits

WIDTH, HEIGHT = 900, 480
LEFT, RIGHT, TOP, BOTTOM = 84, 306, 52, 62
LINE_HEIGHT = 19  # between two names
# they differ in lightness too
COLORS = ("#0b6bcb", "#c4451c", "#2e7d32", "#7b3fa0", "#b0820a", "#00838f", "#c2185b", "#5d4037")
STYLE = (
    "text{font:13px system-ui,sans-serif;fill:#222}.title{font-size:16px;font-weight:600}.note{font-size:11px;fill:#666}"
    ".grid{stroke:#ddd}.linear{stroke:#999;stroke-dasharray:3 5}.line{fill:none;stroke-width:2.2}"
)
MARKS = ("circle", "square", "diamond", "triangle")  # a line is told apart without its color


class _Scale:
    """Values onto pixels, by their logarithm."""

    def __init__(self, least: float, most: float, first: float, last: float) -> None:
        self._low, self._high = math.log(least), math.log(most)
        self._first, self._last = first, last

    def __call__(self, value: float) -> float:
        share = (math.log(value) - self._low) / (self._high - self._low)
        return round(self._first + share * (self._last - self._first), 1)


def render(curve: Curve, caption: str) -> str:
    """The drawing. caption: what it was measured on."""
    points = [point for series in curve.series for point in series.points if point[1] > 0]
    sizes = sorted({x for x, _ in points})
    decades = _decades(min(y for _, y in points), max(y for _, y in points))
    across = _Scale(sizes[0] / 1.08, sizes[-1] * 1.08, LEFT, WIDTH - RIGHT)
    up = _Scale(decades[0], decades[-1], HEIGHT - BOTTOM, TOP)
    body = [
        *_frame(curve, sizes, decades, across, up),
        *_linear(sizes, decades, across, up),
        *_lines(curve.series, across, up),
        _text(LEFT, HEIGHT - 8, caption, "note"),
    ]
    box = f'viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(curve.title)}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {box}>'
    background = f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>'
    return "\n".join((head, f"<style>{STYLE}</style>", background, *body, "</svg>", ""))


def _decades(least: float, most: float) -> list[float]:
    """Powers of ten around the values."""
    low, high = math.floor(math.log10(least)), math.ceil(math.log10(most))
    return [10.0**exponent for exponent in range(low, max(high, low + 1) + 1)]


def _frame(curve: Curve, sizes: Sequence[float], decades: Sequence[float], across: _Scale, up: _Scale) -> Iterator[str]:
    yield _text(LEFT, 28, curve.title, "title")
    yield _text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - BOTTOM + 38, curve.size, anchor="middle")
    for value in decades:
        yield f'<path class="grid" d="M{LEFT} {up(value)}H{WIDTH - RIGHT}"/>'
        yield _text(LEFT - 8, up(value) + 4, amount(value, curve.unit), anchor="end")
    last = -math.inf
    for size in sizes:
        place = across(size)
        yield f'<path class="grid" d="M{place} {TOP}V{HEIGHT - BOTTOM}"/>'
        if place - last >= 34:
            yield _text(place, HEIGHT - BOTTOM + 18, digits(size), anchor="middle")
            last = place


def _linear(sizes: Sequence[float], decades: Sequence[float], across: _Scale, up: _Scale) -> Iterator[str]:
    """Lines of slope 1 to hold the others against."""
    for start in decades[:-1]:
        stop = min(sizes[-1], sizes[0] * decades[-1] / start)
        rise = start * stop / sizes[0]
        yield f'<path class="linear" d="M{across(sizes[0])} {up(start)}L{across(stop)} {up(rise)}"/>'


def _lines(series: Sequence[Series], across: _Scale, up: _Scale) -> Iterator[str]:
    ends = [(up(line.points[-1][1]), place) for place, line in enumerate(series)]
    heights = _apart([height for height, _ in sorted(ends)])
    names = {place: height for (_, place), height in zip(sorted(ends), heights, strict=True)}
    for place, line in enumerate(series):
        color, mark = COLORS[place % len(COLORS)], MARKS[place % len(MARKS)]
        dots = [(across(x), up(y)) for x, y in line.points if y > 0]
        yield f'<path class="line" stroke="{color}" d="M{"L".join(f"{x} {y}" for x, y in dots)}"/>'
        yield from (_mark(mark, x, y, color) for x, y in dots)
        left, height = WIDTH - RIGHT + 14, names[place]
        yield f'<path stroke="{color}" d="M{dots[-1][0] + 5} {dots[-1][1]}L{left} {height}"/>'
        yield _text(left + 4, height + 4, f"{line.name}{_slope(line)}", color=color)


def _slope(line: Series) -> str:
    return "" if line.slope is None else f"  n^{line.slope:.1f}".replace("n^-0.0", "n^0.0")


def _apart(heights: Sequence[float]) -> list[float]:
    """Heights of names, top first, moved so far that none covers another."""
    placed: list[float] = []
    for height in heights:
        placed.append(max(height, placed[-1] + LINE_HEIGHT) if placed else height)
    over = placed[-1] - (HEIGHT - BOTTOM)
    if over > 0:
        for place in reversed(range(len(placed))):
            below = placed[place + 1] - LINE_HEIGHT if place + 1 < len(placed) else HEIGHT - BOTTOM
            placed[place] = min(placed[place], below)
    return [round(height, 1) for height in placed]


def _mark(kind: str, x: float, y: float, color: str) -> str:
    match kind:
        case "square":
            return f'<rect x="{x - 3.5:.1f}" y="{y - 3.5:.1f}" width="7" height="7" fill="{color}"/>'
        case "diamond":
            return f'<path fill="{color}" d="M{x:.1f} {y - 5:.1f}l5 5l-5 5l-5 -5z"/>'
        case "triangle":
            return f'<path fill="{color}" d="M{x:.1f} {y - 5:.1f}l5 9h-10z"/>'
    return f'<circle cx="{x}" cy="{y}" r="3.8" fill="{color}"/>'


def _text(x: float, y: float, text: str, kind: str = "", *, anchor: str = "start", color: str = "") -> str:
    style = f' class="{kind}"' if kind else ""
    style += f' text-anchor="{anchor}"' if anchor != "start" else ""
    style += f' style="fill:{color}"' if color else ""
    return f'<text x="{x:.1f}" y="{y:.1f}"{style}>{escape(text)}</text>'
