"""Rows as a table, for a terminal and for a document."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from benchmarks.row import Row

HEAD = ("what", "p50", "p99", "min", "beside it, same run", "Go, as recorded", "target", "")


def amount(value: float, unit: str) -> str:
    """A value with its unit, three digits that count: 0.0123 ms is 12.3 µs."""
    if unit == "ms":
        for factor, name in ((1e-3, "s"), (1.0, "ms"), (1e3, "µs"), (1e6, "ns")):
            if abs(value * factor) >= 1 or name == "ns":
                return f"{digits(value * factor)} {name}"
    return f"{digits(value)} {unit}".strip()


def digits(value: float) -> str:
    if value == 0 or (float(value).is_integer() and abs(value) < 1e6):
        return f"{value:,.0f}"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def cells(row: Row) -> tuple[str, ...]:
    """The row's cells, as HEAD names them."""
    figure, unit = row.measured, row.unit
    reference = recorded = target = verdict = ""
    if row.reference is not None:
        other = amount(row.reference.figure.at(row.compared), unit)
        reference = f"{row.reference.name}: {other}{_times(row.reference_ratio)}"
    if row.recorded is not None:
        recorded = f"{row.recorded.source}: {amount(row.recorded.value, unit)}{_times(row.recorded_ratio)}"
    if row.target is not None:
        target = row.target.text
        verdict = "met" if row.met else f"missed, {row.target.missed_by(figure):.1f}x the target"
    if figure.count == 1:
        return row.what, amount(figure.p50, unit), "", "", reference, recorded, target, verdict
    values = (amount(value, unit) for value in (figure.p50, figure.p99, figure.least))
    return row.what, *values, reference, recorded, target, verdict


def _times(ratio: float | None) -> str:
    return "" if ratio is None else f" ({digits(ratio)}x)"


def text_table(rows: Iterable[Row]) -> str:
    """For a terminal: columns as wide as what is in them, empty columns left out."""
    lines = _without_empty_columns([HEAD, *map(cells, rows)])
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)


def markdown_table(rows: Iterable[Row]) -> str:
    """For a document."""
    head, *lines = _without_empty_columns([HEAD, *map(cells, rows)])
    ruler = ["---", *("---:" if name in ("p50", "p99", "min") else "---" for name in head[1:])]
    return "\n".join(f"| {' | '.join(line)} |" for line in (head, ruler, *lines))


def _without_empty_columns(lines: Sequence[Sequence[str]]) -> list[Sequence[str]]:
    kept = [place for place in range(len(HEAD)) if any(line[place] for line in lines[1:])]
    return [[line[place] for place in kept] for line in lines]
