"""Does a pod fit what the node has left: the last check of an admission (kubelet lifecycle/predicate.go).

It runs after the topology admission, on allocated resources, so that a pod larger than the node is often refused earlier.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from agent.model.pod import Pod
from agent.model.quantity import ZERO, Quantity
from agent.policy.pod_resources import SizingOptions, pod_requests
from agent.policy.refusal import Refusal


@dataclass(frozen=True, slots=True)
class NodeCapacity:
    """capacity: everything the node has; allocatable: what pods may have of it. "pods" is the number of pods."""

    capacity: Mapping[str, Quantity]
    allocatable: Mapping[str, Quantity]


class OutOfResource(Refusal):
    """The node has not enough left of one resource. `reason` is OutOf<resource>, the name as it is.

    lacking: how much more would have to be left, in the unit of the message.
    """

    rule = "node fit, judged last: what the node has for pods minus the requests of those that run"

    def __init__(self, resource: str, requested: int, used: int, capacity: int) -> None:
        super().__init__(
            f"Node didn't have enough resource: {resource}, requested: {requested}, used: {used}, capacity: {capacity}",
            hint=f"{max(capacity - used, 0)} of {resource} are left; end other pods or ask for less",
        )
        self.reason = f"OutOf{resource}"
        self.resource = resource
        self.lacking = requested + used - capacity


def check_node_fit(node: NodeCapacity, running: Iterable[Pod], pod: Pod) -> None:
    """Refuse a pod that the node's allocatable amounts no longer hold beside the running ones. Raises OutOfResource.

    cpu is counted in millicores, everything else in whole units. A resource that the node does not know is not judged
    where the pod asks for none of it.
    """
    others = [other for other in running if other.uid != pod.uid]
    allocatable = node.allocatable
    if "pods" in allocatable and len(others) + 1 > allocatable["pods"].value():
        raise OutOfResource("pods", 1, len(others), allocatable["pods"].value())
    asked = _amounts(pod)
    used = _RUNNING.used(others, asked)
    for resource in sorted(asked):
        requested, held = asked[resource], used[resource]
        total = amount(resource, allocatable.get(resource, ZERO))
        if requested > 0 and requested + held > total and resource != "ephemeral-storage":
            raise OutOfResource(resource, requested, held, total)


class _Running:
    """What the running pods request together.

    Keeps the amounts of the pods of the last question, since most are the same in the next: a node that starts judges every pod
    beside all that came before it.
    """

    def __init__(self) -> None:
        self._known: dict[str, tuple[Pod, Mapping[str, int]]] = {}

    def used(self, pods: Iterable[Pod], resources: Collection[str]) -> dict[str, int]:
        """The sums of these resources."""
        known: dict[str, tuple[Pod, Mapping[str, int]]] = {}
        sums = dict.fromkeys(resources, 0)
        for pod in pods:
            entry = self._known.get(pod.uid)
            if entry is None or entry[0] is not pod:
                entry = (pod, _amounts(pod))
            known[pod.uid] = entry
            for resource in resources:
                sums[resource] += entry[1].get(resource, 0)
        self._known = known
        return sums


_RUNNING = _Running()


def _amounts(pod: Pod) -> dict[str, int]:
    return {resource: amount(resource, quantity) for resource, quantity in pod_requests(pod, SizingOptions()).items()}


def amount(resource: str, quantity: Quantity) -> int:
    """The whole number in which the kubelet judges a resource: thousandths of a CPU, else units."""
    return quantity.milli_value() if resource == "cpu" else quantity.value()
