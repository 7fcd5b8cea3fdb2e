"""Answers about queues as lines for people: nothing is claimed that is not known."""

from __future__ import annotations

from agent.formats.pods import decode_pod
from agent.model.pod import Pod
from agent.model.queue import PodGroup
from agent.queues.fair_share import divide_cluster
from agent.queues.options import QueueOptions
from agent.queues.resize_admission import ResizeOptions, decide_resize
from agent.queues.resize_growth import CPUMemory
from agent.queues.text import fair_share_lines, resize_lines, tree_lines
from agent.queues.tree import build
from agent.queues.workloads import Directory
from tests.queues.build import amounts, by_name, queue, share


def pod(cpu: str, group: str = "pg") -> Pod:
    containers = [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]
    metadata = {"name": "web", "namespace": "prod", "annotations": {"pod-group-name": group}}
    spec = {"schedulerName": "kai-scheduler", "containers": containers}
    return decode_pod({"metadata": metadata, "spec": spec, "status": {"phase": "Running"}})


def said(old: Pod, new: Pod, queue_name: str = "leaf") -> list[str]:
    directory = Directory.of([queue("leaf", cpu=(-1, 2000))], [PodGroup("prod", "pg", queue_name)])
    return list(resize_lines(decide_resize(old, new, directory, ResizeOptions())))


def test_a_resize_without_growth_names_no_growth() -> None:
    assert said(pod("2"), pod("1"))[:2] == [
        "admitted: nothing grows beyond what the pod occupies",
        "  pod group pg, queue leaf, preemptible",
    ]


def test_a_pod_of_an_unknown_group_has_no_queue() -> None:
    assert said(pod("1", "gone"), pod("2", "gone")) == ["admitted: the pod group does not exist", "  growth: cpu 1"]


def test_a_group_without_a_queue_says_so() -> None:
    assert said(pod("1"), pod("2"), "")[2] == "  pod group pg, queue (none), preemptible"


def test_a_refusal_is_not_called_admitted() -> None:
    lines = said(pod("1"), pod("4"))
    assert lines[0].startswith("resize rejected: ")
    assert lines[1] == "  growth: cpu 3"


def test_bars_show_what_is_held_of_the_largest_bound_and_where_the_fair_share_is() -> None:
    queues = [queue("full", cpu=(1000, 2000)), queue("none", cpu=(0, 0), memory=(0, 0), gpu=(0, 0))]
    held = share(queues[0], allocated=amounts(cpu=2000), fair=amounts(cpu=1000))
    tree, problems = build(queues)
    assert not problems
    lines = list(tree_lines(tree, by_name([held, share(queues[1])])))
    [full] = [line for line in lines if "full" in line]
    assert "|" in full
    assert full.count("#") > 0
    assert "2 cores" in full
    [none] = [line for line in lines if "none" in line]
    assert "#" not in none


def test_what_is_reserved_has_a_column_where_anything_is() -> None:
    queues = [queue("leaf", cpu=(1000, 2000), gpu=(1, 1))]
    tree, shares = build(queues)[0], by_name([share(queues[0], allocated=amounts(cpu=1000, gpu=1))])
    head, cpu, gpu = (" ".join(line.split()) for line in tree_lines(tree, shares, {"leaf": CPUMemory(500, 0)}))
    assert head == "QUEUE PRIORITY RESOURCE ALLOCATED NON-PREEMPTIBLE RESERVED REQUESTED QUOTA FAIR SHARE LIMIT"
    assert cpu.endswith(" 1 core 0 cores 0.5 cores 0 cores 1 core 0 cores 2 cores")
    assert gpu.endswith(" 1 GPU 0 GPUs 0 GPUs 1 GPU 0 GPUs 1 GPU"), "no resize changes GPUs: nothing stands for them"
    assert "RESERVED" not in next(iter(tree_lines(tree, shares)))


def test_a_fair_share_is_told_by_its_phases_from_the_top_down() -> None:
    queues = [queue("org", gpu=(8, 8)), queue("a", "org", gpu=(3, -1)), queue("b", "org", gpu=(3, -1))]
    wanted = {"org": amounts(gpu=9), "a": amounts(gpu=8), "b": amounts(gpu=1)}
    shares = by_name([share(each, request=wanted[each.name]) for each in queues])
    tree = build(queues)[0]
    fair = divide_cluster(tree, shares, amounts(cpu=1000, gpu=10), QueueOptions())
    lines = list(fair_share_lines(tree, shares, fair, "a"))
    assert lines[2] == (
        "queue org, gpu: fair share 8 GPUs of 10 GPUs of the cluster = quota 8 GPUs + over-quota 0 GPUs + left-over 0 GPUs"
        " (requested 9 GPUs, quota 8 GPUs, limit 8 GPUs, over-quota weight 1)"
    )
    assert lines[5] == (
        "queue a, gpu: fair share 7 GPUs of 8 GPUs that org divides = quota 3 GPUs + over-quota 4 GPUs + left-over 0 GPUs"
        " (requested 8 GPUs, quota 3 GPUs, limit unlimited, over-quota weight 1)"
    )
    assert len(lines) == 6
