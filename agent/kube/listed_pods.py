"""The pods of one node as a source lists them, kept by UID: what can be used becomes a view, the rest is named.

A pod whose newest form cannot be read keeps its last one: garbage is no proof that a pod has ended.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from agent.errors import AgentError
from agent.formats.node_pods import NodePod, decode_node_pod
from agent.formats.pods import describe
from agent.kube.http_access import AccessError
from agent.kube.json_objects import uid_of
from agent.kube.source import View
from agent.policy.cgroup_names import ContainerCgroup
from agent.policy.observation import Wanted

MAX_PODS = 4096  # above what any node runs; more than this is a server gone wild
MAX_PROBLEMS = 20


@dataclass(slots=True)
class _Entry:
    pod: NodePod | None = None
    problem: str = ""


@dataclass(slots=True)
class ListedPods:
    """source: its name, for the pods' records. node: pods that are bound to another one are passed over; "" where the source
    has this node's only.
    """

    source: str
    node: str = ""
    _entries: dict[str, _Entry] = field(default_factory=dict)

    def put(self, obj: object) -> None:
        """A pod is here, or has changed. Raises AccessError for too many."""
        uid = uid_of(obj)
        before = self._entries.get(uid)
        if before is None and len(self._entries) >= MAX_PODS:
            raise AccessError(f"source {self.source}: more than {MAX_PODS} pods on one node")
        self._entries[uid] = _decode(obj, before, self.node)

    def __contains__(self, uid: str) -> bool:
        """Whether a pod of this UID is here."""
        return uid in self._entries

    def unreadable(self, error: AgentError) -> None:
        """Something came that may be about any pod. It is named until the next `replace`, and changes none."""
        self._entries[""] = _Entry(problem=f"{error}; the pods known keep their last form")

    def drop(self, uid: str) -> None:
        """A pod is gone."""
        self._entries.pop(uid, None)

    def replace(self, objects: Sequence[object], unreadable: Sequence[AgentError] = ()) -> None:
        """Exactly these pods are here. An object without UID, or one of `unreadable`, may be any of the pods known: none of these
        ends then. Raises AccessError for too many.
        """
        if len(objects) > MAX_PODS:
            raise AccessError(f"source {self.source}: {len(objects)} pods on one node, at most {MAX_PODS} are read")
        before, self._entries = self._entries, {}
        if unreadable or not all(map(uid_of, objects)):
            self._entries = {uid: entry for uid, entry in before.items() if entry.pod is not None}
        for obj in objects:
            self._entries[uid_of(obj)] = _decode(obj, before.get(uid_of(obj)), self.node)
        for error in unreadable:
            self.unreadable(error)

    def view(self, heard: float) -> View:
        """What is here now. Pods in the order of their creation, which is the kubelet's order of admission after its start."""
        pods = [entry.pod for entry in self._entries.values() if entry.pod is not None]
        pods.sort(key=lambda each: (each.pod.creation_timestamp, each.pod.namespaced_name))
        problems = [entry.problem for entry in self._entries.values() if entry.problem]
        return View(
            wanted=tuple(_wanted(each, self.source) for each in pods),
            synced=True,
            problems=tuple(problems[:MAX_PROBLEMS]),
            instances={
                found: ContainerCgroup(each.pod.uid, name) for each in pods for found, name in each.instances.items()
            },
            running=frozenset(each.pod.uid for each in pods if each.running),
            heard=heard,
        )


def _wanted(found: NodePod, source: str) -> Wanted:
    return Wanted(found.pod, source, terminal=found.terminal, running=found.running, controller=found.controller)


def _decode(obj: object, before: _Entry | None, node: str) -> _Entry:
    try:
        if not isinstance(obj, dict) or not uid_of(obj):
            raise AccessError(f"pod {describe(obj)}: has no uid")
        found = decode_node_pod(obj)
        if node and found.pod.node_name not in ("", node):
            return _Entry(None, f"pod {describe(obj)}: is bound to node {found.pod.node_name[:80]}; it is passed over")
        return _Entry(found)
    except AgentError as error:
        kept = before.pod if before is not None else None
        return _Entry(kept, f"{error}; " + ("its last form is used" if kept else "it is passed over"))


def items_of(value: Mapping[str, object], where: str) -> list[object]:
    """The items of a PodList. Raises AccessError for anything else: it must not be taken for a list without pods."""
    items = value.get("items", ())
    if value.get("kind") != "PodList" or not isinstance(items, list | None):
        raise AccessError(f"{where}: not a PodList", hint="see that the address is that of the right server")
    return items or []
