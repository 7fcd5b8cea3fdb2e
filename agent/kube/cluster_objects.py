"""Objects of the whole cluster from the API server, kept up to date by list and watch: what queue accounting needs of it.

One thread and one connection for each kind. An object that cannot be decoded is named and keeps its last readable form. A server
that cannot be reached changes nothing: what was known stays.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from agent.errors import AgentError
from agent.formats.queue_objects import POD_GROUP_API, PRIORITY_CLASS_API, QUEUE_API, QueueObjects, decode_objects
from agent.kube.http_access import Access, AccessError, Server
from agent.kube.json_objects import uid_of
from agent.kube.list_watch import BOOKMARK, Bounds, ListWatch
from agent.kube.worker import Worker
from agent.queues.observed_pods import PodChanges

log = logging.getLogger("pinfold")

_BOUNDS = Bounds(page=500, page_bytes=128 << 20, pages=2000)
_FIRST_WAIT, _LONGEST_WAIT = 0.5, 30.0  # seconds after a failure


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of object. path: of its list; api_version, name: elements of a list do not carry them."""

    name: str
    api_version: str
    path: str


POD = Kind("Pod", "v1", "/api/v1/pods")
KINDS = (
    Kind("Queue", QUEUE_API, f"/apis/{QUEUE_API}/queues"),
    Kind("PodGroup", POD_GROUP_API, f"/apis/{POD_GROUP_API}/podgroups"),
    Kind("PriorityClass", PRIORITY_CLASS_API, f"/apis/{PRIORITY_CLASS_API}/priorityclasses"),
    Kind("Node", "v1", "/api/v1/nodes"),
    POD,
)


class KindWatch:
    """The objects of one kind, by UID, each decoded once for every form it had; followed by a thread of its own, `worker`."""

    def __init__(self, access: Access, kind: Kind) -> None:
        self.kind = kind
        self.problem = "not listed yet"
        server = Server(access)
        self._where = f"{access.url.rstrip('/')}{kind.path}"
        self._source = ListWatch(server, self._where, kind.path, self._items, _BOUNDS)
        self._lock = threading.Lock()
        self._objects: dict[str, QueueObjects] = {}
        self._told: set[str] = set()  # UIDs that are new, different or gone since `drain`
        self._broken: set[str] = set()  # UIDs of objects with problems
        self._changes = 0
        self._listed = False
        self.worker = Worker(f"watch {kind.name}", self._run, server.abort)

    def now(self) -> tuple[bool, int]:
        """Whether everything was listed once, and how many changes there were."""
        with self._lock:
            return self._listed, self._changes

    def objects(self) -> Sequence[QueueObjects]:
        """All of them."""
        with self._lock:
            return tuple(self._objects.values())

    def drain(self) -> dict[str, QueueObjects | None]:
        """What is new, different or gone (None) since the last time, by UID."""
        with self._lock:
            told, self._told = self._told, set()
            return {uid: self._objects.get(uid) for uid in told}

    def put_back(self, uids: Iterable[str]) -> None:
        """What `drain` gave is to be told again."""
        with self._lock:
            self._told.update(uids)

    def broken(self) -> Sequence[QueueObjects]:
        """The objects that have problems."""
        with self._lock:
            return [self._objects[uid] for uid in self._broken]

    def _run(self) -> None:
        wait = 0.0
        stopping = self.worker.stopping
        while not stopping.wait(wait):
            try:
                if not self._source.listed:
                    self._source.list(self._replace)
                self._watch()
                wait = random.uniform(0.1, 0.5)
            except AgentError as error:
                if stopping.is_set():
                    return
                if str(error) != self.problem:
                    log.error("%s: what was known stays: %s", self.kind.name, error)
                self.problem = str(error)
                wait = min(max(_FIRST_WAIT, wait * 2), _LONGEST_WAIT)

    def _replace(self, items: Sequence[object]) -> None:
        """These are all objects."""
        with self._lock:
            before = dict(self._objects)
        found = dict(self._decoded(item, before) for item in items)
        with self._lock:
            for uid in self._objects.keys() - found.keys():
                self._put(uid, None)
            for uid, decoded in found.items():
                self._put(uid, decoded)
            self._listed = True
            self._changes += 1
        self.problem = ""

    def _items(self, page: Mapping[str, object]) -> list[object]:
        """null is an empty list, as Go writes it."""
        items = page.get("items")
        if page.get("kind") != f"{self.kind.name}List" or not isinstance(items, list | None):
            raise AccessError(f"{self._where}: not a {self.kind.name}List")
        return items or []

    def _watch(self) -> None:
        """Follow one watch to its end. Raises AccessError."""
        for kind, obj in self._source.watch(self._agreed):
            if kind == BOOKMARK:
                continue
            uid, decoded = self._decoded(obj, self._objects)  # which only this thread changes
            with self._lock:
                if self._put(uid, None if kind == "DELETED" else decoded):
                    self._changes += 1

    def _agreed(self) -> None:
        self.problem = ""

    def _decoded(self, item: object, before: Mapping[str, QueueObjects]) -> tuple[str, QueueObjects]:
        """An object by its UID. One that cannot be read keeps the form it had."""
        uid = uid_of(item)
        document = (
            {**item, "apiVersion": self.kind.api_version, "kind": self.kind.name} if isinstance(item, dict) else item
        )
        decoded = decode_objects([document])
        return uid, before[uid] if decoded.problems and uid in before else decoded

    def _put(self, uid: str, decoded: QueueObjects | None) -> bool:
        """Keep an object, or forget it (None). Whether that makes a difference: most events change nothing for queues."""
        if decoded == self._objects.get(uid):
            return False
        self._told.add(uid)
        if decoded is None:
            del self._objects[uid]
        else:
            self._objects[uid] = decoded
        if decoded is not None and decoded.problems:
            self._broken.add(uid)
        else:
            self._broken.discard(uid)
        return True


class ClusterObjects:
    """All kinds together. pods: whether pods are followed too."""

    def __init__(self, access: Access, *, pods: bool = True) -> None:
        self._watches = [KindWatch(access, kind) for kind in KINDS if kind is not POD]
        self._pods = KindWatch(access, POD) if pods else None
        self._seen: list[int] = []

    @property
    def _all(self) -> list[KindWatch]:
        return self._watches if self._pods is None else [*self._watches, self._pods]

    def start(self) -> None:
        """Begin to follow every kind."""
        for watch in self._all:
            watch.worker.start()

    def stop(self) -> None:
        """End all threads."""
        for watch in self._all:
            watch.worker.stop()

    def problems(self) -> Mapping[str, str]:
        """Kinds that cannot be followed now, and why."""
        return {watch.kind.name: watch.problem for watch in self._all if watch.problem}

    def changed(self) -> bool:
        """Whether `read` and `pods` would find something else than the last time."""
        found = [watch.now() for watch in self._all]
        return all(listed for listed, _ in found) and [changes for _, changes in found] != self._seen

    def read(self) -> QueueObjects | None:
        """Everything but pods as it is now, and the problems with pods; None while some kind has not been listed."""
        found = [watch.now() for watch in self._all]
        if not all(listed for listed, _ in found):
            return None
        self._seen = [changes for _, changes in found]
        return joined(
            [
                *(objects for watch in self._watches for objects in watch.objects()),
                *(QueueObjects(problems=objects.problems) for objects in (self._pods.broken() if self._pods else ())),
            ]
        )

    def pods(self) -> PodChanges | None:
        """Pods that are new, different or gone since the last time, of thousands; None where pods are not followed."""
        if self._pods is None:
            return None
        drained = self._pods.drain()
        return {uid: None if objects is None else next(iter(objects.pods), None) for uid, objects in drained.items()}

    def put_back(self, changes: PodChanges) -> None:
        """What `pods` gave could not be taken: tell it again the next time, as it is by then."""
        if self._pods is not None:
            self._pods.put_back(changes)
        self._seen = []


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
