"""Does a pod fit what the node has left: the last check of an admission (kubelet lifecycle/predicate.go).

It runs after the topology admission, on allocated resources, so that a pod larger than the node is often refused earlier.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
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


class PodAmounts:
    """What running pods request, worked out once for each: most are the same from one judgement to the next.

    Whoever judges often keeps one. It holds the pods of the last question only.
    """

    def __init__(self) -> None:
        self._known: dict[str, tuple[Pod, Mapping[str, int]]] = {}

    def of(self, pods: Iterable[Pod]) -> list[Mapping[str, int]]:
        """The amounts of each of these pods by resource: whole numbers, as the kubelet judges them."""
        before, self._known, found = self._known, {}, []
        for pod in pods:
            known = before.get(pod.uid)
            if known is None or known[0] is not pod:
                known = pod, _amounts(pod)
            self._known[pod.uid] = known
            found.append(known[1])
        return found


def check_node_fit(node: NodeCapacity, running: Iterable[Pod], pod: Pod, amounts: PodAmounts | None = None) -> None:
    """Refuse a pod that the node's allocatable amounts no longer hold beside the running ones. Raises OutOfResource.

    cpu is counted in millicores, everything else in whole units. A resource that the node does not know is not judged
    where the pod asks for none of it. amounts: kept from the judgement before.
    """
    amounts = amounts or PodAmounts()
    others = [other for other in running if other.uid != pod.uid]
    allocatable = node.allocatable
    if "pods" in allocatable and len(others) + 1 > allocatable["pods"].value():
        raise OutOfResource("pods", 1, len(others), allocatable["pods"].value())
    asked, held_by_others = _amounts(pod), amounts.of(others)
    for resource in sorted(asked):
        requested, held = asked[resource], sum(each.get(resource, 0) for each in held_by_others)
        total = amount(resource, allocatable.get(resource, ZERO))
        if requested > 0 and requested + held > total and resource != "ephemeral-storage":
            raise OutOfResource(resource, requested, held, total)


def _amounts(pod: Pod) -> Mapping[str, int]:
    return {name: amount(name, quantity) for name, quantity in pod_requests(pod, SizingOptions()).items()}


def amount(resource: str, quantity: Quantity) -> int:
    """The whole number in which the kubelet judges a resource: thousandths of a CPU, else units."""
    return quantity.milli_value() if resource == "cpu" else quantity.value()
