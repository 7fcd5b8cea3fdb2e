"""What one pod costs its queue, in exact integers, so that adding and taking away never drifts.

The unit is a billionth (of a CPU, a byte, a GPU): finer than any Kubernetes quantity. Floats in the scheduler's units
appear only when rules ask.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from agent.model.pod import Pod, ResourceList
from agent.model.quantity import Quantity
from agent.model.queue import QUEUE_LABEL, ResourceQuantities
from agent.model.resources import CPU, MEMORY
from agent.policy.gpu_request import gpu_request
from agent.policy.pod_resources import SizingOptions, pod_requests
from agent.policy.preemptibility import pod_preemptibility
from agent.queues.resize_growth import CPUMemory, is_allocated
from agent.queues.workloads import Directory, is_preemptible, pod_group_of, queue_of

NANO = 10**9
_MILLI = 10**6  # billionths in a thousandth
GPU_HUNDREDTH = NANO // 100

_SPEC = SizingOptions()
_EFFECTIVE = SizingOptions(use_status_resources=True, in_place_pod_level_resources=True)


class Amounts(NamedTuple):
    """CPU, memory and GPU in billionths of a CPU, a byte, a device."""

    cpu: int = 0
    memory: int = 0
    gpu: int = 0

    @classmethod
    def of(cls, resources: ResourceList, gpu_hundredths: int = 0) -> Amounts:
        """CPU and memory of a resource list, exact; GPUs as counted."""
        return cls(_nanos(resources.get(CPU)), _nanos(resources.get(MEMORY)), gpu_hundredths * GPU_HUNDREDTH)

    def quantities(self) -> ResourceQuantities:
        """In the scheduler's units: millicores, bytes, devices."""
        return ResourceQuantities(self.cpu / _MILLI, self.memory / NANO, self.gpu / NANO)

    def cpu_memory(self) -> CPUMemory:
        """In the resize check's units, rounded up: whole millicores and bytes."""
        return CPUMemory(-(-self.cpu // _MILLI), -(-self.memory // NANO))


NO_AMOUNTS = Amounts()


def _nanos(amount: Quantity | None) -> int:
    """In billionths, of which a quantity is always a whole number. Fractions multiply ten times slower."""
    return 0 if amount is None else amount.number.numerator * NANO // amount.number.denominator


class PodCharge(NamedTuple):
    """What one pod costs. allocated: what it occupies, nothing while it is pending. requested: what its spec asks for.

    queue: "" charges nobody. pod: "namespace/name", for people.
    """

    pod: str
    queue: str
    preemptible: bool
    allocated: Amounts
    requested: Amounts


def larger(a: PodCharge, b: PodCharge) -> PodCharge:
    """Two sources' views of one pod as one: the larger amounts, `a`'s queue unless it has none, non-preemptible if
    either is.
    """
    return PodCharge(
        a.pod,
        a.queue or b.queue,
        a.preemptible and b.preemptible,
        Amounts(*map(max, a.allocated, b.allocated)),
        Amounts(*map(max, a.requested, b.requested)),
    )


@dataclass(frozen=True, slots=True)
class ChargeOptions:
    """queue_label: KAI's configurable queue label. device_memory_mib: memory of one GPU, by node name."""

    device_memory_mib: Mapping[str, int]
    queue_label: str = QUEUE_LABEL


def occupies(pod: Pod) -> CPUMemory:
    """CPU and memory that a running pod of the API server is charged for, in the units of the resize check."""
    return CPUMemory.of(pod_requests(pod, _EFFECTIVE))


def pod_charge(pod: Pod, directory: Directory, options: ChargeOptions) -> PodCharge | None:
    """What a pod of the API server costs; None where it costs nothing any more (or not yet): any phase but Pending and
    Running.

    Occupied is what the pod holds during a resize too (the largest of desired, allocated and actual), pod-level
    requests and overhead included. A pod without a pod group is preemptible unless it says otherwise, as where
    preemptibility cannot be resolved.
    """
    if pod.status.phase not in ("Pending", "Running"):
        return None
    group = pod_group_of(pod, directory)
    device_memory = options.device_memory_mib.get(pod.node_name)

    def amounts(sizing: SizingOptions) -> Amounts:
        requests = pod_requests(pod, sizing)
        return Amounts.of(requests, gpu_request(pod, requests).hundredths(device_memory))

    return PodCharge(
        pod.namespaced_name,
        queue_of(pod, group, options.queue_label),
        is_preemptible(group, directory) if group is not None else pod_preemptibility(pod) is not False,
        amounts(_EFFECTIVE) if is_allocated(pod) else NO_AMOUNTS,
        amounts(_SPEC),
    )
