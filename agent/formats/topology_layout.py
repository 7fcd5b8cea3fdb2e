"""Where the blocks of a machine go in the picture: sizes and places in pixels, relative to the surrounding block."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil, sqrt

from agent.formats.topology_tree import Block
from agent.model.cpuset import CPUSet

MAX_WIDTH = 1180  # of the whole picture: what a page shows beside a scroll bar
GAP = 6
PADDING = 8
HEADER = 18
CHARACTER = 6.9  # width of one character of the headings' 11 px font, in the widest usual face
_CELL_SIZES = ((32, 30), (96, 24), (192, 19))  # up to so many CPUs, the side of one CPU's square
_SMALLEST_CELL = 16  # three digits are still readable


@dataclass(frozen=True, slots=True)
class PlacedCore:
    """A core: its CPUs in rows of `columns` squares of side `cell`."""

    x: float
    y: float
    cpus: CPUSet
    columns: int
    cell: int

    @property
    def width(self) -> float:
        return self.columns * self.cell + 4

    @property
    def height(self) -> float:
        return ceil(len(self.cpus) / self.columns) * self.cell + 4


@dataclass(frozen=True, slots=True)
class PlacedBlock:
    """A block with what it holds, each placed relative to this block's corner."""

    x: float
    y: float
    width: float
    height: float
    block: Block
    inner: tuple[PlacedBlock, ...]
    cores: tuple[PlacedCore, ...]


def cell_size(cpus: int) -> int:
    """The side of one CPU's square on a machine of so many CPUs."""
    return next((size for limit, size in _CELL_SIZES if cpus <= limit), _SMALLEST_CELL)


def place(blocks: Sequence[Block], cell: int) -> tuple[tuple[PlacedBlock, ...], float, float]:
    """The outermost blocks placed side by side and in rows, with the width and height they need together."""
    return _flow([_block(block, cell, MAX_WIDTH - 2 * PADDING) for block in blocks], MAX_WIDTH)


def header(block: Block) -> tuple[str, str]:
    """The two parts of a block's heading: its name, and its first fact."""
    fact = block.facts[0] if block.facts else ""
    return block.name, fact if block.whole else f"{fact} (part)".strip()


def _block(block: Block, cell: int, max_width: float) -> PlacedBlock:
    inner: tuple[PlacedBlock, ...] = ()
    cores: tuple[PlacedCore, ...] = ()
    if block.inner:
        children = [_block(child, cell, max_width - 2 * PADDING) for child in block.inner]
        inner, width, height = _flow(children, max_width - 2 * PADDING)
    else:
        cores, width, height = _cores(block.cores, cell)
    heading = len(" ".join(header(block))) * CHARACTER
    return PlacedBlock(
        x=0,
        y=0,
        width=max(width, heading) + 2 * PADDING,
        height=height + HEADER + PADDING,
        block=block,
        inner=tuple(replace(child, x=child.x + PADDING, y=child.y + HEADER) for child in inner),
        cores=tuple(replace(core, x=core.x + PADDING, y=core.y + HEADER) for core in cores),
    )


def _flow(children: Sequence[PlacedBlock], max_width: float) -> tuple[tuple[PlacedBlock, ...], float, float]:
    """A grid with as many columns as fit, every child as wide as its column and as high as its row."""
    widest = max((child.width for child in children), default=0)
    fitting = max(1, int((max_width + GAP) // (widest + GAP)))
    rows = max(1, ceil(len(children) / fitting))
    columns = max(1, ceil(len(children) / rows))
    widths = [max((child.width for child in children[column::columns]), default=0) for column in range(columns)]
    placed: list[PlacedBlock] = []
    y = 0.0
    for start in range(0, len(children), columns):
        row = children[start : start + columns]
        height = max(child.height for child in row)
        x = 0.0
        for child, width in zip(row, widths, strict=False):
            placed.append(replace(child, x=x, y=y, width=width, height=height))
            x += width + GAP
        y += height + GAP
    return tuple(placed), sum(widths) + GAP * (columns - 1), max(0.0, y - GAP)


def _cores(cores: Sequence[CPUSet], cell: int) -> tuple[tuple[PlacedCore, ...], float, float]:
    """A grid of cores about twice as wide as high. Sibling CPUs sit side by side, in two rows from four on."""
    threads = max((len(core) for core in cores), default=1)
    columns = threads if threads < 4 else ceil(threads / 2)
    width = columns * cell + 4
    height = ceil(threads / columns) * cell + 4
    per_row = _per_row(len(cores), sqrt(len(cores) * 2 * height / width))
    placed = tuple(
        PlacedCore((index % per_row) * (width + 3), (index // per_row) * (height + 3), core, columns, cell)
        for index, core in enumerate(cores)
    )
    rows = ceil(len(cores) / per_row)
    return placed, per_row * (width + 3) - 3, rows * (height + 3) - 3


def _per_row(count: int, ideal: float) -> int:
    """How many cores to draw in a row: the number, at or somewhat above the ideal one, that leaves the fewest places empty."""
    least = max(1, round(ideal))
    return min(range(least, max(least + 1, ceil(ideal * 1.7) + 1)), key=lambda per_row: (-count % per_row, per_row))
