"""What a new reading of the objects changes. Comparing takes time, so it is apart from applying, which others may wait for."""

from __future__ import annotations

from dataclasses import dataclass, replace

from agent.formats.queue_objects import QueueObjects
from agent.queues.observed_pods import GroupKey, PodChanges, pod_changes
from agent.queues.tree import QueueProblem, QueueTree, build
from agent.queues.workloads import Directory, changed_groups


@dataclass(frozen=True, slots=True)
class KnownObjects:
    """What was read, and the tree and the directory that follow. refused: queues that are not in them."""

    objects: QueueObjects
    tree: QueueTree
    directory: Directory
    refused: tuple[QueueProblem, ...] = ()

    @classmethod
    def none(cls) -> KnownObjects:
        """Before anything was read."""
        return cls(QueueObjects(), build(())[0], Directory())


@dataclass(frozen=True, slots=True)
class ObjectChanges:
    """known: what is known now. groups: pod groups that are other ones; None is all of them, for priorities have changed.

    pods: of those that the objects list. nodes: whether nodes have come, gone or changed.
    """

    known: KnownObjects
    groups: set[GroupKey] | None
    pods: PodChanges
    nodes: bool


def compare(before: KnownObjects, objects: QueueObjects) -> ObjectChanges:
    """What `objects`, all there is now, changes. Parts that are equal stay the same values."""
    had = before.objects
    tree, refused = (before.tree, before.refused) if objects.queues == had.queues else build(objects.queues)
    directory = before.directory
    if tree is not before.tree or (objects.pod_groups, objects.priority_classes) != (
        had.pod_groups,
        had.priority_classes,
    ):
        directory = Directory.of(tree.queues.values(), objects.pod_groups, objects.priority_classes)
        if tree is before.tree:  # what is summed up by queue goes by this mapping
            directory = replace(directory, queues=before.directory.queues)
    return ObjectChanges(
        KnownObjects(objects, tree, directory, refused),
        changed_groups(before.directory, directory),
        pod_changes(had.pods, objects.pods),
        objects.nodes != had.nodes,
    )
