from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.model.quantity import Quantity
from agent.model.queue import PodGroup, Preemptibility, Queue, QueueStatus
from agent.queues.ledger import (
    Ledger,
    LedgerOptions,
    Reservation,
    admit,
    expire,
    follow,
    rebuild,
    settle,
    with_reserved,
)
from agent.queues.resize_admission import ResizeAnswer, ResizeOptions, ResizeReason
from agent.queues.resize_bounds import QueueCharge
from agent.queues.resize_growth import CPUMemory
from agent.queues.status_watch import StatusWatch
from agent.queues.totals import Totals
from agent.queues.tree import build
from agent.queues.workloads import Directory
from tests.queues.build import queue
from tests.queues.test_resize_admission import pod


def directory_of(*queues: Queue, preemptible: bool = True) -> Directory:
    kind = Preemptibility.PREEMPTIBLE if preemptible else Preemptibility.NON_PREEMPTIBLE
    return Directory.of(queues, [PodGroup("prod", "pg", queues[0].name, preemptibility=kind)])


def cores(count: int) -> CPUMemory:
    return CPUMemory(count * 1000, 0)


def grow(
    ledger: Ledger,
    directory: Directory,
    name: str,
    before: int,
    after: int,
    *,
    allocated: int,
    seen: int | None = None,
    now: float = 0,
    limits: LedgerOptions | None = None,
) -> tuple[ResizeAnswer, Ledger]:
    """A pod's resize from `before` to `after` cores, while every queue of the path is charged `allocated` cores."""
    old, new = (replace(pod({"cpu": str(size)}), uid=name, name=name) for size in (before, after))
    charges = {each: QueueCharge(cores(allocated), cores(allocated)) for each in directory.queues}
    shown = cores(before if seen is None else seen)
    return admit(ledger, old, new, directory, ResizeOptions(), limits or LedgerOptions(), charges, shown, now)


TIGHT = directory_of(queue("leaf", "dept", cpu=(-1, 10000)), queue("dept", cpu=(-1, 11000)))


def test_two_upsizes_cannot_share_one_headroom() -> None:
    first, ledger = grow(Ledger(), TIGHT, "p1", 2, 4, allocated=8)
    second, after = grow(ledger, TIGHT, "p2", 2, 4, allocated=8)
    assert first.allowed
    assert not second.allowed
    assert after == ledger
    assert second.rejection is not None
    assert (second.rejection.queue, second.rejection.reserved) == ("leaf", 2000)


def test_the_ancestors_headroom_is_reserved_too() -> None:
    wide = directory_of(queue("leaf", "dept"), queue("dept", cpu=(-1, 11000)))
    _, ledger = grow(Ledger(), wide, "p1", 2, 4, allocated=8)
    second, _ = grow(ledger, wide, "p2", 2, 4, allocated=8)
    assert second.rejection is not None
    assert second.rejection.queue == "dept"


def test_a_reservation_melts_as_reports_show_the_growth() -> None:
    _, ledger = grow(Ledger(), TIGHT, "p1", 2, 4, allocated=4)
    assert with_reserved({}, ledger, TIGHT)["dept"].reserved == cores(2)
    ledger = settle(ledger, {"p1": cores(3), "other": cores(9)})
    assert with_reserved({}, ledger, TIGHT)["dept"].reserved == cores(1)
    assert settle(ledger, {"p1": cores(4)}) == Ledger()
    assert settle(ledger, {}, ["p1"]) == Ledger()
    assert settle(ledger, {"other": cores(1)}) is ledger


def test_a_reservation_ends_at_its_time() -> None:
    _, ledger = grow(Ledger(), TIGHT, "p1", 2, 4, allocated=8, limits=LedgerOptions(ttl_seconds=60))
    assert expire(ledger, 59) is ledger
    assert expire(ledger, 60) == Ledger()
    answer, _ = grow(ledger, TIGHT, "p2", 2, 4, allocated=8, now=60)
    assert answer.allowed


@pytest.mark.parametrize(
    ("before", "after", "seen", "reserved"),
    [
        pytest.param(4, 6, 2, 4, id="a second step before the first shows"),
        pytest.param(2, 5, 2, 3, id="two requests from the same size: the larger"),
        pytest.param(2, 3, 2, 2, id="and not the smaller"),
        pytest.param(4, 3, 2, 2, id="a step back keeps what may already have been taken"),
    ],
)
def test_several_resizes_of_one_pod_reserve_up_to_the_largest_size(
    before: int, after: int, seen: int, reserved: int
) -> None:
    _, ledger = grow(Ledger(), TIGHT, "p1", 2, 4, allocated=2)
    answer, ledger = grow(ledger, TIGHT, "p1", before, after, allocated=2, seen=seen)
    assert answer.allowed
    assert ledger.reservations["p1"].held == cores(reserved)


def test_a_pods_own_reservation_is_not_counted_twice() -> None:
    _, ledger = grow(Ledger(), TIGHT, "p1", 2, 4, allocated=2)
    again, _ = grow(ledger, TIGHT, "p1", 4, 10, allocated=2, seen=2)  # 2 charged, 8 to come: exactly the limit
    assert again.allowed
    more, _ = grow(ledger, TIGHT, "p1", 4, 11, allocated=2, seen=2)
    assert not more.allowed
    same, _ = grow(ledger, TIGHT, "p1", 2, 10, allocated=2, seen=2)
    assert same.allowed


def test_only_non_preemptible_growth_is_reserved_from_quota() -> None:
    for preemptible, reserved in ((True, 0), (False, 2000)):
        directory = directory_of(queue("leaf", cpu=(10000, -1)), preemptible=preemptible)
        _, ledger = grow(Ledger(), directory, "p1", 2, 4, allocated=2)
        assert with_reserved({}, ledger, directory)["leaf"].reserved_non_preemptible.cpu_millis == reserved


def test_nothing_is_reserved_for_what_needs_no_room() -> None:
    _, ledger = grow(Ledger(), TIGHT, "p1", 4, 2, allocated=8)
    assert ledger == Ledger()
    old = pod({"cpu": "1"}, scheduler="other")
    answer, ledger = admit(
        Ledger(), old, pod({"cpu": "9"}, scheduler="other"), TIGHT, ResizeOptions(), LedgerOptions(), {}, cores(1), 0
    )
    assert answer.reason is ResizeReason.NOT_MANAGED
    assert ledger == Ledger()


def test_a_full_ledger_admits_no_further_growth() -> None:
    open_queue = directory_of(queue("leaf"))
    limits = LedgerOptions(capacity=2)
    ledger = Ledger()
    for name in ("p1", "p2"):
        _, ledger = grow(ledger, open_queue, name, 1, 2, allocated=0, limits=limits)
    answer, after = grow(ledger, open_queue, "p3", 1, 2, allocated=0, limits=limits)
    assert (answer.allowed, answer.reason) == (False, ResizeReason.LEDGER_FULL)
    assert after == ledger
    assert grow(ledger, open_queue, "p1", 2, 3, allocated=0, limits=limits)[0].allowed
    assert grow(ledger, open_queue, "p3", 2, 1, allocated=0, limits=limits)[0].allowed


def test_a_rebuilt_ledger_holds_every_pod_that_wants_more_than_it_is_charged_for() -> None:
    def wanting(target: int, seen: int) -> Reservation:
        return Reservation("prod/p", "leaf", True, cores(target), cores(seen), 100)

    wanted = {"grows": wanting(4, 2), "there": wanting(4, 4), "smaller": wanting(2, 4), "most": wanting(9, 1)}
    assert set(rebuild(Ledger(), wanted).reservations) == {"grows", "most"}


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 6)), max_size=40), st.integers(0, 20), st.booleans())
def test_however_many_race_no_more_is_admitted_than_fits(
    requests: list[tuple[int, int]], bound: int, preemptible: bool
) -> None:
    """No report arrives in between: every pod is charged one core all the time."""
    directory = directory_of(
        queue("leaf", "dept"), queue("dept", cpu=(bound * 1000, bound * 1000)), preemptible=preemptible
    )
    ledger, sizes = Ledger(), dict.fromkeys(range(10), 1)
    for number, more in requests:
        before = sizes[number]
        answer, ledger = grow(ledger, directory, f"p{number}", before, before + more, allocated=10, seen=1)
        if answer.allowed:
            sizes[number] += more
    assert sum(sizes.values()) <= max(bound, 10)
    assert with_reserved({}, ledger, directory).get("dept", QueueCharge()).reserved == cores(sum(sizes.values()) - 10)


def test_queue_status_counts_where_nodes_are_unknown_or_where_it_stays_larger() -> None:
    found = replace(queue("a"), status=QueueStatus({"cpu": Quantity.parse("5")}))
    tree, _ = build([found])
    totals, watch = Totals(tree), StatusWatch(patience_seconds=60)
    watch.look(totals, 0)
    empty = totals.of("a")
    assert watch.charge(found, empty, complete=False, now=0).allocated == cores(5)
    assert watch.charge(found, empty, complete=True, now=59).allocated == cores(0)
    watch.look(totals, 59)
    assert watch.charge(found, empty, complete=True, now=60).allocated == cores(5)
    assert watch.differing() == {"a": 0}


def test_pods_without_uids_have_reservations_of_their_own() -> None:
    """Files may leave it out: then two pods are two names."""
    charges, ledger = {"leaf": QueueCharge(cores(8)), "dept": QueueCharge(cores(8))}, Ledger()
    admitted = []
    for name in ("p1", "p2"):
        old, new = (replace(pod({"cpu": str(size)}), uid="", name=name) for size in (2, 4))
        answer, ledger = admit(ledger, old, new, TIGHT, ResizeOptions(), LedgerOptions(), charges, cores(2), 0)
        admitted.append(answer.allowed)
    assert admitted == [True, False]
    assert set(ledger.reservations) == {"prod/p1"}


def test_a_reservation_follows_its_pod_to_another_queue() -> None:
    directory = directory_of(queue("leaf", "dept"), queue("dept"), queue("other"))
    _, ledger = grow(Ledger(), directory, "p1", 2, 4, allocated=2)
    assert follow(ledger, {"p1": ("leaf", True)}) is ledger
    moved = with_reserved({}, follow(ledger, {"p1": ("other", False)}), directory)
    assert moved == {"other": QueueCharge(reserved=cores(2), reserved_non_preemptible=cores(2))}


RESERVATIONS = st.builds(
    Reservation,
    pod=st.just("prod/p"),
    queue=st.sampled_from(["leaf", "dept", "other", "nowhere"]),
    preemptible=st.booleans(),
    target=st.integers(0, 9).map(cores),
    seen=st.integers(0, 9).map(cores),
    expires=st.integers(1, 20).map(float),
)


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.none() | RESERVATIONS, st.integers(0, 20)), max_size=30))
def test_sums_that_are_kept_along_are_the_sums_of_all_reservations(
    steps: list[tuple[str, Reservation | None, int]],
) -> None:
    directory = directory_of(queue("leaf", "dept"), queue("dept"), queue("other"))
    ledger = Ledger()
    for uid, reservation, number in steps:
        assert with_reserved({}, ledger, directory) == with_reserved({}, Ledger(ledger.reservations), directory)
        ledger = settle(
            expire(ledger.changed({uid: reservation}), number), {"a": cores(number % 10)}, "d"[number % 2 :]
        )
    assert with_reserved({}, ledger, directory) == with_reserved({}, Ledger(ledger.reservations), directory)
    elsewhere = directory_of(queue("leaf"), queue("dept"))
    assert with_reserved({}, ledger, elsewhere) == with_reserved({}, Ledger(ledger.reservations), elsewhere)
