"""Hundreds of resizes at two replicas while the Lease changes hands: what is admitted is the bound, not a core more."""

from __future__ import annotations

import json
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from agent.formats.queue_objects import QueueObjects, decode_objects
from agent.kube.http_access import Access
from agent.kube.lease import LeaseCandidate, LeaseName
from agent.queue_replica import Replica
from agent.queues.accountant import AccountantOptions
from agent.queues.election import ElectionOptions
from agent.queues.ledger import LedgerOptions
from agent.serve.accountant import AccountantService
from agent.serve.accountant_store import AccountantStore
from agent.serve.http import HTTPServer
from agent.serve.loop import ServingLoop
from agent.serve.queue_client import QueueClient, QueueServerError, ServerAddress
from agent.serve.queue_series import QUEUE_SERIES
from agent.serve.series import Tally
from agent.serve.sockets import SocketAccess
from agent.serve.webhook import PATH, ResizeWebhook
from tests.kube.leases import LeaseStore, keeping
from tests.kube.servers import HTTPPart, wait_until
from tests.serve.accountants import node, pod, pod_group, queue, upsize

PODS, ROOM = 200, 40  # of one core each; how many of them may have a second one


class Objects:
    """The API server's pods. A change is seen by every replica a moment after it was written."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        pods = [_running(f"p{each}", "1") for each in range(PODS)]
        bound = (PODS + ROOM) * 1000
        self.now: QueueObjects = decode_objects(
            [queue("dept"), queue("leaf", "dept", bound), pod_group("pg", "leaf"), node("n1"), *pods]
        )
        assert not self.now.problems
        self.watchers: list[AccountantService] = []

    def write(self, name: str) -> None:
        """The pod asks for two cores from now on."""
        (grown,) = decode_objects([_running(name, "2")]).pods
        with self._lock:
            pods = tuple(grown if each.name == name else each for each in self.now.pods)
            self.now = replace(self.now, pods=pods)
            for each in self.watchers:
                each.take_objects(self.now)


def _running(name: str, cpu: str) -> dict[str, object]:
    found = {"apiVersion": "v1", "kind": "Pod", **pod(name, cpu, nodeName="n1")}
    given = {"name": "c", "allocatedResources": {"cpu": "1"}, "resources": {"requests": {"cpu": "1"}}}
    found["status"] = {"phase": "Running", "containerStatuses": [given]}
    return found


@dataclass
class Side:
    """One replica's parts that matter: its accounts, its place in the election, its webhook."""

    service: AccountantService
    replica: Replica
    server: HTTPServer
    client: QueueClient

    def stop(self) -> None:
        self.server.stop()
        self.replica.stop()
        self.service.close()


def begin(loop: ServingLoop, part: HTTPPart, objects: Objects, store: AccountantStore, name: str) -> Side:
    found = AccountantService(AccountantOptions(ledger=LedgerOptions()), time.time, store)
    found.take_objects(objects.now)
    objects.watchers.append(found)
    options = ElectionOptions(name, retry_seconds=0.02)
    replica = Replica(found, LeaseCandidate(Access(part.url), LeaseName("pinfold", "queues"), options))
    replica.start()
    hook = ResizeWebhook(found, Tally(QUEUE_SERIES), fail_open=False, standby=replica.standby)
    path = store.directory / "hook.sock"
    server = HTTPServer(loop, "", 0, {}, posts={PATH: hook.posting()}, socket=SocketAccess(path))
    server.start()
    return Side(found, replica, server, QueueClient(ServerAddress(str(path))))


@pytest.mark.parametrize("seed", range(2))
def test_no_growth_is_given_away_twice(tmp_path: Path, seed: int) -> None:
    lease, objects = LeaseStore(), Objects()
    lease.put("", 1)
    admitted: list[str] = []
    with (
        keeping(lease) as part,
        ServingLoop() as one,
        ServingLoop() as other,
        AccountantStore(tmp_path / "a") as store_a,
        AccountantStore(tmp_path / "b") as store_b,
    ):
        first = begin(one, part, objects, store_a, "a")
        wait_until(lambda: first.replica.standby() == "")
        second = begin(other, part, objects, store_b, "b")
        sides = [first, second]

        def resize(name: str) -> int:
            """As an API server does for a client that tries again until it has an answer; the answer's code."""
            chance = random.Random(f"{seed} {name}")
            while True:
                try:
                    text = chance.choice(sides).client.post(PATH, json.loads(upsize(name, "1", "2")))
                except QueueServerError:  # failurePolicy: Fail
                    time.sleep(0.01)
                    continue
                response = json.loads(text)["response"]
                if response["allowed"]:
                    admitted.append(name)
                    time.sleep(chance.uniform(0, 0.1))
                    objects.write(name)
                    return 200
                if response["status"]["code"] == 403:
                    return 403
                time.sleep(0.01)

        with ThreadPoolExecutor(12) as clients:
            answers = [clients.submit(resize, f"p{each}") for each in range(PODS)]
            wait_until(lambda: len(admitted) >= ROOM // 2)
            sides.remove(first)
            first.stop()
            codes = [each.result() for each in answers]
        holder = lease.holder()
        second.stop()
    assert len(admitted) == ROOM
    assert (codes.count(200), codes.count(403)) == (ROOM, PODS - ROOM)
    assert holder == "b"
