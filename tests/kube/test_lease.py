"""A candidate and its Lease over real connections: an API server that is well, slow, wrong, or gone in mid-sentence."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from agent.kube.http_access import Access
from agent.kube.lease import LeaseCandidate, LeaseName, boot_seconds
from agent.queues.election import ElectionOptions
from tests.kube.leases import PATH, LeaseStore, keeping
from tests.kube.servers import Answer, Asked, HTTPPart, wait_until

NAME = LeaseName("pinfold", "queues")


class Clock:
    """Time that tests move."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@contextmanager
def standing(
    part: HTTPPart,
    identity: str = "a",
    *,
    clock: Callable[[], float] = boot_seconds,
    began: Callable[[], None] = lambda: None,
    lease_seconds: int = 15,
    renew_seconds: float = 10.0,
) -> Iterator[LeaseCandidate]:
    options = ElectionOptions(identity, lease_seconds, renew_seconds, retry_seconds=0.02)
    candidate = LeaseCandidate(Access(part.url), NAME, options, clock)
    candidate.start(began)
    try:
        yield candidate
    finally:
        candidate.stop()


@pytest.fixture
def store() -> LeaseStore:
    return LeaseStore()


def test_one_that_was_given_back_is_taken_renewed_and_given_back(store: LeaseStore) -> None:
    store.put("", 1, leaseTransitions=4, strategy="OldestEmulationVersion")
    with keeping(store) as part:
        with standing(part) as candidate:
            wait_until(lambda: candidate.term() == 1)
            first = store.spec()
            assert (first["holderIdentity"], first["leaseDurationSeconds"], first["leaseTransitions"]) == ("a", 15, 5)
            assert first["strategy"] == "OldestEmulationVersion", "what we do not know of stays"
            wait_until(lambda: store.spec()["renewTime"] != first["renewTime"])
            assert store.spec()["acquireTime"] == first["acquireTime"]
            assert candidate.reason() == ""
        assert (store.holder(), store.spec()["leaseDurationSeconds"]) == ("", 1)
        assert candidate.term() == 0


def test_one_that_does_not_exist_is_made_for_nobody_and_taken_after_the_wait(store: LeaseStore) -> None:
    clock = Clock()
    with keeping(store) as part, standing(part, clock=clock) as candidate:
        wait_until(lambda: "held by nobody" in candidate.reason())
        assert candidate.reason() == "lease pinfold/queues is held by nobody yet, it may be taken in 15 s"
        assert store.spec().keys() == {"holderIdentity", "leaseDurationSeconds", "renewTime", "leaseTransitions"}
        clock.now += 14
        part.asked.clear()
        wait_until(lambda: len(part.asked) > 2)
        assert (store.holder(), candidate.term()) == ("", 0)
        clock.now += 1
        wait_until(lambda: candidate.term() == 1)
        assert store.spec()["leaseTransitions"] == 1


def test_one_that_cannot_be_made_is_told(store: LeaseStore) -> None:
    def trouble(asked: Asked, to: Answer) -> bool:
        if asked.method == "POST":
            forbidden(asked, to)
        return asked.method == "POST"

    store.trouble = trouble
    with keeping(store) as part, standing(part) as candidate:
        wait_until(lambda: "403" in candidate.reason())
        assert candidate.reason().startswith("lease pinfold/queues does not exist yet; ")


def test_anothers_is_left_alone_until_it_runs_out_by_our_own_clock(store: LeaseStore) -> None:
    store.put("b", 15, renewTime="1999-01-01T00:00:00.000000Z")
    clock = Clock()
    with keeping(store) as part, standing(part, clock=clock) as candidate:
        wait_until(lambda: "held by b" in candidate.reason())
        clock.now += 14
        part.asked.clear()
        wait_until(lambda: len(part.asked) > 2)
        assert store.holder() == "b"
        assert candidate.reason() == "lease pinfold/queues is held by b, last renewed 14 s ago"
        store.put("b", 15, renewTime="2000-01-01T00:00:00.000000Z")
        part.asked.clear()
        wait_until(lambda: len(part.asked) > 2)
        clock.now += 14
        assert store.holder() == "b"
        clock.now += 1
        wait_until(lambda: candidate.term() == 1)
        assert (store.holder(), store.spec()["leaseTransitions"]) == ("a", 1)


def test_of_many_that_stand_one_holds_and_they_follow_each_other(store: LeaseStore) -> None:
    store.put("")
    with keeping(store) as part:
        holds = [standing(part, name) for name in "abcd"]
        candidates = [each.__enter__() for each in holds]
        for left in range(4, 0, -1):
            wait_until(lambda: any(each.term() for each in candidates))
            (holder,) = [index for index, each in enumerate(candidates) if each.term()]
            candidates.pop(holder)
            holds.pop(holder).__exit__(None, None, None)
            assert len(holds) == left - 1
        assert store.spec()["leaseTransitions"] == 4


def conflict(asked: Asked, to: Answer) -> None:
    to.json({"kind": "Status", "message": "the object has been modified"}, 409)


def broken(asked: Asked, to: Answer) -> None:
    to.json({"kind": "Status", "message": "etcdserver: leader changed"}, 500)


def forbidden(asked: Asked, to: Answer) -> None:
    to.json({"kind": "Status", "message": "leases is forbidden"}, 403)


def cut(asked: Asked, to: Answer) -> None:
    to.open()


def nonsense(asked: Asked, to: Answer) -> None:
    to.json({"kind": "Lease", "spec": 7})


def unversioned(asked: Asked, to: Answer) -> None:
    to.json({"kind": "Lease", "metadata": {}, "spec": {"holderIdentity": "a"}})


@pytest.mark.parametrize("method", ["GET", "PUT"])
@pytest.mark.parametrize("answer", [conflict, broken, forbidden, cut, nonsense, unversioned])
def test_a_holder_that_cannot_renew_stops_holding_in_time_and_goes_on_when_it_can(
    store: LeaseStore, method: str, answer: Callable[[Asked, Answer], None]
) -> None:
    store.put("")
    clock, terms = Clock(), list[int]()
    wrong = threading.Event()

    def trouble(asked: Asked, to: Answer) -> bool:
        if wrong.is_set() and asked.method == method:
            answer(asked, to)
            return True
        return False

    store.trouble = trouble
    with keeping(store) as part, standing(part, clock=clock, began=lambda: terms.append(1)) as candidate:
        wait_until(lambda: candidate.term() == 1)
        wrong.set()
        part.asked.clear()
        wait_until(lambda: [each.method for each in part.asked].count(method) > 2)
        assert candidate.term() == 1
        clock.now += 10
        assert candidate.term() == 0, "by time alone, whatever the thread does"
        assert "not renewed within 10 s" in candidate.reason()
        wrong.clear()
        wait_until(lambda: candidate.term() == 2)
        assert len(terms) == 2


def test_a_server_that_is_slow_is_not_waited_for_longer_than_a_hold(store: LeaseStore) -> None:
    store.put("")
    slow = threading.Event()
    go_on = threading.Event()

    def trouble(asked: Asked, to: Answer) -> bool:
        if slow.is_set() and asked.method == "PUT":
            go_on.wait(20)
        return False

    store.trouble = trouble
    with keeping(store) as part, standing(part, lease_seconds=2, renew_seconds=0.6) as candidate:
        wait_until(lambda: candidate.term() == 1)
        slow.set()
        wait_until(lambda: candidate.term() == 0)
        wait_until(lambda: "no answer within 0.2 s" in candidate.reason())
        slow.clear()
        go_on.set()
        wait_until(lambda: candidate.term() == 2)


def test_an_answer_that_is_lost_is_no_hold_until_the_next_one_arrives(store: LeaseStore) -> None:
    store.put("")
    lost = threading.Event()

    def trouble(asked: Asked, to: Answer) -> bool:
        if asked.method == "PUT" and not lost.is_set():
            store.apply(asked)
            lost.set()
            return True
        return False

    store.trouble = trouble
    with keeping(store) as part, standing(part) as candidate:
        wait_until(lambda: candidate.term() == 1)
        assert [each.method for each in part.asked].count("PUT") >= 2
        assert store.holder() == "a"


def test_another_that_took_it_ends_the_hold(store: LeaseStore) -> None:
    store.put("")
    with keeping(store) as part, standing(part) as candidate:
        wait_until(lambda: candidate.term() == 1)
        store.put("b", 3600)
        wait_until(lambda: candidate.term() == 0)
        assert "held by b" in candidate.reason()
    assert store.holder() == "b", "it does not give back what is another's"


def test_at_the_end_a_server_that_does_not_answer_is_not_waited_for_long(store: LeaseStore) -> None:
    store.put("")
    dead, end = threading.Event(), threading.Event()

    def trouble(asked: Asked, to: Answer) -> bool:
        return dead.is_set() and not end.wait(20)

    store.trouble = trouble
    with keeping(store) as part:
        with standing(part, renew_seconds=0.6) as candidate:
            wait_until(lambda: candidate.term() == 1)
            dead.set()
        assert store.holder() == "a", "it runs out"
        end.set()


def test_paths() -> None:
    assert NAME.path == f"{PATH}/queues"
