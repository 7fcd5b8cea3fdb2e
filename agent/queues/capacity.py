"""Allocate-time capacity: may a queue take this job without passing a limit, or a quota for non-preemptible work.

Source: KAI-Scheduler plugins/proportion/capacity_policy.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from agent.model.queue import RESOURCES, UNLIMITED, QueueShare, QueueShares, ResourceQuantities
from agent.queues.derivation import Rule, Step
from agent.queues.options import QueueOptions
from agent.queues.quantities import format_amount, plus
from agent.queues.tree import ancestry

OVER_LIMIT = "OverLimit"
NON_PREEMPTIBLE_OVER_QUOTA = "NonPreemptibleOverQuota"


@dataclass(frozen=True, slots=True)
class Task:
    """What one pod of a job asks for. gpu_memory_mib: per device, in place of a GPU count, on `gpu_devices` devices."""

    resources: ResourceQuantities
    gpu_memory_mib: float = 0.0
    gpu_devices: int = 0


@dataclass(frozen=True, slots=True)
class CapacityAnswer:
    """Whether the job may be allocated. reason, queue and resource name the first check that failed; steps hold every
    check made.
    """

    schedulable: bool
    steps: tuple[Step, ...]
    reason: str = ""

    @property
    def failed(self) -> Step | None:
        """The check that said no."""
        return None if self.schedulable else self.steps[-1]

    @property
    def message(self) -> str:
        """The refusal in a sentence; empty where there is none."""
        if (step := self.failed) is None or step.resource is None:
            return ""
        amounts = dict(step.amounts)
        requested, allocated, bound = (
            format_amount(step.resource, amounts[label]) for label in ("requested", "allocated", "bound")
        )
        if self.reason == OVER_LIMIT:
            return f"queue {step.queue}: {step.resource} limit {bound}, allocated {allocated}, requested {requested}"
        return (
            f"queue {step.queue}: {step.resource} quota {bound}, allocated to non-preemptible pods {allocated}, "
            f"requested {requested}; a preemptible workload may go over quota"
        )


def requested_by(tasks: Iterable[Task], node_gpu_memory_mib: float | None) -> ResourceQuantities:
    """The sum over a job's tasks. GPU memory counts as devices x memory / the memory of a GPU; as 0 where that is not
    known.
    """
    total = ResourceQuantities()
    for task in tasks:
        resources = task.resources
        if task.gpu_memory_mib > 0:
            gpus = task.gpu_devices * (task.gpu_memory_mib / node_gpu_memory_mib) if node_gpu_memory_mib else 0.0
            resources = resources._replace(gpu=resources.gpu + gpus)
        total = plus(total, resources)
    return total


def job_over_capacity(
    shares: QueueShares, queue: str, requested: ResourceQuantities, *, preemptible: bool, options: QueueOptions
) -> CapacityAnswer:
    """The limit on the job's queue and every ancestor; where that passes everywhere and the job is not preemptible, the
    quota.

    So a limit passed at the root is reported before a quota passed at the leaf. An unknown queue passes.
    """
    limit = _over_limit(ancestry(shares, queue), requested, options)
    if not limit.schedulable or preemptible:
        return limit
    quota = non_preemptible_over_quota(shares, queue, requested, preemptible=preemptible, options=options)
    return CapacityAnswer(quota.schedulable, limit.steps + quota.steps, quota.reason)


def non_preemptible_over_quota(
    shares: QueueShares, queue: str, requested: ResourceQuantities, *, preemptible: bool, options: QueueOptions
) -> CapacityAnswer:
    """The quota for non-preemptible work on the job's queue and every ancestor. Preemptible work passes."""
    if preemptible:
        return CapacityAnswer(True, ())
    path = ancestry(shares, queue)
    checks = [(share, share.allocated_non_preemptible, share.queue.deserved) for share in path]
    return _check(Rule.QUOTA, NON_PREEMPTIBLE_OVER_QUOTA, checks, requested, options.profile.tolerance)


def _over_limit(path: Sequence[QueueShare], requested: ResourceQuantities, options: QueueOptions) -> CapacityAnswer:
    checks = [(share, share.allocated, share.queue.limit) for share in path]
    return _check(Rule.LIMIT, OVER_LIMIT, checks, requested, options.profile.tolerance)


def _check(
    rule: Rule,
    reason: str,
    checks: Iterable[tuple[QueueShare, ResourceQuantities, ResourceQuantities]],
    requested: ResourceQuantities,
    tolerance: float,
) -> CapacityAnswer:
    """Every resource that is asked for and bounded, leaf to root, until one fails. A sum of -1 is just a number here."""
    steps = []
    for share, allocated, bounds in checks:
        for resource, held, more, bound in zip(RESOURCES, allocated, requested, bounds, strict=True):
            if bound == UNLIMITED or more == 0:
                continue
            total = held + more
            holds = not (total > bound and total - bound > tolerance)
            amounts = (("allocated", held), ("requested", more), ("bound", bound))
            steps.append(Step(rule, share.queue.name, holds, resource, amounts))
            if not holds:
                return CapacityAnswer(False, tuple(steps), reason)
    return CapacityAnswer(True, tuple(steps))
