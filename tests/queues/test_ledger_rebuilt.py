"""A ledger that was lost, or that another replica had: growth under way is reserved anew, and none is given away twice."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.model.pod import Pod
from agent.model.queue import ClusterNode
from agent.queues.accountant import Accountant
from agent.queues.accountant_resize import Unready, decide
from agent.queues.accounting import Taken
from agent.queues.charge import NANO
from agent.queues.ledger_watch import CATCH_UP_SECONDS
from agent.queues.node_report import NodeReport
from agent.queues.observed_pods import PodChanges
from agent.queues.resize_admission import ResizeReason
from tests.queues.test_accountant import CORES, EPOCH, NODES, accountant, full, objects, reported, resize
from tests.queues.test_resize_admission import pod

ROOM = 10  # cores of the queue `leaf`


def seen(uid: str, cores: int, node: str = "n0") -> Pod:
    return replace(pod({"cpu": str(cores)}), uid=uid, name=uid, node_name=node)


def told(*pods: Pod) -> PodChanges:
    return {pod.uid: pod for pod in pods}


def restarted(*pods: Pod, reports: tuple[NodeReport, ...] = ()) -> Accountant:
    """An accountant without a ledger: it was lost. The API server's pods arrive with the objects, reports after them."""
    found = accountant(ledger=True)
    found.rebuild_ledger(0)
    found.take_objects(objects(), 0, told(*pods))
    for report in reports:
        assert found.take_report(report, 1) is Taken.APPLIED
    return found


def reserved(found: Accountant) -> dict[str, int]:
    return {uid: each.held.cpu_millis for uid, each in found.ledger.reservations.items()}


def test_what_a_spec_asks_for_beyond_the_report_is_reserved() -> None:
    found = restarted(seen("u0", 6), seen("u1", 3), reports=(full("n0", 1, u0=reported(4), u1=reported(3)),))
    assert reserved(found) == {"u0": 2000}
    assert resize(found, "u1", 3, 4) == (ResizeReason.FITS, None)
    assert resize(found, "u1", 4, 6)[0] is ResizeReason.REJECTED
    found.take_report(full("n0", 2, u0=reported(6), u1=reported(4)), 2)
    assert not found.ledger.reservations


def test_reports_that_came_before_the_pods_count_too() -> None:
    found = accountant(ledger=True)
    found.rebuild_ledger(0)
    found.take_report(full("n0", 1, u0=reported(4)), 0)
    found.take_objects(objects(), 1, told(seen("u0", 6)))
    assert reserved(found) == {"u0": 2000}


def test_a_node_that_reports_long_after_the_rebuild_is_compared_then() -> None:
    found = restarted(seen("u0", 6), seen("u1", 1, "n1"))
    assert not found.ledger.reservations, "without a report the API server's pods count in full"
    found.take_report(full("n0", 1, u0=reported(4)), CATCH_UP_SECONDS * 5)
    assert reserved(found) == {"u0": 2000}


def test_a_pod_that_its_node_has_not_reported_yet_is_reserved_whole() -> None:
    found = restarted(seen("u0", 6), reports=(full("n0", 1),))
    assert reserved(found) == {"u0": 6000}
    found.take_objects(objects(), 2, told(replace(seen("u0", 6), priority=7)))
    assert reserved(found) == {"u0": 6000}, "another event about the pod ends nothing"
    found.take_objects(objects(), 3, {"u0": None})
    assert not found.ledger.reservations


def test_growth_that_the_api_server_shows_late_is_reserved_too() -> None:
    found = restarted(seen("u0", 4), reports=(full("n0", 1, u0=reported(4)),))
    found.take_objects(objects(), 5, told(seen("u0", 6)))
    assert reserved(found) == {"u0": 2000}


def test_without_pods_to_ask_growth_cannot_be_judged_until_every_reservation_has_ended() -> None:
    found = accountant(ledger=True, taken=objects(nodes=NODES[:1]))
    found.take_report(full("n0", 1, u0=reported(4)), 0)
    assert not found.rebuild_ledger(0)
    assert resize(found, "u0", 4, 5, now=599)[1] is Unready.LEDGER_LOST
    assert resize(found, "u0", 4, 5, now=600)[1] is None


def test_pods_that_arrive_end_the_wait() -> None:
    found = accountant(ledger=True, taken=objects(nodes=NODES[:1]))
    found.take_report(full("n0", 1, u0=reported(4), u1=reported(1)), 0)
    found.rebuild_ledger(0)
    found.take_objects(objects(nodes=NODES[:1]), 1, told(seen("u0", 8), seen("u1", 1)))
    assert resize(found, "u1", 1, 3, now=1) == (ResizeReason.REJECTED, None)
    assert resize(found, "u1", 1, 2, now=1) == (ResizeReason.FITS, None)


def test_what_was_reserved_here_stays_when_a_lease_comes_back() -> None:
    found = restarted(seen("u0", 4), seen("u1", 2), reports=(full("n0", 1, u0=reported(4), u1=reported(2)),))
    assert resize(found, "u0", 4, 6)[0] is ResizeReason.FITS
    found.take_objects(objects(), 2, told(seen("u1", 3)))
    assert found.rebuild_ledger(3)
    assert reserved(found) == {"u0": 2000, "u1": 1000}


class World:
    """Pods of one node: what the accountant let them grow to, what the API server has, what the agent has reported."""

    def __init__(self, chance: Random, pods: int) -> None:
        self.chance = chance
        self.spec = {f"u{number}": 1 for number in range(pods)}
        self.shown = dict(self.spec)
        self.generation = 0
        self.now = 0.0
        self.accountant = self.start()

    def start(self) -> Accountant:
        """A new process whose ledger is gone; the API server is asked first, or the agent."""
        found = accountant(ledger=True, taken=objects(nodes=(ClusterNode("n0", CORES),)))
        found.rebuild_ledger(self.now)
        reported_first = self.chance.random() < 0.5
        if reported_first:
            self.push(found)
        found.take_objects(found.known.objects, self.now, self.pods())
        if not reported_first:
            self.push(found)
        return found

    def pods(self) -> PodChanges:
        return told(*(seen(uid, cores) for uid, cores in self.spec.items()))

    def push(self, found: Accountant) -> None:
        self.generation += 1
        pods = {uid: reported(cores, uid) for uid, cores in self.shown.items()}
        found.take_report(NodeReport("n0", (EPOCH, self.generation), pods=pods, allocatable=CORES), self.now)

    def step(self) -> None:
        self.now += 1
        uid = self.chance.choice(list(self.spec))
        match self.chance.randrange(6):
            case 0 | 1:
                more = self.spec[uid] + self.chance.randrange(1, 4)
                old, new = seen(uid, self.spec[uid]), seen(uid, more)
                answer, unready, self.accountant.ledger = decide(self.accountant, old, new, self.now)
                assert unready is None
                if answer.allowed:
                    self.spec[uid] = more  # the API server stores it at once; who watches it may hear of it much later
            case 2:
                self.shown[uid] = self.spec[uid]
                self.push(self.accountant)
            case 3:
                self.accountant.take_objects(self.accountant.known.objects, self.now, told(seen(uid, self.spec[uid])))
            case 4:
                self.accountant = self.start()
            case _:
                assert self.accountant.rebuild_ledger(self.now)


@given(st.integers(0, 2**32), st.integers(1, 6), st.integers(1, 60))
def test_however_often_the_ledger_is_lost_no_growth_passes_the_bound(seed: int, pods: int, steps: int) -> None:
    world = World(Random(seed), pods)
    for _ in range(steps):
        world.step()
        assert sum(world.spec.values()) <= ROOM
    world.shown = dict(world.spec)
    world.push(world.accountant)
    world.accountant.take_objects(world.accountant.known.objects, world.now, world.pods())
    assert not world.accountant.ledger.reservations
    assert world.accountant.accounting.totals.of("leaf").allocated.cpu == sum(world.spec.values()) * NANO


@pytest.mark.parametrize("rebuilds", [True, False])
def test_it_is_the_rebuilding_that_holds_the_bound(rebuilds: bool) -> None:
    """The property above would be worth nothing if it held anyway."""
    found = accountant(ledger=True, taken=objects(nodes=(ClusterNode("n0", CORES),)))
    if rebuilds:
        found.rebuild_ledger(0)
    found.take_report(full("n0", 1, u0=reported(4), u1=reported(4)), 0)
    found.take_objects(found.known.objects, 1, told(seen("u0", 6), seen("u1", 4)))
    assert (resize(found, "u1", 4, 5)[0] is ResizeReason.REJECTED) == rebuilds
