"""From a pod to its pod group, its queue and whether it may be preempted, as KAI-Scheduler resolves them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from agent.model.pod import Pod
from agent.model.queue import POD_GROUP_ANNOTATION, QUEUE_LABEL, PodGroup, Preemptibility, PriorityClass, Queue
from agent.policy.preemptibility import NON_PREEMPTIBLE_PRIORITY

SCHEDULER_NAME = "kai-scheduler"

DEFAULT_PRIORITY = 50  # where neither the named class nor a global default exists


@dataclass(frozen=True, slots=True)
class Directory:
    """The objects that resolving needs. queues by name, refused ones not in it; pod_groups by (namespace, name)."""

    queues: Mapping[str, Queue] = field(default_factory=dict)
    pod_groups: Mapping[tuple[str, str], PodGroup] = field(default_factory=dict)
    priority_classes: Mapping[str, PriorityClass] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        queues: Iterable[Queue] = (),
        pod_groups: Iterable[PodGroup] = (),
        priority_classes: Iterable[PriorityClass] = (),
    ) -> Directory:
        """A directory of these objects. Where several have one name, the first counts."""
        directory: tuple[dict[str, Queue], dict[tuple[str, str], PodGroup], dict[str, PriorityClass]] = ({}, {}, {})
        for queue in queues:
            directory[0].setdefault(queue.name, queue)
        for group in pod_groups:
            directory[1].setdefault((group.namespace, group.name), group)
        for priority_class in priority_classes:
            directory[2].setdefault(priority_class.name, priority_class)
        return cls(*directory)


def changed_groups(before: Directory, after: Directory) -> set[tuple[str, str]] | None:
    """The pod groups that are other ones now; None: all, for a priority class has changed."""
    if before.priority_classes != after.priority_classes:
        return None
    old, new = before.pod_groups, after.pod_groups
    if old == new:
        return set()
    changed = set(old.keys() ^ new.keys())
    return changed | {key for key, group in new.items() if key in old and group is not old[key] and group != old[key]}


def pod_group_of(pod: Pod, directory: Directory) -> PodGroup | None:
    """The pod group that the pod's annotation names in its namespace; None where it names none or there is none."""
    name = pod.annotations.get(POD_GROUP_ANNOTATION, "")
    return directory.pod_groups.get((pod.namespace, name)) if name else None


def queue_of(pod: Pod, group: PodGroup | None, queue_label: str = QUEUE_LABEL) -> str:
    """The queue of a pod: its pod group's, else the one its label names, else "" (charged to nobody)."""
    return (group.queue if group is not None else "") or pod.labels.get(queue_label, "")


def priority_of(class_name: str, directory: Directory) -> int:
    """The value of the named PriorityClass; where there is none, of the global default; else 50."""
    if (named := directory.priority_classes.get(class_name)) is not None:
        return named.value
    default = next((each for each in directory.priority_classes.values() if each.global_default), None)
    return DEFAULT_PRIORITY if default is None else default.value


def is_preemptible(group: PodGroup, directory: Directory) -> bool:
    """What the pod group says itself; otherwise priorities below 100 are preemptible."""
    if group.preemptibility is not Preemptibility.UNSET:
        return group.preemptibility is Preemptibility.PREEMPTIBLE
    return priority_of(group.priority_class, directory) < NON_PREEMPTIBLE_PRIORITY
