"""How long reports are on their way, by target."""

from __future__ import annotations

from agent.reporting import Told
from agent.serve.series import Tally


def delays(tally: Tally) -> tuple[int, float]:
    """How many delays of the target `kubernetes` were observed, and their sum in seconds."""
    (values,) = [values for series, values in tally.histograms() if series.name == "pinfold_report_delay_seconds"]
    histogram = values["kubernetes",]
    return sum(histogram.counts), histogram.total


def test_the_delay_of_a_remote_report_runs_from_its_oldest_change_to_its_arrival() -> None:
    tally, times = Tally(), iter([14.0, 21.0])
    told = Told("kubernetes", tally, lambda: next(times))
    told.on_its_way(10.0)
    told.on_its_way(12.0)  # a newer report takes the older one's place before it has arrived
    told.delivered()
    assert delays(tally) == (1, 4.0)
    told.on_its_way(20.0)
    told.delivered()
    assert delays(tally) == (2, 5.0)


def test_an_arrival_without_a_change_has_no_delay() -> None:
    tally = Tally()
    Told("kubernetes", tally).delivered()  # a resync, or a beat
    assert delays(tally) == (0, 0.0)
