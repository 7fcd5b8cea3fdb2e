"""One candidate of an election by a Lease: a thread that looks and writes by the rules of `agent.queues.election`.

Whether this process holds the Lease is a matter of time, not of that thread: a hold ends although the thread waits for a
server.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import inf

from agent.errors import AgentError
from agent.formats.lease import API, MAX_BYTES, decode_lease, encode_lease
from agent.kube.http_access import Access, Server, StatusError
from agent.kube.worker import Worker
from agent.model.lease import LeaseRecord
from agent.queues.election import ElectionOptions, Standing, claim, look, release, remaining, written

log = logging.getLogger("pinfold")

_CONFLICT = 409  # written by somebody else meanwhile, or made already


def boot_seconds() -> float:
    """Seconds since the machine started, those asleep included: a hold must not outlive a suspended machine's sleep."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@dataclass(frozen=True, slots=True)
class LeaseName:
    """Which Lease."""

    namespace: str
    name: str

    @property
    def path(self) -> str:
        return f"{self.folder}/{self.name}"

    @property
    def folder(self) -> str:
        return f"/apis/{API}/namespaces/{self.namespace}/leases"

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class LeaseCandidate:
    """Stands between `start` and `stop`. began: called from its thread when a term has begun, `term` being the new one."""

    def __init__(
        self,
        access: Access,
        name: LeaseName,
        options: ElectionOptions,
        clock: Callable[[], float] = boot_seconds,
    ) -> None:
        # a look and a write must both fit into a hold, or a slow server could never be kept
        self._access = replace(access, timeout_seconds=min(access.timeout_seconds, options.renew_seconds / 3))
        self._server = Server(self._access)
        self.name = name
        self.identity = options.identity
        self._options = options
        self._clock = clock
        self._standing = Standing()
        self._problem = ""
        self._held = False  # as it was said last
        self._began: Callable[[], None] = lambda: None
        self._worker = Worker("lease", self._run, self._server.abort)

    def start(self, began: Callable[[], None] = lambda: None) -> None:
        """Begin to stand."""
        self._began = began
        self._worker.start()

    def stop(self) -> None:
        """Give the Lease back, so that another takes it at once. By now nothing may be answered any more."""
        self._worker.stop()
        held = self._standing.term > 0
        self._standing = replace(self._standing, held_until=-inf)
        if not held:
            return
        try:
            document = self._look(server := Server(self._access))
            record = release(self._standing, self._options, time.time())
            if record is not None:
                self._send(server, record, document)
                log.info("lease %s given back", self.name)
        except AgentError as error:
            log.warning("lease %s not given back, it runs out: %s", self.name, error)

    def term(self) -> int:
        """The number of the term that runs now; 0 while another process holds the Lease, or nobody."""
        standing = self._standing
        return standing.term if standing.holds(self._clock()) else 0

    def reason(self) -> str:
        """Why it does not hold the Lease; "" where it does."""
        standing, now = self._standing, self._clock()
        if standing.holds(now):
            return ""
        trouble = f"; {self._problem}" if self._problem else ""
        found = standing.seen
        if standing.seen_since is None:
            return f"lease {self.name} has not been read yet{trouble}"
        if found is None:
            return f"lease {self.name} does not exist yet{trouble}"
        if found.holder == self._options.identity:
            return f"lease {self.name} was not renewed within {self._options.renew_seconds:g} s{trouble}"
        if not found.holder:
            wait = remaining(standing, self._options, now)
            return f"lease {self.name} is held by nobody yet, it may be taken in {wait:.0f} s{trouble}"
        since = now - standing.seen_since
        return f"lease {self.name} is held by {found.holder}, last renewed {since:.0f} s ago{trouble}"

    def _run(self) -> None:
        stopping = self._worker.stopping
        while not stopping.is_set():
            try:
                self._round()
                self._problem = ""
            except AgentError as error:
                if stopping.is_set():
                    return
                if str(error) != self._problem:
                    log.warning("lease %s cannot be kept: %s", self.name, error)
                self._problem = str(error)
            self._tell()
            stopping.wait(self._pause())

    def _pause(self) -> float:
        """A Lease that runs out sooner than the next look is due is looked at then."""
        wait = remaining(self._standing, self._options, self._clock())
        return min(self._options.retry_seconds, wait) if wait > 0 else self._options.retry_seconds

    def _round(self) -> None:
        """Look, and write where it is one's turn. Raises AgentError."""
        document = self._look(self._server)
        record = claim(self._standing, self._options, self._clock(), time.time())
        if record is None or self._worker.stopping.is_set():
            return
        sent, before = self._clock(), self._standing.term
        try:
            made = self._send(self._server, record, document)
        except StatusError as error:
            if error.status == _CONFLICT:
                return  # the next look shows who was faster
            raise
        self._standing = written(self._standing, made, self._options, sent, self._clock())
        if self._standing.term != before:
            log.info("lease %s held by %s", self.name, self.identity)
            self._held = True
            self._began()

    def _look(self, server: Server) -> dict[str, object] | None:
        """Read the Lease; the whole object, None where there is none."""
        try:
            record, document = decode_lease(server.get(self.name.path, limit=MAX_BYTES))
        except StatusError as error:
            if error.status != 404:
                raise
            self._standing = look(self._standing, None, self._options, self._clock())
            return None
        self._standing = look(self._standing, record, self._options, self._clock())
        return document

    def _send(self, server: Server, record: LeaseRecord, document: dict[str, object] | None) -> LeaseRecord:
        """The record as it is now, with its version. Raises AgentError."""
        body = encode_lease(record, self.name.namespace, self.name.name, document)
        method, path = ("POST", self.name.folder) if document is None else ("PUT", self.name.path)
        return decode_lease(server.send(method, path, body, "application/json", limit=MAX_BYTES))[0]

    def _tell(self) -> None:
        """Say once that a hold has ended."""
        if self._held and not self._standing.holds(self._clock()):
            self._held = False
            log.warning("lease lost: %s", self.reason())
