"""One moment of a cluster from its objects: tree, charges, fair shares and jobs; what every what-if question starts
from.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from agent.errors import AgentError
from agent.formats.queue_objects import QueueObjects
from agent.model.pod import ResourceList
from agent.model.queue import ClusterNode, QueueShare, QueueShares, ResourceQuantities
from agent.policy.gpu_request import resource_gpus
from agent.queues.charge import Amounts, ChargeOptions, pod_charge
from agent.queues.fair_share import FairShares, divide_cluster
from agent.queues.jobs import Job, jobs_of
from agent.queues.options import QueueOptions
from agent.queues.quantities import minus, summed
from agent.queues.totals import QueueTotals, Totals
from agent.queues.tree import QueueProblem, QueueTree, build
from agent.queues.workloads import Directory


@dataclass(frozen=True, slots=True)
class Snapshot:
    """total: what there is to divide. unknown: charges of queues that the tree does not have, by the name pods give.

    problems: refused objects and queues. from_status: there were no pods, so the charges are what the queues' status
    says.
    """

    tree: QueueTree
    directory: Directory
    total: ResourceQuantities
    shares: QueueShares
    fair: FairShares
    jobs: tuple[Job, ...]
    unknown: Mapping[str, QueueTotals]
    problems: tuple[AgentError | QueueProblem, ...]
    from_status: bool


def unallocated(shares: QueueShares, total: ResourceQuantities) -> ResourceQuantities:
    """What no queue holds now. A root queue's charge is that of all below it."""
    for share in shares.values():
        if not share.queue.parent:
            total = minus(total, share.allocated)
    return total


def take_snapshot(objects: QueueObjects, options: QueueOptions, total: ResourceQuantities | None = None) -> Snapshot:
    """Charge every pod, divide the cluster. total: None adds up what the nodes have to allocate."""
    tree, refused = build(objects.queues)
    directory = Directory.of(tree.queues.values(), objects.pod_groups, objects.priority_classes)
    charging = ChargeOptions(
        {node.name: node.gpu_memory_mib for node in objects.nodes if node.gpu_memory_mib is not None}
    )
    totals = Totals(tree)
    for pod in objects.pods:
        if (charge := pod_charge(pod, directory, charging)) is not None:
            totals.add(charge)
    from_status = not objects.pods
    shares = status_shares(tree) if from_status else totals.shares()
    amounts = cluster_total(objects.nodes) if total is None else total
    fair = divide_cluster(tree, shares, amounts, options)
    return Snapshot(
        tree,
        directory,
        amounts,
        {name: replace(share, fair_share=fair.shares[name]) for name, share in shares.items()},
        fair,
        tuple(jobs_of(objects.pods, directory, charging)),
        totals.unknown(),
        (*objects.problems, *refused),
        from_status,
    )


def cluster_total(nodes: Iterable[ClusterNode]) -> ResourceQuantities:
    """What the nodes can allocate together."""
    return summed(quantities_of(node.allocatable) for node in nodes)


def status_shares(tree: QueueTree) -> dict[str, QueueShare]:
    """Every queue with what its status says."""
    return {
        name: QueueShare(
            queue,
            quantities_of(queue.status.allocated),
            quantities_of(queue.status.allocated_non_preemptible),
            quantities_of(queue.status.requested),
        )
        for name, queue in tree.queues.items()
    }


def quantities_of(resources: ResourceList) -> ResourceQuantities:
    """A resource list in the scheduler's units; GPUs of any vendor and MIG slices, fractions as they are."""
    return Amounts.of(resources).quantities()._replace(gpu=resource_gpus(resources))
