"""Pod groups as reclaim sees them: what a job still wants, and in which pieces it could be taken."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from agent.model.pod import Pod
from agent.model.queue import ZERO, ResourceQuantities
from agent.queues.charge import NO_AMOUNTS, Amounts, ChargeOptions, PodCharge, pod_charge
from agent.queues.workloads import Directory, pod_group_of


@dataclass(frozen=True, slots=True)
class Job:
    """A pod group, or a pod without one. name: "namespace/name".

    pending: what its waiting pods ask for together. running: the pieces in which it would be taken, first to go first:
    every pod beyond `minMember` alone, then the rest as one, since a gang does not run with fewer.
    """

    name: str
    queue: str
    preemptible: bool
    pending: ResourceQuantities = ZERO
    running: tuple[ResourceQuantities, ...] = ()


def jobs_of(pods: Iterable[Pod], directory: Directory, options: ChargeOptions) -> list[Job]:
    """The jobs of these pods that wait or run, in the order of their names. Pods that have ended cost nothing and are
    left out.
    """
    members: dict[str, list[PodCharge]] = {}
    min_members: dict[str, int] = {}
    for pod in sorted(pods, key=lambda each: (each.namespace, each.name)):
        charge = pod_charge(pod, directory, options)
        if charge is None:
            continue
        group = pod_group_of(pod, directory)
        name = pod.namespaced_name if group is None else f"{group.namespace}/{group.name}"
        members.setdefault(name, []).append(charge)
        min_members[name] = 1 if group is None else max(1, group.min_member)
    return jobs_from(members, min_members)


def jobs_from(members: Mapping[str, list[PodCharge]], min_members: Mapping[str, int]) -> list[Job]:
    """The jobs of charges already known. members: by job, its pods in the order of their names; min_members: 1 where absent."""
    return [_job(name, charges, min_members.get(name, 1)) for name, charges in sorted(members.items())]


def _job(name: str, charges: list[PodCharge], min_member: int) -> Job:
    running = [each.allocated for each in charges if each.allocated != NO_AMOUNTS]
    pending = [each.requested for each in charges if each.allocated == NO_AMOUNTS]
    core, elastic = running[:min_member], running[min_member:]
    pieces = [*reversed(elastic), *([_sum(core)] if core else [])]
    return Job(
        name,
        charges[0].queue,
        charges[0].preemptible,
        _sum(pending).quantities(),
        tuple(each.quantities() for each in pieces),
    )


def _sum(amounts: Iterable[Amounts]) -> Amounts:
    total = NO_AMOUNTS
    for each in amounts:
        total = Amounts(total.cpu + each.cpu, total.memory + each.memory, total.gpu + each.gpu)
    return total


def by_queue(jobs: Iterable[Job]) -> Mapping[str, list[Job]]:
    """Jobs by queue, in their order."""
    found: dict[str, list[Job]] = {}
    for job in jobs:
        found.setdefault(job.queue, []).append(job)
    return found
