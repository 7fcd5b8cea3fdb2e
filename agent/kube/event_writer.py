"""Tells Kubernetes of pods by core/v1 Events: from a thread of its own, a few a second at most, and never a reason to wait.

Events are for people: the oldest go where too many wait, and what the API server refuses is not sent again.
"""

from __future__ import annotations

import json
import random
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime

from agent.errors import AgentError
from agent.kube.http_access import Server, StatusError
from agent.kube.source import backoff
from agent.kube.worker import Worker
from agent.policy.pod_events import PodEvent

COMPONENT = "pinfold"
MAX_WAITING = 200
MAX_MESSAGE = 1024  # the API server's own bound
INTERVAL_SECONDS = 0.2
_MAX_ANSWER = 64 << 10


class EventWriter:
    """Writes from a thread of its own, `worker`.

    node_name: the Events' host. failed: told why the last Event could not be written, None when one was.
    """

    def __init__(
        self,
        server: Server,
        node_name: str,
        failed: Callable[[AgentError | None], None] = lambda error: None,
        interval_seconds: float = INTERVAL_SECONDS,
    ) -> None:
        self._server = server
        self._node = node_name
        self._failed = failed
        self._interval = interval_seconds
        self._rng = random.Random()
        self._waiting: deque[tuple[PodEvent, float]] = deque(maxlen=MAX_WAITING)
        self._told = threading.Event()
        self.worker = Worker("events", self._run, self._wake)

    def tell(self, event: PodEvent) -> None:
        """Have it written; returns at once."""
        self._waiting.append((event, time.time()))
        self._told.set()

    def _wake(self) -> None:
        """At the end; what waits is not written."""
        self._told.set()
        self._server.abort()

    def _run(self) -> None:
        failures = 0
        stopping = self.worker.stopping
        while not stopping.is_set():
            if not self._waiting:
                self._told.wait()
                self._told.clear()
                continue
            event, when = self._waiting[0]
            try:
                self._write(event, when)
                failures = 0
                self._failed(None)
            except AgentError as error:
                if stopping.is_set():
                    return
                self._failed(error)
                if not isinstance(error, StatusError) or error.status in (401, 429) or error.status >= 500:
                    failures += 1
                    stopping.wait(backoff(failures, self._rng, getattr(error, "retry_after", None)))
                    continue
            if self._waiting and self._waiting[0] == (event, when):  # else it has gone, being the oldest
                self._waiting.popleft()
            stopping.wait(self._interval)

    def _write(self, event: PodEvent, when: float) -> None:
        namespace = event.pod.namespace
        body = json.dumps(self._encode(event, when)).encode()
        self._server.send("POST", f"/api/v1/namespaces/{namespace}/events", body, "application/json", limit=_MAX_ANSWER)

    def _encode(self, event: PodEvent, when: float) -> dict[str, object]:
        stamp = datetime.fromtimestamp(when, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        pod = event.pod
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"{pod.name[:230]}.{secrets.token_hex(8)}", "namespace": pod.namespace},
            "involvedObject": {
                "apiVersion": "v1",
                "kind": "Pod",
                "name": pod.name,
                "namespace": pod.namespace,
                "uid": pod.uid,
            },
            "type": "Warning" if event.warning else "Normal",
            "reason": event.reason,
            "message": event.message[:MAX_MESSAGE],
            "source": {"component": COMPONENT, "host": self._node},
            "reportingComponent": COMPONENT,
            "reportingInstance": self._node,
            "firstTimestamp": stamp,
            "lastTimestamp": stamp,
            "count": 1,
        }
