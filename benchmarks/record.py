"""The record of measurements in docs/performance: results.json is the truth, results.md and the drawings are made of it.

A run replaces what it measured and leaves the rest, so every part says itself when and on what it was measured.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from benchmarks.curve import Curve
from benchmarks.machine import ROOT
from benchmarks.plot import render
from benchmarks.suite import BENCHMARKS, CURVES, Run
from benchmarks.table import amount, digits, markdown_table

DIRECTORY = ROOT / "docs" / "performance"
_SCHEMA = 1


def encode(runs: Mapping[str, Run]) -> str:
    """All runs as JSON, in the suite's order."""
    order = [name for name in (*BENCHMARKS, *CURVES) if name in runs]
    document = {"schema": _SCHEMA, "runs": {name: runs[name].encode() for name in order}}
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def decode(text: str) -> dict[str, Run]:
    """The runs that `encode` made this of."""
    return {name: Run.decode(name, fields) for name, fields in json.loads(text)["runs"].items()}


def save(runs: Iterable[Run], directory: Path = DIRECTORY) -> None:
    """Take these runs into the record below this directory, and draw it anew."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / "results.json"
    known = decode(path.read_text(encoding="utf-8")) if path.exists() else {}
    known.update({run.name: run for run in runs})
    path.write_text(encode(known), encoding="utf-8")
    path.with_suffix(".md").write_text(document(known), encoding="utf-8")
    for run in known.values():
        for curve in run.curves:
            (directory / f"{curve.name}.svg").write_text(render(curve, caption(run)), encoding="utf-8")


def caption(run: Run) -> str:
    return (
        f"{run.before.time}, {run.before.cpus} CPUs, load {run.before.load} to {run.after.load}; n^: fitted to the upper half; "
        "dotted: linear"
    )


def document(runs: Mapping[str, Run]) -> str:
    """results.md."""
    return "\n".join(_lines(runs))


def _lines(runs: Mapping[str, Run]) -> Iterator[str]:
    yield "# Figures\n"
    yield "Written by `.venv/bin/python -m benchmarks --curves --record`; what they mean: [performance.md](../performance.md).\n"
    yield "`min` is the fastest single operation, `(3.0x)` how many times as much the other takes. Go figures were recorded on"
    yield "a busy machine of the same kind on another day (the fastest operation; KAI-Scheduler: CPU time): no race.\n"
    yield "## Budgets\n"
    targets = [row for name in BENCHMARKS if name in runs for row in runs[name].rows if row.target is not None]
    yield f"{sum(bool(row.met) for row in targets)} of {len(targets)} met.\n"
    yield markdown_table(targets) + "\n"
    yield "## Growth\n"
    yield from _growth(runs)
    yield "## Everything measured\n"
    for name in BENCHMARKS:
        if name in runs:
            yield from _section(runs[name])


def _growth(runs: Mapping[str, Run]) -> Iterator[str]:
    curves = [(runs[name], curve) for name in CURVES if name in runs for curve in runs[name].curves]
    yield "Slope on logarithmic scales over the upper half of the points: 0 does not grow, 1 is linear, n log n is 1.1 to 1.2.\n"
    yield "| what | over | points | slope | |"
    yield "| --- | --- | --- | ---: | --- |"
    for _, curve in curves:
        for series in curve.series:
            first, last = series.points[0], series.points[-1]
            slope = "" if series.slope is None else f"{series.slope:.2f}"
            verdict = "**above n log n**" if series.steep else ""
            yield f"| {series.name} | {curve.size} | {_span(curve, first, last)} | {slope} | {verdict} |"
    yield ""
    for _, curve in curves:
        yield f"![{curve.title}]({curve.name}.svg)\n"


def _span(curve: Curve, first: tuple[float, float], last: tuple[float, float]) -> str:
    return f"{digits(first[0])}: {amount(first[1], curve.unit)}, {digits(last[0])}: {amount(last[1], curve.unit)}"


def _section(run: Run) -> Iterator[str]:
    yield f"### {run.name}: {run.about}\n"
    if run.left_out:
        yield f"Not measured: {run.left_out}.\n"
        return
    yield f"{run.before}; load {run.after.load} at its end; {run.seconds:.0f} s.\n"
    yield markdown_table(run.rows) + "\n"
