"""What an accountant says of its queues in a terminal: as files are shown, and how far it can be trusted."""

from __future__ import annotations

from agent.queues.text import status_lines
from agent.queues.text_accountant import accountant_lines
from tests.queues.test_accountant import accountant, delta, everybody_reports, full, reported, resize, view


def test_where_all_is_well_it_says_what_files_say() -> None:
    found = view(everybody_reports(accountant()))
    assert list(accountant_lines(found)) == list(status_lines(found.snapshot, ()))


def test_missing_and_silent_nodes_are_named() -> None:
    found = accountant()
    found.take_report(full("n0", 1, u0=reported(2, "p0")), 0)
    lines = list(accountant_lines(view(found)))
    assert "missing: node n1 has not reported" in lines
    assert lines[-1].startswith("incomplete: not every node is accounted for")
    everybody_reports(found)
    found.tick(500)
    lines = list(accountant_lines(view(found, 500)))
    assert "silent: node n0 since 00:00:00 UTC, its charge is kept" in lines
    assert not any(line.startswith(("missing", "incomplete")) for line in lines)


def test_bounds_that_are_passed_and_pods_of_no_queue_are_named() -> None:
    found = everybody_reports(accountant(), cores=5)
    found.take_report(delta("n0", 1, 2, u9=reported(1, "p9", group="")), 1)
    lines = list(accountant_lines(view(found)))
    assert "over: queue leaf: cpu allocated 15 cores, limit 10 cores" in lines
    assert "uncharged: 1 pod of no queue" in lines


def test_reserved_growth_is_shown_on_every_queue_of_the_path() -> None:
    found = everybody_reports(accountant(ledger=True))
    resize(found, "u0", 2, 4)
    lines = [" ".join(line.split()) for line in accountant_lines(view(found))]
    for name in ("dept", "leaf"):
        [row] = [line for line in lines if line.startswith(f"{name} ")]
        assert " 6 cores 6 cores 2 cores 6 cores " in row, "allocated, not preemptible, reserved, requested"
