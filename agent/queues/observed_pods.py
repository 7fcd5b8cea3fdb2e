"""The API server's pods and what each is charged for, kept up to date one pod at a time.

What a charge was derived from (pod groups, priorities, the memory of a node's GPUs) may change too: then the pods that it
concerns are charged anew, found by an index.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TypeAlias, TypeVar

from agent.model.pod import Pod
from agent.model.queue import POD_GROUP_ANNOTATION
from agent.queues.accounting import UNPLACED
from agent.queues.charge import ChargeOptions, PodCharge, pod_charge
from agent.queues.workloads import Directory

PodChanges: TypeAlias = Mapping[str, Pod | None]  # by UID: pods that are new or different; None: gone
GroupKey: TypeAlias = tuple[str, str]  # namespace and name of a pod group


def uid_of(pod: Pod) -> str:
    """A file may leave it out."""
    return pod.uid or pod.namespaced_name


def pod_changes(before: Iterable[Pod], after: Iterable[Pod]) -> dict[str, Pod | None]:
    """What turns one collection of pods into another. Of several pods of one UID the last counts."""
    old, new = ({uid_of(pod): pod for pod in pods} for pods in (before, after))
    changes: dict[str, Pod | None] = dict.fromkeys(old.keys() - new.keys())
    for uid, pod in new.items():
        known = old.get(uid)
        if known is not pod and known != pod:
            changes[uid] = pod
    return changes


class ObservedPods:
    """Pods by UID with their charges. A pod without a charge costs nothing: it has ended."""

    def __init__(self) -> None:
        self.pods: dict[str, Pod] = {}
        self.charges: dict[str, PodCharge] = {}
        self._of_group: dict[GroupKey, set[str]] = {}
        self._of_node: dict[str, set[str]] = {}
        self._names: dict[tuple[str, str], str] = {}

    def take(self, changes: PodChanges) -> None:
        """Keep the pods; `charge` is to be asked next for each of them."""
        for uid, pod in changes.items():
            if (old := self.pods.pop(uid, None)) is not None:
                self._forget(uid, old)
            if pod is None:
                self.charges.pop(uid, None)
            else:
                self.pods[uid] = pod
                self._names[pod.namespace, pod.name] = uid
                self._of_node.setdefault(pod.node_name, set()).add(uid)
                if group := pod.annotations.get(POD_GROUP_ANNOTATION):
                    self._of_group.setdefault((pod.namespace, group), set()).add(uid)

    def _forget(self, uid: str, pod: Pod) -> None:
        if self._names.get((pod.namespace, pod.name)) == uid:
            del self._names[pod.namespace, pod.name]
        _discard(self._of_node, pod.node_name, uid)
        if group := pod.annotations.get(POD_GROUP_ANNOTATION):
            _discard(self._of_group, (pod.namespace, group), uid)

    def named(self, namespace: str, name: str) -> Pod | None:
        """The pod of this name, the newest of them."""
        uid = self._names.get((namespace, name))
        return None if uid is None else self.pods[uid]

    def place(self, uid: str) -> str | None:
        """The node of a pod, UNPLACED where it has none yet; None where there is no such pod."""
        pod = self.pods.get(uid)
        return None if pod is None else pod.node_name or UNPLACED

    def of_node(self, node: str) -> Collection[str]:
        """The pods of a node."""
        return self._of_node.get(node, ())

    def concerned(self, groups: Collection[GroupKey], nodes: Collection[str]) -> set[str]:
        """The pods of these pod groups and nodes."""
        found = {uid for key in groups for uid in self._of_group.get(key, ())}
        return found.union(*(self.of_node(node) for node in nodes))

    def charge(self, uid: str, directory: Directory, options: ChargeOptions) -> PodCharge | None:
        """Charge one of the pods anew; None where it is gone or costs nothing."""
        pod = self.pods.get(uid)
        found = None if pod is None else pod_charge(pod, directory, options)
        if found is None:
            self.charges.pop(uid, None)
        else:
            self.charges[uid] = found
        return found


_Key = TypeVar("_Key")


def _discard(index: dict[_Key, set[str]], key: _Key, uid: str) -> None:
    members = index[key]
    members.discard(uid)
    if not members:
        del index[key]
