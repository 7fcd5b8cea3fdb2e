"""Many resizes at once on one ledger: admitted up to the bound, durable before they are told, with few writes."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from agent.formats.pods import decode_pod
from agent.queues.accountant import AccountantOptions
from agent.queues.ledger import LedgerOptions, Reservation
from agent.queues.resize_growth import CPUMemory
from agent.serve.accountant import AccountantService
from agent.serve.accountant_journal import LedgerJournal
from agent.serve.accountant_store import AccountantStore, StoreError
from agent.serve.http_messages import Request
from agent.serve.queue_series import QUEUE_SERIES
from agent.serve.series import Tally
from agent.serve.webhook import ResizeWebhook
from tests.serve.accountants import Clock, cluster, pod, report, upsize

RACERS, ROOM = 400, 57
LEDGER = AccountantOptions(ledger=LedgerOptions())


class Disk:
    """Counts what is synced; refuses while `full`, waits while `gate` is down. The journal is a real file."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.syncs = 0
        self.full = False
        self.gate = threading.Event()
        self.gate.set()
        self._sync = os.fdatasync
        monkeypatch.setattr(os, "fdatasync", self.sync)

    def sync(self, descriptor: int) -> None:
        assert self.gate.wait(30)
        self.syncs += 1
        if self.full:
            raise OSError(28, "No space left on device")
        self._sync(descriptor)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[AccountantStore]:
    with AccountantStore(tmp_path) as found:
        yield found


@pytest.fixture
def service(store: AccountantStore, disk: Disk) -> Iterator[AccountantService]:
    """A queue that is full up to ROOM cores, held by RACERS pods of one core."""
    found = AccountantService(LEDGER, Clock(), store)
    found.take_objects(cluster(1000 * (RACERS + ROOM)))
    found.take_report(report(1, {f"u{number}": 1.0 for number in range(RACERS)}))
    yield found
    disk.gate.set()
    found.close()


def grow(service: AccountantService, number: int, cores: int = 2) -> bool:
    old, new = (decode_pod(pod(f"u{number}", str(each))) for each in (1, cores))
    return service.resize(old, new).answer.allowed


def durable(store: AccountantStore) -> set[str]:
    """The pods with a reservation that a new process would find."""
    found: dict[str, object] = {}
    _, *lines = store.directory.joinpath("ledger.jsonl").read_text().splitlines()
    for line in lines:
        entry = json.loads(line.partition(" ")[2])
        found[entry["uid"]] = entry["reservation"]
    return {uid for uid, reservation in found.items() if reservation is not None}


def test_hundreds_at_once_are_admitted_up_to_the_bound_with_few_writes(
    service: AccountantService, store: AccountantStore, disk: Disk
) -> None:
    before, disk.syncs = durable(store), 0
    disk.gate.clear()
    with ThreadPoolExecutor(RACERS) as pool:
        racing = [pool.submit(grow, service, number) for number in range(RACERS)]
        wanting = threading.Event()
        while sum(each.done() for each in racing) < RACERS - ROOM:
            wanting.wait(0.01)  # those that are refused need no disk
        assert not any(each.result() for each in racing if each.done()), "nobody was told yes before it was durable"
        disk.gate.set()
        answers = [each.result() for each in racing]
    assert not before
    assert sum(answers) == ROOM
    assert durable(store) == {f"u{number}" for number, admitted in enumerate(answers) if admitted}
    assert disk.syncs < ROOM, "many shared one write"


def test_a_write_that_fails_admits_nobody_and_gives_the_room_back(
    service: AccountantService, store: AccountantStore, disk: Disk
) -> None:
    disk.full = True
    for number in range(3):
        with pytest.raises(StoreError, match="No space left"):
            grow(service, number, 1 + ROOM)
    disk.full = False
    assert not service.view().reserved
    assert grow(service, 4, 1 + ROOM)
    assert durable(store) == {"u4"}


def test_of_a_pod_that_grows_twice_a_failed_write_leaves_the_first(service: AccountantService, disk: Disk) -> None:
    assert grow(service, 0, 3)
    disk.full = True
    with pytest.raises(StoreError):
        grow(service, 0, 9)
    assert service.view().reserved["leaf"].cpu_millis == 2000


def test_what_ended_is_written_with_the_next_tick(service: AccountantService, store: AccountantStore) -> None:
    assert grow(service, 0)
    service.take_report(report(2, {"u0": 2.0}))
    service.tick()
    assert not durable(store)


def test_a_tick_repairs_what_a_failed_write_left_undone(
    service: AccountantService, store: AccountantStore, disk: Disk
) -> None:
    assert grow(service, 0)
    assert grow(service, 1)
    service.take_report(report(2, {f"u{number}": 2.0 if number == 0 else 1.0 for number in range(RACERS)}))
    disk.full = True
    service.tick()
    assert "ledger.jsonl" in service.store_problem
    disk.full = False
    service.tick()
    assert service.store_problem == ""
    assert durable(store) == {"u1"}


def test_after_its_end_a_journal_writes_nothing(store: AccountantStore) -> None:
    store.load_ledger()
    journal = LedgerJournal(store)
    journal.start()
    one = Reservation("prod/p1", "leaf", True, CPUMemory(2000, 0), CPUMemory(1000, 0), 1e9)
    journal.write({"a": one}).result()
    journal.stop()
    with pytest.raises(StoreError, match="ending"):
        journal.write({"b": one}).result()
    assert durable(store) == {"a"}


def test_a_client_that_goes_away_while_its_reservation_is_written_ends_nothing(
    service: AccountantService, store: AccountantStore, disk: Disk
) -> None:
    """An API server gives up on a webhook after some seconds; the connection is cut, and what waits for the disk is cancelled."""
    disk.gate.clear()

    async def give_up() -> None:
        verdict, done = service.begin_resize(decode_pod(pod("p0", "1")), decode_pod(pod("p0", "2")))
        assert verdict.answer.allowed
        assert done is not None
        service.commit()
        waiting = asyncio.ensure_future(asyncio.wrap_future(done))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    asyncio.run(give_up())
    disk.gate.set()
    assert service.resize(decode_pod(pod("p1", "1")), decode_pod(pod("p1", "2"))).answer.allowed
    assert store.reservations.keys() == {"p0", "p1"}, "what was reserved for nobody ends by its time, or when it shows"


def hook_of(service: AccountantService) -> ResizeWebhook:
    return ResizeWebhook(service, Tally(QUEUE_SERIES))


async def ask(hook: ResizeWebhook, number: int) -> dict[str, Any]:
    answer = await hook.answer(Request("/validate-resize", method="POST", body=upsize(f"u{number}", "1", "2")))
    response: dict[str, Any] = json.loads(answer.body)["response"]
    return response


def test_reviews_that_are_there_at_one_time_share_one_write(
    service: AccountantService, store: AccountantStore, disk: Disk
) -> None:
    async def all_at_once() -> list[dict[str, Any]]:
        hook = hook_of(service)
        return await asyncio.gather(*(ask(hook, number) for number in range(20)))

    answers = asyncio.run(all_at_once())
    assert all(answer["allowed"] for answer in answers)
    assert durable(store) == {f"u{number}" for number in range(20)}
    assert disk.syncs == 1


def test_a_shared_write_that_fails_refuses_all_of_them(service: AccountantService, disk: Disk) -> None:
    async def all_at_once() -> list[dict[str, Any]]:
        hook = hook_of(service)
        return await asyncio.gather(*(ask(hook, number) for number in range(20)))

    disk.full = True
    answers = asyncio.run(all_at_once())
    assert {answer["status"]["message"].rpartition(": ")[2] for answer in answers} == {
        "the reservation ledger cannot be written; try again later"
    }
    assert not service.view().reserved


def test_a_client_that_leaves_a_shared_write_takes_nothing_from_the_others(
    service: AccountantService, store: AccountantStore, disk: Disk
) -> None:
    async def one_leaves() -> dict[str, Any]:
        hook = hook_of(service)
        disk.gate.clear()
        leaving, staying = (asyncio.ensure_future(ask(hook, number)) for number in range(2))
        await asyncio.sleep(0.01)
        leaving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await leaving
        disk.gate.set()
        return await staying

    assert asyncio.run(one_leaves())["allowed"]
    assert durable(store) == {"u0", "u1"}
