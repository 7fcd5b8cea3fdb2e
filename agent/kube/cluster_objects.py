"""Objects of the whole cluster from the API server, kept up to date by list and watch: what queue accounting needs of it.

One thread and one connection for each kind. An object that cannot be decoded is named and keeps its last readable form. A server
that cannot be reached changes nothing: what was known stays.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from agent.errors import AgentError
from agent.formats.queue_objects import POD_GROUP_API, PRIORITY_CLASS_API, QUEUE_API, QueueObjects, decode_objects
from agent.kube.http_access import Access, AccessError, Server, StatusError
from agent.kube.node_pods import decode_json, uid_of
from agent.kube.worker import Worker

log = logging.getLogger("pinfold")

PAGE = 500
MAX_PAGE_BYTES = 128 << 20
MAX_PAGES = 2000
MAX_EVENT_BYTES = 8 << 20
WATCH_SECONDS = 300
LATE_SECONDS = 30
_FIRST_WAIT, _LONGEST_WAIT = 0.5, 30.0  # seconds after a failure


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of object. path: of its list; api_version, name: elements of a list do not carry them."""

    name: str
    api_version: str
    path: str


KINDS = (
    Kind("Queue", QUEUE_API, f"/apis/{QUEUE_API}/queues"),
    Kind("PodGroup", POD_GROUP_API, f"/apis/{POD_GROUP_API}/podgroups"),
    Kind("PriorityClass", PRIORITY_CLASS_API, f"/apis/{PRIORITY_CLASS_API}/priorityclasses"),
    Kind("Node", "v1", "/api/v1/nodes"),
    Kind("Pod", "v1", "/api/v1/pods"),
)


class KindWatch:
    """The objects of one kind, by UID, each decoded once for every form it had; followed by a thread of its own, `worker`."""

    def __init__(self, access: Access, kind: Kind) -> None:
        self.kind = kind
        self.problem = "not listed yet"
        self._server = Server(access)
        self._where = f"{access.url.rstrip('/')}{kind.path}"
        self._lock = threading.Lock()
        self._objects: dict[str, QueueObjects] = {}
        self._changes = 0
        self._listed = False
        self._version = ""  # of the last thing heard; "": a list is needed
        self.worker = Worker(f"watch {kind.name}", self._run, self._server.abort)

    def now(self) -> tuple[bool, int, Sequence[QueueObjects]]:
        """Whether everything was listed once, how many changes there were, and the objects."""
        with self._lock:
            return self._listed, self._changes, tuple(self._objects.values())

    def _run(self) -> None:
        wait = 0.0
        stopping = self.worker.stopping
        while not stopping.wait(wait):
            try:
                if not self._version:
                    self._list()
                self._watch()
                wait = random.uniform(0.1, 0.5)
            except AgentError as error:
                if stopping.is_set():
                    return
                if isinstance(error, StatusError) and error.status in (410, 504):
                    self._version = ""
                if str(error) != self.problem:
                    log.error("%s: what was known stays: %s", self.kind.name, error)
                self.problem = str(error)
                wait = min(max(_FIRST_WAIT, wait * 2), _LONGEST_WAIT)

    def _list(self) -> None:
        """All pages, of one moment."""
        items: list[object] = []
        more = version = ""
        for _ in range(MAX_PAGES):
            query = {"limit": str(PAGE), **({"continue": more} if more else {})}
            page = decode_json(self._server.get(self.kind.path, query, limit=MAX_PAGE_BYTES), self._where)
            items += self._items(page)
            more, version = _metadata(page, "continue"), _metadata(page, "resourceVersion")
            if not more:
                break
        if more or not version:
            raise AccessError(f"{self._where}: not a whole list")
        found: dict[str, QueueObjects] = {}
        for item in items:
            self._put(found, item)
        with self._lock:
            self._objects, self._listed = found, True
            self._changes += 1
        self._version, self.problem = version, ""

    def _items(self, page: Mapping[str, object]) -> list[object]:
        """null is an empty list, as Go writes it."""
        items = page.get("items")
        if page.get("kind") != f"{self.kind.name}List" or not isinstance(items, list | None):
            raise AccessError(f"{self._where}: not a {self.kind.name}List")
        return items or []

    def _watch(self) -> None:
        """Follow one watch to its end. Raises AccessError."""
        seconds = WATCH_SECONDS * random.uniform(1.0, 2.0)
        query = {
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._version,
            "timeoutSeconds": str(round(seconds)),
        }
        quiet = seconds + LATE_SECONDS
        for line in self._server.lines(
            self.kind.path, query, limit=MAX_EVENT_BYTES, quiet_seconds=quiet, agreed=self._agreed
        ):
            self._take(decode_json(line, self._where))

    def _agreed(self) -> None:
        self.problem = ""

    def _take(self, event: Mapping[str, object]) -> None:
        kind, obj = event.get("type"), event.get("object")
        if kind == "ERROR" or not isinstance(obj, dict) or not (version := _metadata(obj, "resourceVersion")):
            self._version = ""
            raise AccessError(f"{self._where}: the watch broke: {str(obj)[:200]}", hint="it is listed again")
        if kind in ("ADDED", "MODIFIED", "DELETED"):
            with self._lock:
                if kind == "DELETED":
                    self._objects.pop(uid_of(obj), None)
                else:
                    self._put(self._objects, obj)
                self._changes += 1
        self._version = version

    def _put(self, objects: dict[str, QueueObjects], item: object) -> None:
        uid = uid_of(item)
        document = (
            {**item, "apiVersion": self.kind.api_version, "kind": self.kind.name} if isinstance(item, dict) else item
        )
        decoded, before = decode_objects([document]), self._objects.get(uid)
        objects[uid] = before if decoded.problems and before is not None else decoded


class ClusterObjects:
    """All kinds together. without: kinds that are not asked for."""

    def __init__(self, access: Access, without: Sequence[str] = ()) -> None:
        self._watches = [KindWatch(access, kind) for kind in KINDS if kind.name not in without]
        self._seen: list[int] = []

    def start(self) -> None:
        """Begin to follow every kind."""
        for watch in self._watches:
            watch.worker.start()

    def stop(self) -> None:
        """End all threads."""
        for watch in self._watches:
            watch.worker.stop()

    def problems(self) -> Mapping[str, str]:
        """Kinds that cannot be followed now, and why."""
        return {watch.kind.name: watch.problem for watch in self._watches if watch.problem}

    def changed(self) -> bool:
        """Whether `read` would find something else than the last time."""
        found = [watch.now() for watch in self._watches]
        return all(listed for listed, _, _ in found) and [changes for _, changes, _ in found] != self._seen

    def read(self) -> QueueObjects | None:
        """Everything as it is now; None while some kind has not been listed."""
        found = [watch.now() for watch in self._watches]
        if not all(listed for listed, _, _ in found):
            return None
        self._seen = [changes for _, changes, _ in found]
        return joined([each for _, _, objects in found for each in objects])


def joined(parts: Sequence[QueueObjects]) -> QueueObjects:
    """Several collections as one."""
    return QueueObjects(
        tuple(each for part in parts for each in part.queues),
        tuple(each for part in parts for each in part.pod_groups),
        tuple(each for part in parts for each in part.priority_classes),
        tuple(each for part in parts for each in part.pods),
        tuple(each for part in parts for each in part.nodes),
        tuple(each for part in parts for each in part.problems),
    )


def _metadata(obj: Mapping[str, object], key: str) -> str:
    metadata = obj.get("metadata")
    found = metadata.get(key) if isinstance(metadata, dict) else None
    return found if isinstance(found, str) and len(found) <= 8192 else ""
