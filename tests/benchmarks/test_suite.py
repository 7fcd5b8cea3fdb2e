"""Every benchmark runs at its smallest size and leaves a record that can be read again. No times are judged."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner

from benchmarks import record
from benchmarks.__main__ import main
from benchmarks.curve import Curve, Series, fitted_slope
from benchmarks.figure import QUICK, Figure, repeated
from benchmarks.plot import render
from benchmarks.row import Recorded, Reference, Row, Target
from benchmarks.suite import BENCHMARKS, CURVES, Run, run
from benchmarks.table import HEAD, amount, cells, markdown_table, text_table

ROW = Row(
    "restart",
    Figure(1.0, 2.0, 3.0, 4.0, 5),
    reference=Reference("plain", Figure.of([4.0, 5.0])),
    recorded=Recorded(0.5, "a program in Go"),
    target=Target("p50 < 1 ms", "p50", 1.0),
)
CURVE = Curve("c", "A curve", "pods", "ms", (Series("a<b", ((10.0, 1.0), (100.0, 10.0), (1000.0, 100.0))),))


@pytest.mark.parametrize("name", [*BENCHMARKS, *CURVES])
def test_every_name_is_measured_and_its_record_reads_back(name: str, tmp_path: Path) -> None:
    found = run(name, QUICK, lambda: 0.0)
    if found.left_out:
        pytest.skip(found.left_out)
    assert found.rows if name in BENCHMARKS else found.curves
    record.save([found], tmp_path)
    text = (tmp_path / "results.json").read_text()
    assert record.decode(text) == {name: found}
    for row in json.loads(text)["runs"][name]["rows"]:
        figure = row["measured"]
        assert 0 <= figure["least"] <= figure["p50"] <= figure["p99"] <= figure["most"], row["what"]
    for row in found.rows:
        assert row.what in (tmp_path / "results.md").read_text()
    for curve in found.curves:
        ElementTree.parse(tmp_path / f"{curve.name}.svg")
        assert all(len(series.points) >= 1 for series in curve.series)


def test_the_command_prints_what_a_program_can_read() -> None:
    result = CliRunner().invoke(main, ["take_cpus", "--quick", "-o", "json"])
    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout)["runs"]["take_cpus"]["rows"]


def test_quick_figures_are_not_for_the_record() -> None:
    assert CliRunner().invoke(main, ["--quick", "--record"]).exit_code == 2


def test_a_record_keeps_what_a_run_did_not_measure(tmp_path: Path) -> None:
    note = run("take_cpus", QUICK, lambda: 0.0).before
    one, other = (Run(name, (ROW,), (), note, note, 1.0) for name in ("hints", "restart"))
    record.save([one], tmp_path)
    record.save([other], tmp_path)
    assert set(record.decode((tmp_path / "results.json").read_text())) == {"hints", "restart"}


def test_a_row_says_what_it_is_beside_and_whether_its_target_is_met() -> None:
    assert dict(zip(HEAD, cells(ROW), strict=True)) == {
        "what": "restart",
        "p50": "2 ms",
        "p99": "3 ms",
        "min": "1 ms",
        "beside it, same run": "plain: 4 ms (4x)",
        "Go, as recorded": "a program in Go: 500 µs (0.50x)",
        "target": "p50 < 1 ms",
        "": "missed, 2.0x the target",
    }
    assert Row.decode(ROW.encode()) == ROW


def test_tables_leave_empty_columns_out() -> None:
    bare = [Row("a", Figure.of([1.0])), Row("b", Figure.of([2.0, 3.0]))]
    assert text_table(bare).splitlines()[0].split() == ["what", "p50", "p99", "min"]
    assert markdown_table([Row("a", Figure.of([1.0]))]).splitlines() == [
        "| what | p50 |",
        "| --- | ---: |",
        "| a | 1 ms |",
    ]


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0.0123, "ms", "12.3 µs"),
        (1500, "ms", "1.50 s"),
        (0, "ms", "0 ns"),
        (1234.5, "bytes", "1,234 bytes"),
        (2, "", "2"),
    ],
)
def test_amounts_have_the_unit_that_suits_them(value: float, unit: str, text: str) -> None:
    assert amount(value, unit) == text


@pytest.mark.parametrize(
    ("points", "slope"),
    [([(1, 5), (10, 5)], 0.0), ([(1, 1), (10, 10), (100, 100)], 1.0), ([(2, 4), (4, 16)], 2.0), ([(1, 1)], None)],
)
def test_a_slope_is_the_exponent(points: list[tuple[float, float]], slope: float | None) -> None:
    assert fitted_slope(points) == (None if slope is None else pytest.approx(slope))


def test_a_steep_series_is_called_steep_by_its_upper_half() -> None:
    bent = Series("bent", ((1.0, 1.0), (10.0, 1.0), (100.0, 1.0), (1000.0, 100.0), (10_000.0, 10_000.0)))
    assert bent.steep
    assert not CURVE.series[0].steep


def test_a_drawing_is_the_same_every_time_and_names_its_lines() -> None:
    drawn = render(CURVE, "a machine & a day")
    assert drawn == render(Curve.decode(CURVE.encode()), "a machine & a day")
    texts = [each.text for each in ElementTree.fromstring(drawn).iter("{http://www.w3.org/2000/svg}text")]
    assert "a<b  n^1.0" in texts
    assert "a machine & a day" in texts


def test_a_figure_counts_every_call() -> None:
    calls = iter(range(100))
    assert repeated(lambda: next(calls), 0.0, least=7).count == 7
    assert next(calls) == 7
