"""Objects of the cluster from an API server that answers as the test tells it."""

from __future__ import annotations

import queue as queues
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from agent.formats.queue_objects import QueueObjects
from agent.kube.cluster_objects import ClusterObjects
from agent.kube.http_access import Access
from agent.model.pod import Pod
from tests.kube.servers import Answer, Asked, HTTPPart, served
from tests.serve.accountants import pod, pod_group, queue

KINDS = {
    "queues": "QueueList",
    "podgroups": "PodGroupList",
    "priorityclasses": "PriorityClassList",
    "nodes": "NodeList",
    "pods": "PodList",
}


class Cluster:
    """Lists and one stream of events for each kind of object."""

    def __init__(self) -> None:
        self.items: dict[str, list[dict[str, Any]]] = {}
        self.events: dict[str, queues.Queue[dict[str, Any] | None]] = {}
        self.refusing = threading.Event()

    def kind(self, path: str) -> str:
        return path.rpartition("/")[2]

    def stream(self, kind: str) -> queues.Queue[dict[str, Any] | None]:
        return self.events.setdefault(kind, queues.Queue())

    def answer(self, asked: Asked, answer: Answer) -> None:
        kind = self.kind(asked.path)
        if self.refusing.is_set():
            answer.json({"message": "down"}, 503)
        elif asked.watch:
            answer.open()
            while (event := self.stream(kind).get()) is not None:
                answer.send(event)
            answer.end()
        else:
            # Elements of a real list carry neither kind nor apiVersion.
            items = [
                {key: value for key, value in item.items() if key not in ("kind", "apiVersion")}
                for item in self.items.get(kind, [])
            ]
            answer.json({"kind": KINDS[kind], "metadata": {"resourceVersion": "10"}, "items": items})


def stored(obj: dict[str, Any], uid: str, version: int = 1) -> dict[str, Any]:
    return {**obj, "metadata": {**obj["metadata"], "uid": uid, "resourceVersion": str(version)}}


@contextmanager
def following(cluster: Cluster, *, pods: bool = False) -> Iterator[tuple[ClusterObjects, HTTPPart]]:
    with served(cluster.answer) as part:
        found = ClusterObjects(Access(part.url), pods=pods)
        found.start()
        try:
            yield found, part
        finally:
            for kind in KINDS:
                cluster.stream(kind).put(None)
            found.stop()


def read(found: ClusterObjects, part: HTTPPart) -> QueueObjects:
    part.until(found.changed)
    objects = found.read()
    assert objects is not None
    return objects


def test_objects_are_listed_and_then_followed() -> None:
    cluster = Cluster()
    cluster.items = {
        "queues": [stored(queue("leaf", cpu_limit=1000), "q1")],
        "podgroups": [stored(pod_group("pg", "leaf"), "g1")],
    }
    with following(cluster) as (found, part):
        objects = read(found, part)
        assert [(each.name, each.limit.cpu) for each in objects.queues] == [("leaf", 1000)]
        assert objects.pod_groups[0].queue == "leaf"
        assert not found.changed()
        cluster.stream("queues").put({"type": "MODIFIED", "object": stored(queue("leaf", cpu_limit=2000), "q1", 11)})
        assert read(found, part).queues[0].limit.cpu == 2000
        cluster.stream("podgroups").put({"type": "DELETED", "object": stored(pod_group("pg", "leaf"), "g1", 12)})
        assert not read(found, part).pod_groups
        assert not any(asked.path.endswith("/pods") for asked in part.asked)


def test_a_watch_that_ends_goes_on_from_where_it_was() -> None:
    cluster = Cluster()
    cluster.items = {"queues": [stored(queue("leaf"), "q1")]}
    with following(cluster) as (found, part):
        read(found, part)
        cluster.stream("queues").put({"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "42"}}})
        cluster.stream("queues").put(None)
        part.until(lambda: any(asked.query.get("resourceVersion") == "42" for asked in part.asked))
        assert sum(asked.path.endswith("/queues") and not asked.watch for asked in part.asked) == 1


def test_an_error_inside_the_watch_means_a_new_list() -> None:
    cluster = Cluster()
    with following(cluster) as (found, part):
        read(found, part)
        cluster.items = {"queues": [stored(queue("new"), "q2")]}
        cluster.stream("queues").put({"type": "ERROR", "object": {"code": 410, "message": "too old"}})
        cluster.stream("queues").put(None)
        assert [each.name for each in read(found, part).queues] == ["new"]


def test_a_server_that_is_away_changes_nothing_and_is_named() -> None:
    cluster = Cluster()
    cluster.items = {"queues": [stored(queue("leaf"), "q1")]}
    with following(cluster) as (found, part):
        read(found, part)
        cluster.refusing.set()
        cluster.stream("queues").put(None)
        part.until(lambda: "Queue" in found.problems())
        objects = found.read()
        assert objects is not None
        assert [each.name for each in objects.queues] == ["leaf"]
        cluster.refusing.clear()
        part.until(lambda: not found.problems())


def test_an_object_that_cannot_be_read_keeps_its_last_form() -> None:
    cluster = Cluster()
    cluster.items = {"queues": [stored(queue("leaf", cpu_limit=1000), "q1")]}
    with following(cluster) as (found, part):
        read(found, part)
        broken = stored(queue("leaf"), "q1", 11)
        broken["spec"]["resources"]["cpu"]["limit"] = "much"
        cluster.stream("queues").put({"type": "MODIFIED", "object": broken})
        cluster.stream("queues").put({"type": "ADDED", "object": stored(queue("other"), "q2", 12)})
        assert [(each.name, each.limit.cpu) for each in read(found, part).queues] == [("leaf", 1000), ("other", -1)]


def test_an_event_that_makes_no_difference_is_no_change() -> None:
    cluster = Cluster()
    cluster.items = {"queues": [stored(queue("leaf"), "q1")]}
    with following(cluster) as (found, part):
        read(found, part)
        cluster.stream("queues").put({"type": "MODIFIED", "object": stored(queue("leaf"), "q1", 42)})
        cluster.stream("queues").put(None)
        part.until(lambda: any(asked.query.get("resourceVersion") == "42" for asked in part.asked))
        assert not found.changed()


def test_of_pods_only_what_has_changed_is_told() -> None:
    cluster = Cluster()
    cluster.items = {"pods": [stored(pod(name, "1"), name) for name in ("p1", "p2")]}
    with following(cluster, pods=True) as (found, part):
        read(found, part)
        first = found.pods()
        assert first is not None
        assert sorted(first) == ["p1", "p2"]
        assert found.pods() == {}
        cluster.stream("pods").put({"type": "DELETED", "object": stored(pod("p1", "1"), "p1", 11)})
        cluster.stream("pods").put({"type": "MODIFIED", "object": stored(pod("p2", "1"), "p2", 12)})
        cluster.stream("pods").put({"type": "ADDED", "object": stored(pod("p3", "3"), "p3", 13)})
        part.until(found.changed)
        told = dict[str, Pod | None]()

        def all_told() -> bool:
            told.update(found.pods() or {})
            return "p3" in told

        part.until(all_told)
        assert told.keys() == {"p1", "p3"}, "the event about p2 changed nothing"
        assert told["p1"] is None
        found.read()
        assert not found.changed()
        found.put_back(told)
        assert found.changed()
        assert found.pods() == told


def test_a_new_list_tells_what_is_different_from_what_was_known() -> None:
    cluster = Cluster()
    cluster.items = {"pods": [stored(pod(name, "1"), name) for name in ("p1", "p2", "p3")]}
    with following(cluster, pods=True) as (found, part):
        read(found, part)
        found.pods()
        cluster.items = {"pods": [stored(pod("p2", "1"), "p2", 20), stored(pod("p3", "3"), "p3", 21)]}
        cluster.stream("pods").put({"type": "ERROR", "object": {"code": 410, "message": "too old"}})
        cluster.stream("pods").put(None)
        part.until(found.changed)
        assert (found.pods() or {}).keys() == {"p1", "p3"}


def test_nothing_is_read_before_every_kind_was_listed() -> None:
    cluster = Cluster()
    cluster.refusing.set()
    with following(cluster) as (found, part):
        part.until(lambda: len(part.asked) >= 4)
        assert not found.changed()
        assert found.read() is None
