"""Puts what the node holds into Kubernetes: its NodeResourceTopology object, and the NUMA placement annotation of its pods.

Reads at the start only (and every `resync_seconds`, if asked): after that what was written is known, and only differences are
sent. The object goes by server-side apply, so that the API server itself tells when somebody else owns its zones; annotations go
by merge patches that name the pod's UID, so that a new pod of the same name is never meant. Another writer of the same thing
is named and left alone, unless `force` is set.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from agent.errors import AgentError
from agent.formats.node_resource_topology import API_VERSION, PLURAL, encode_node_resource_topology
from agent.formats.numa_placement import OBSERVED, encode_placement
from agent.kube.http_access import AccessError, Server, StatusError
from agent.kube.newest_report import NewestReport
from agent.kube.worker import Worker
from agent.model.occupancy import Occupancy

MANAGER = "pinfold"
_MAX_LIST = 64 << 20
_MAX_ANSWER = 64 << 10
_FOREIGN_WINDOW_SECONDS = 600.0
_BACKOFF_SECONDS = (1.0, 60.0)  # first and longest wait after a failure


@dataclass(frozen=True, slots=True)
class WriterOptions:
    """What is written, and how often at most. force: go on where another writer was found. resync_seconds: 0 for never."""

    topology: bool = True
    placement: bool = True
    pods_fingerprint: bool = False
    force: bool = False
    resync_seconds: float = 0.0
    topology_interval_seconds: float = 1.0
    pods_per_second: float = 50.0


class ForeignWriterError(AgentError):
    """Somebody else writes the same object."""

    hint = "let one of the two write it: stop the other exporter, or set reports.kubernetes.force"


@dataclass(slots=True)
class _Known:
    """What the API server has, as far as we know. placements: UID -> value, None where the pod has none.

    absent: pods that the API server does not have. written: pods whose annotation is ours. foreign: when somebody else changed it
    last. given_up: pods left to that writer.
    """

    node_uid: str = ""
    topology: Mapping[str, Any] | None = None
    placements: dict[str, str | None] = field(default_factory=dict)
    names: dict[str, tuple[str, str]] = field(default_factory=dict)
    absent: set[str] = field(default_factory=set)
    written: set[str] = field(default_factory=set)
    foreign: dict[str, float] = field(default_factory=dict)
    given_up: set[str] = field(default_factory=set)

    def forget(self, uid: str) -> None:
        """This pod is not here any more."""
        self.placements.pop(uid, None)
        self.names.pop(uid, None)
        self.foreign.pop(uid, None)
        for uids in (self.absent, self.written, self.given_up):
            uids.discard(uid)


class ReportWriter:
    """Writes from a thread of its own, `worker`; only the newest report counts. failed, written: told what became of it."""

    def __init__(
        self,
        server: Server,
        options: WriterOptions,
        failed: Callable[[AgentError], None],
        written: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._server = server
        self._options = options
        self._failed = failed
        self._written = written
        self._clock = clock
        self._reports = NewestReport()
        self._known: _Known | None = None
        self._topology_given_up = False
        self._resync_at = float("inf")
        self._next_topology = self._next_pod = float("-inf")
        self.worker = Worker("report-writer", self._run, self._wake)

    def show(self, report: Occupancy) -> None:
        """A newer report. Never waits."""
        self._reports.show(report)

    # --- the thread ---

    def _wake(self) -> None:
        """At the end; what was not written stays unwritten."""
        self._reports.stop()
        self._server.abort()

    def _run(self) -> None:
        done: Occupancy | None = None
        wait = 0.0
        while (report := self._next(done, wait)) is not None:
            try:
                if self._known is None or self._clock() >= self._resync_at:
                    self._learn(report.node)
                self._write_topology(report)
                self._write_placements(report)
            except AccessError as error:
                self._failed(error)
                asked = error.retry_after if isinstance(error, StatusError) else None
                first, longest = _BACKOFF_SECONDS
                wait = min(max(asked or 0.0, wait * 2, first), longest)
                continue
            if report is not done:
                self._written()
            done, wait = report, 0.0

    def _next(self, done: Occupancy | None, wait: float) -> Occupancy | None:
        """The newest report, once there is a newer one than `done` or something is to be read again; None at the end."""
        again = max(self._resync_at - self._clock(), 0.0) if self._options.resync_seconds and done else None
        return self._reports.next(done, wait=wait, quiet=again)

    # --- what is there ---

    def _learn(self, node: str) -> None:
        """Read what the API server has: once at the start, then every resync_seconds."""
        known = self._known or _Known()
        if self._options.topology and not known.node_uid:
            known.node_uid = self._node_uid(node)
        if self._options.placement:
            listed = self._list(node)
            for uid, (name, value, managers) in listed.items():
                ours = known.placements.get(uid)
                if uid in known.placements and ours != value:
                    self._somebody_else(known, uid, f"pod {name[0]}/{name[1]}", managers)
                known.placements[uid], known.names[uid] = value, name
        known.topology = None
        self._known = known
        resync = self._options.resync_seconds
        self._resync_at = self._clock() + resync if resync else float("inf")

    def _node_uid(self, node: str) -> str:
        """The UID of the Node object, which owns ours; "" where there is none or it may not be read."""
        try:
            body = json.loads(self._server.get(f"/api/v1/nodes/{quote(node)}", limit=_MAX_LIST))
        except StatusError as error:
            if error.status in (403, 404):
                return ""
            raise
        except ValueError as error:
            raise AccessError(f"node {node}: not JSON") from error
        metadata = body.get("metadata") if isinstance(body, dict) else None
        return str(metadata.get("uid", "")) if isinstance(metadata, dict) else ""

    def _list(self, node: str) -> dict[str, tuple[tuple[str, str], str | None, str]]:
        """UID -> name, annotation, who wrote it last; of the pods that are bound to this node."""
        query = {"fieldSelector": f"spec.nodeName={node}"}
        try:
            items = json.loads(self._server.get("/api/v1/pods", query, limit=_MAX_LIST)).get("items") or []
            return {
                str(each["metadata"]["uid"]): (
                    (str(each["metadata"]["namespace"]), str(each["metadata"]["name"])),
                    (each["metadata"].get("annotations") or {}).get(OBSERVED),
                    _writers(each["metadata"].get("managedFields") or []),
                )
                for each in items
            }
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise AccessError(f"pods of node {node}: not a list of pods") from error

    def _somebody_else(self, known: _Known, uid: str, what: str, managers: str) -> None:
        """A value of ours was changed: mended once, left alone when it happens again within ten minutes."""
        now = self._clock()
        again = now - known.foreign.get(uid, float("-inf")) < _FOREIGN_WINDOW_SECONDS
        known.foreign[uid] = now
        if again and not self._options.force:
            known.given_up.add(uid)
            self._failed(ForeignWriterError(f"{what}: annotation {OBSERVED} is written by {managers} too"))

    # --- what is written ---

    def _write_topology(self, report: Occupancy) -> None:
        known = self._known
        if known is None or not self._options.topology or self._topology_given_up:
            return
        fingerprint = self._options.pods_fingerprint
        wanted = encode_node_resource_topology(report, node_uid=known.node_uid, pods_fingerprint=fingerprint)
        if wanted == known.topology:
            return
        self._reports.pause(self._next_topology - self._clock())
        self._next_topology = self._clock() + self._options.topology_interval_seconds
        path = f"/apis/{API_VERSION}/{PLURAL}/{quote(report.node)}"
        query = {"fieldManager": MANAGER, "force": str(self._options.force).lower()}
        try:
            self._server.send("PATCH", path, _body(wanted), "application/apply-patch+yaml", query, limit=_MAX_ANSWER)
        except StatusError as error:
            if error.status != 409:
                raise
            self._topology_given_up = True
            self._failed(ForeignWriterError(f"NodeResourceTopology {report.node}: {error}"))
            return
        known.topology = wanted

    def _write_placements(self, report: Occupancy) -> None:
        known = self._known
        if known is None or not self._options.placement:
            return
        for uid, pod in report.pods.items():
            known.names.setdefault(uid, (pod.namespace, pod.name))
            self._write_placement(known, uid, encode_placement(pod.held))
        for uid in [uid for uid in known.names if uid not in report.pods]:
            if uid in known.written:
                self._write_placement(known, uid, None)  # it has ended, or is none of ours any more
            known.forget(uid)

    def _write_placement(self, known: _Known, uid: str, wanted: str | None) -> None:
        if wanted == known.placements.get(uid) or uid in known.absent or uid in known.given_up:
            return
        namespace, name = known.names[uid]
        self._reports.pause(self._next_pod - self._clock())
        self._next_pod = self._clock() + 1 / self._options.pods_per_second
        patch = {"metadata": {"uid": uid, "annotations": {OBSERVED: wanted}}}
        path = f"/api/v1/namespaces/{quote(namespace)}/pods/{quote(name)}"
        try:
            self._server.send(
                "PATCH",
                path,
                _body(patch),
                "application/merge-patch+json",
                {"fieldManager": MANAGER},
                limit=_MAX_ANSWER,
            )
        except StatusError as error:
            if error.status not in (404, 409, 422):
                raise
            known.absent.add(uid)  # a manifest's pod, one that has ended, or another one of this name
            return
        known.placements[uid] = wanted
        known.written.add(uid)


def _body(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _writers(managed_fields: Any) -> str:
    """The field managers that have the annotation, by metadata.managedFields."""
    names = [
        str(each.get("manager"))
        for each in managed_fields
        if isinstance(each, dict)
        and each.get("manager") != MANAGER
        and f"f:{OBSERVED}" in json.dumps(each.get("fieldsV1") or {})
    ]
    return ", ".join(names) or "an unnamed writer"
