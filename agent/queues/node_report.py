"""A node's occupancy report as far as queues need it, and what each of its pods is charged for.

The agent of a node knows first-hand what its pods occupy; which queue they belong to it only guesses from labels. So a pod's
queue and preemptibility are those of its pod group where that is known here, else what the report says.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from agent.model.occupancy import GPUMemory, Occupancy, PodOccupancy
from agent.model.pod import ResourceList
from agent.model.state import PodPhase
from agent.queues.accounting import Stamp
from agent.queues.charge import GPU_HUNDREDTH, Amounts, PodCharge
from agent.queues.workloads import Directory, is_preemptible


class ReportedPod(NamedTuple):
    """One pod of a report. queue: of its label. preemptible: None where the node cannot tell.

    allocated: what it occupies, the largest of desired, allocated and actual. requested: what its spec asks for. gpu_memory:
    GPUs by memory, which count in neither of the two: what share of a device that is only the node's object tells.
    """

    namespace: str
    name: str
    queue: str
    pod_group: str
    preemptible: bool | None
    allocated: Amounts
    requested: Amounts
    gpu_memory: GPUMemory | None = None


@dataclass(frozen=True, slots=True)
class NodeReport:
    """stamp: epoch and generation. base: the stamp that this is the difference to; None: it is a full report.

    pods: by UID; all of them, or those that are new or different since `base`. gone: UIDs that ended since `base`.
    allocatable: what the node has to give; empty in a difference that does not change it.
    """

    node: str
    stamp: Stamp
    base: Stamp | None = None
    pods: Mapping[str, ReportedPod] = field(default_factory=dict)
    gone: tuple[str, ...] = ()
    allocatable: ResourceList = field(default_factory=dict)
    boot_id: str = ""


def charge_of_reported(pod: ReportedPod, directory: Directory, device_memory_mib: int | None = None) -> PodCharge:
    """What a reported pod costs its queue. Preemptible where nobody can tell, as upstream.

    device_memory_mib: memory of one GPU of the node.
    """
    group = directory.pod_groups.get((pod.namespace, pod.pod_group)) if pod.pod_group else None
    if group is not None:
        queue, preemptible = group.queue or pod.queue, is_preemptible(group, directory)
    else:
        queue, preemptible = pod.queue, pod.preemptible is not False
    allocated, requested = pod.allocated, pod.requested
    if pod.gpu_memory is not None:
        more = pod.gpu_memory.hundredths(device_memory_mib) * GPU_HUNDREDTH
        allocated = allocated._replace(gpu=allocated.gpu + more)
        requested = requested._replace(gpu=requested.gpu + more)
    return PodCharge(f"{pod.namespace}/{pod.name}", queue, preemptible, allocated, requested)


def report_of_occupancy(occupancy: Occupancy) -> NodeReport:
    """What queues need of an agent's full report. Pods whose containers have all ended for good cost nothing."""
    return NodeReport(
        occupancy.node,
        occupancy.stamp,
        pods={uid: _reported(pod) for uid, pod in occupancy.pods.items() if pod.phase is not PodPhase.TERMINAL},
        allocatable=occupancy.allocatable,
        boot_id=occupancy.boot_id,
    )


def _reported(pod: PodOccupancy) -> ReportedPod:
    return ReportedPod(
        pod.namespace,
        pod.name,
        pod.queue,
        pod.pod_group,
        pod.preemptible,
        Amounts.of(pod.terms.effective, pod.gpu_hundredths),
        Amounts.of(pod.terms.desired, pod.requested_gpu_hundredths),
        pod.gpu_memory,
    )
