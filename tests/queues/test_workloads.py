from __future__ import annotations

import pytest

from agent.model.pod import Pod
from agent.model.queue import PodGroup, Preemptibility, PriorityClass
from agent.queues.workloads import Directory, is_preemptible, pod_group_of, queue_of

CLASSES = [PriorityClass("train", 50), PriorityClass("build", 100), PriorityClass("default", 75, global_default=True)]


@pytest.mark.parametrize(
    ("said", "priority_class", "classes", "preemptible"),
    [
        pytest.param(Preemptibility.PREEMPTIBLE, "build", CLASSES, True, id="the pod group's word wins"),
        pytest.param(Preemptibility.NON_PREEMPTIBLE, "train", CLASSES, False, id="either way"),
        pytest.param(Preemptibility.UNSET, "train", CLASSES, True, id="below 100"),
        pytest.param(Preemptibility.UNSET, "build", CLASSES, False, id="from 100 on"),
        pytest.param(Preemptibility.UNSET, "gone", CLASSES, True, id="an unknown class is the global default"),
        pytest.param(
            Preemptibility.UNSET, "", [PriorityClass("top", 1000, global_default=True)], False, id="so is none"
        ),
        pytest.param(Preemptibility.UNSET, "gone", [], True, id="and without any default 50"),
    ],
)
def test_preemptibility(
    said: Preemptibility, priority_class: str, classes: list[PriorityClass], preemptible: bool
) -> None:
    group = PodGroup("ns", "pg", "q", priority_class, said)
    assert is_preemptible(group, Directory.of(priority_classes=classes)) is preemptible


def test_a_pod_finds_its_group_in_its_own_namespace_and_its_queue_through_it() -> None:
    directory = Directory.of(pod_groups=[PodGroup("ns", "pg", "team"), PodGroup("ns", "pg", "shadowed")])
    annotated = Pod("u", "p", "ns", annotations={"pod-group-name": "pg"}, labels={"kai.scheduler/queue": "other"})
    group = pod_group_of(annotated, directory)
    assert group is not None
    assert queue_of(annotated, group) == "team"
    stranger = Pod("u", "p", "elsewhere", annotations={"pod-group-name": "pg"}, labels={"kai.scheduler/queue": "other"})
    assert pod_group_of(stranger, directory) is None
    assert queue_of(stranger, None) == "other"
    assert queue_of(stranger, None, queue_label="my/queue") == ""
    assert pod_group_of(Pod("u", "p", "ns", annotations={"pod-group-name": ""}), directory) is None
