"""Clients of the agent's sockets: some ask and go, some go in the middle, some stay and say nothing, some stop reading."""

from __future__ import annotations

import contextlib
import random
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import grpc

from agent.errors import AgentError
from agent.proto.node_v1_pb2 import WatchOccupancyRequest, WatchRequest
from agent.proto.node_v1_pb2_grpc import NodeStub
from agent.serve.control_client import ControlClient
from tests.serve.clients import channel, client, names
from tests.serve.raw_http2 import RawClient

_LIST = "/v1.PodResourcesLister/List"
_HANGING = 24  # at once


@dataclass
class Clients:
    """Threads that use one agent until `stop`. An agent that is away is no error: it is asked again."""

    resources: Path
    node: Path
    control: Path
    port: int
    seed: int = 1
    done: Counter[str] = field(default_factory=Counter)
    _stopping: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)

    def start(self, askers: int) -> None:
        rng = random.Random(self.seed)
        works = [
            *[(self._ask, "list and leave")] * askers,
            (self._hang, "hang"),
            (self._watch, "watch"),
            (self._stop_reading, "stop reading"),
            (self._scrape, "scrape"),
            (self._status, "status"),
        ]
        for work, name in works:
            own = random.Random(rng.random())
            thread = threading.Thread(target=self._again, args=(work, name, own), name=name, daemon=True)
            thread.start()
            self._threads.append(thread)

    def stop(self) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join(30)

    def _again(self, work: Callable[[random.Random], None], name: str, rng: random.Random) -> None:
        while not self._stopping.is_set():
            try:
                work(rng)
                self.done[name] += 1
            except (grpc.RpcError, OSError, AgentError):
                self.done[f"{name}: agent away"] += 1
                self._stopping.wait(0.5)

    def _ask(self, rng: random.Random) -> None:
        with client(self.resources) as stub:
            for _ in range(rng.randint(1, 3)):
                names(stub)
        self._stopping.wait(rng.uniform(0.2, 1.0))

    def _hang(self, rng: random.Random) -> None:
        """Connections that send half a call, or nothing, and are left open for a while."""
        held: list[RawClient] = []
        try:
            for _ in range(_HANGING):
                each = RawClient(self.resources, window=rng.choice([0, 10]))
                held.append(each)
                if rng.random() < 0.5:
                    each.open_call(_LIST)
                else:
                    each.call(_LIST)
                if self._stopping.wait(0.3):
                    return
            self._stopping.wait(5)
        finally:
            for each in held:
                each.close()

    def _watch(self, rng: random.Random) -> None:
        """Follow the node for a while."""
        with channel(self.node) as opened:
            stream = NodeStub(opened).Watch(WatchRequest(beat_seconds=1))
            end = time.monotonic() + rng.uniform(1, 8)
            for _ in stream:
                if time.monotonic() > end or self._stopping.is_set():
                    break
            stream.cancel()  # type: ignore[no-untyped-call] # grpc-stubs leave it out

    def _stop_reading(self, rng: random.Random) -> None:
        """Watchers that read one event and then none."""
        with channel(self.node) as opened:
            stub = NodeStub(opened)
            node = stub.Watch(WatchRequest(beat_seconds=1))
            occupancy = stub.WatchOccupancy(WatchOccupancyRequest(beat_seconds=1))
            next(iter(node))
            next(iter(occupancy))
            self._stopping.wait(rng.uniform(3, 15))
            if rng.random() < 0.5:  # else the connection just ends
                node.cancel()  # type: ignore[no-untyped-call]
                occupancy.cancel()  # type: ignore[no-untyped-call]

    def _scrape(self, rng: random.Random) -> None:
        for path in ("/metrics", "/readyz?verbose", "/"):
            with (
                contextlib.suppress(urllib.error.HTTPError),
                urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=20) as answer,
            ):
                answer.read()
        self._stopping.wait(rng.uniform(1, 3))

    def _status(self, rng: random.Random) -> None:
        ControlClient(self.control, timeout_seconds=20).call("status", {})
        self._stopping.wait(rng.uniform(0.5, 2))
