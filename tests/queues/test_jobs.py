"""From pods to jobs: who belongs together, what has ended, and in which pieces a job could be taken."""

from __future__ import annotations

from agent.formats.pods import decode_pod
from agent.model.pod import Pod
from agent.model.queue import PodGroup, ResourceQuantities
from agent.queues.charge import ChargeOptions
from agent.queues.jobs import jobs_of
from agent.queues.workloads import Directory

GROUPS = Directory.of(pod_groups=[PodGroup("ns", "pg", "team", min_member=2)])
OPTIONS = ChargeOptions({})


def member(name: str, phase: str, cpu: str = "1", group: str = "pg") -> Pod:
    metadata = {"name": name, "namespace": "ns", "uid": name, "annotations": {"pod-group-name": group} if group else {}}
    spec = {
        "schedulerName": "kai-scheduler",
        "nodeName": "n" if phase == "Running" else "",
        "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}],
    }
    return decode_pod({"metadata": metadata, "spec": spec, "status": {"phase": phase}})


def cpus(*millis: float) -> list[ResourceQuantities]:
    return [ResourceQuantities(each, 0.0, 0.0) for each in millis]


def test_pods_that_have_ended_cost_nothing() -> None:
    assert jobs_of([member("a", "Succeeded"), member("b", "Failed")], GROUPS, OPTIONS) == []
    [job] = jobs_of([member("a", "Succeeded"), member("b", "Running")], GROUPS, OPTIONS)
    assert (job.name, list(job.running)) == ("ns/pg", cpus(1000.0))


def test_a_gang_goes_as_one_and_what_is_beyond_it_pod_by_pod() -> None:
    [job] = jobs_of([member(name, "Running") for name in "abcd"], GROUPS, OPTIONS)
    assert (job.queue, list(job.running)) == ("team", cpus(1000.0, 1000.0, 2000.0))


def test_what_waits_is_asked_for_together() -> None:
    [job] = jobs_of([member("a", "Pending"), member("b", "Pending", "500m"), member("c", "Running")], GROUPS, OPTIONS)
    assert [job.pending] == cpus(1500.0)
    assert list(job.running) == cpus(1000.0)


def test_a_pod_without_a_group_is_a_job_of_its_own() -> None:
    names = [job.name for job in jobs_of([member("b", "Running", group=""), member("a", "Running")], GROUPS, OPTIONS)]
    assert names == ["ns/b", "ns/pg"]
