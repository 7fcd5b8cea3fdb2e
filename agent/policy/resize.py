"""May a running pod have other resources: the kubelet's checks in the kubelet's order (KEP-1287).

Answers: allocated (`ResizeState.IN_PROGRESS` until it is in force), Deferred (not now), Infeasible (never here). With the gates
InPlacePodVerticalScalingExclusiveCPUs and ...ExclusiveMemory (`resize.exclusive: true`) pinned pods are resized by the rule of
`agent.policy.resize_pinned`.
Source: kubelet allocation/allocation_manager.go and pod_resizes_admit_handler.go of 1.36.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from agent.model.numa import node_ids
from agent.model.pod import ContainerKind, Pod, QOSClass, ResourceRequirements
from agent.model.quantity import ZERO
from agent.model.state import Affinity, Grants, PodRecord, ResizeState, Shortfall
from agent.policy.managers import Managers
from agent.policy.node_fit import NodeCapacity, OutOfResource, PodAmounts, amount, check_node_fit
from agent.policy.pod_resources import SizingOptions, pod_requests
from agent.policy.qos import pod_qos
from agent.policy.removal import holds
from agent.policy.resize_pinned import PinnedResizeRefusal, alone, resize_pinned
from agent.policy.resize_shortfall import node_shortfall, pinned_shortfall
from agent.policy.resize_validation import resize_violations

NEVER = ResizeState.INFEASIBLE


@dataclass(frozen=True, slots=True)
class ResizeVerdict:
    """The answer for one resize. grants: after it; those given where it is refused.

    reason: a word for events and metrics, "" where it is allocated. affinities: the hints merged for what grew.
    """

    state: ResizeState
    grants: Grants
    reason: str = ""
    message: str = ""
    shortfall: tuple[Shortfall, ...] = ()
    affinities: Mapping[str, Affinity] = field(default_factory=dict)


def judge_resize(
    managers: Managers,
    node: NodeCapacity,
    grants: Grants,
    running: Iterable[Pod],
    record: PodRecord,
    desired: Pod,
    amounts: PodAmounts | None = None,
) -> ResizeVerdict:
    """Decide about one resize. running: every pod that holds a place here, with its allocated resources. amounts: kept while
    many are judged.
    """
    gates, allocated = managers.gates, record.pod
    violations = resize_violations(allocated, desired, pod_level_resources=gates.pod_level_resources)
    if violations:
        return ResizeVerdict(NEVER, grants, "invalid", "; ".join(map(str, violations)))
    never = _never(managers, node, grants, allocated, desired)
    if never is not None:
        return never
    pinned = None
    refusal: PinnedResizeRefusal | None = None
    if holds(grants, desired.uid) or _is_guaranteed(managers, allocated):
        try:
            pinned = resize_pinned(managers, grants, record.first, allocated, desired)
        except PinnedResizeRefusal as error:
            refusal = error
    if refusal is not None and refusal.never:
        lacks = pinned_shortfall(managers, alone(managers, grants, desired.uid), desired)
        return ResizeVerdict(NEVER, grants, refusal.reason, _with_lacks(str(refusal), lacks), lacks)
    try:
        check_node_fit(node, running, desired, amounts)
    except OutOfResource as error:
        lacks = (node_shortfall(error), *(pinned_shortfall(managers, grants, desired) if refusal is not None else ()))
        return ResizeVerdict(ResizeState.DEFERRED, grants, error.reason, str(error), lacks)
    if refusal is not None:
        lacks = pinned_shortfall(managers, grants, desired)
        return ResizeVerdict(ResizeState.DEFERRED, grants, refusal.reason, _with_lacks(str(refusal), lacks), lacks)
    if pinned is None:
        return ResizeVerdict(ResizeState.IN_PROGRESS, grants)
    affinities = {name: Affinity(hint.affinity, hint.preferred) for name, hint in pinned.affinities.items()}
    return ResizeVerdict(ResizeState.IN_PROGRESS, pinned.grants, affinities=affinities)


def _is_guaranteed(managers: Managers, pod: Pod) -> bool:
    return pod_qos(pod, pod_level_resources=managers.gates.pod_level_resources) is QOSClass.GUARANTEED


def _never(
    managers: Managers, node: NodeCapacity, grants: Grants, allocated: Pod, desired: Pod
) -> ResizeVerdict | None:
    """What can be told from configuration and capacity alone."""
    gates = managers.gates
    if not gates.in_place_pod_vertical_scaling:
        return ResizeVerdict(NEVER, grants, "feature_gate_off", "InPlacePodVerticalScaling is disabled")
    if desired.resources != allocated.resources and not gates.in_place_pod_level_resources_vertical_scaling:
        text = "InPlacePodLevelResourcesVerticalScaling is disabled"
        return ResizeVerdict(NEVER, grants, "plr_feature_gate_off", text)
    if _is_guaranteed(managers, allocated):
        off = not gates.in_place_pod_vertical_scaling_exclusive_cpus
        if off and managers.cpu is not None and _changes(grants, allocated, desired, "cpu"):
            text = 'Resize is infeasible for Guaranteed Pods alongside CPU Manager policy "static"'
            return ResizeVerdict(NEVER, grants, "guaranteed_pod_cpu_manager_static_policy", text)
        off = not gates.in_place_pod_vertical_scaling_exclusive_memory
        if off and managers.memory is not None and _changes(grants, allocated, desired, "memory"):
            text = 'Resize is infeasible for Guaranteed Pods alongside Memory Manager policy "Static"'
            return ResizeVerdict(NEVER, grants, "guaranteed_pod_memory_manager_static_policy", text)
    return _above_the_node(node, grants, desired)


def _changes(grants: Grants, allocated: Pod, desired: Pod, resource: str) -> bool:
    """Whether a resizable container's request changes, or that of a pod with a bubble.

    The kubelet looks at containers only and would leave the bubble of a resized pod as it is (docs/differences.md).
    """
    before = {container.name: container.resources.requests.get(resource) for container in allocated.containers}
    if any(
        container.kind is not ContainerKind.INIT
        and container.resources.requests.get(resource) != before.get(container.name)
        for container in desired.containers
    ):
        return True
    held = grants.cpu.pod_entries if resource == "cpu" else grants.memory.pod_entries
    if desired.uid not in held:
        return False
    old, new = allocated.resources or ResourceRequirements(), desired.resources or ResourceRequirements()
    return old.requests.get(resource) != new.requests.get(resource)


def _above_the_node(node: NodeCapacity, grants: Grants, desired: Pod) -> ResizeVerdict | None:
    """Larger than the whole node; memory is named where both are."""
    asked = pod_requests(desired, SizingOptions())
    for resource in ("memory", "cpu"):
        requested = amount(resource, asked.get(resource, ZERO))
        capacity = amount(resource, node.allocatable.get(resource, ZERO))
        if requested > capacity:
            text = f"Node didn't have enough capacity: {resource}, requested: {requested}, capacity: {capacity}"
            lacks = (Shortfall(resource, requested - capacity),)
            return ResizeVerdict(NEVER, grants, "insufficient_node_allocatable", text, lacks)
    return None


def _with_lacks(message: str, lacks: tuple[Shortfall, ...]) -> str:
    return f"{message}; {describe(lacks)}" if lacks else message


def describe(lacks: Iterable[Shortfall]) -> str:
    """A shortfall for people: "lacks 2 CPUs on NUMA node 1"."""
    return "lacks " + ", ".join(map(_describe, lacks))


def _describe(lack: Shortfall) -> str:
    if lack.resource == "cpu":
        count = lack.amount / 1000
        what = f"{count:g} CPU" + ("" if count == 1 else "s")
    else:
        what = f"{lack.amount} bytes of {lack.resource}"
    if not lack.nodes:
        return what
    nodes = node_ids(lack.nodes)
    return f"{what} on NUMA node{'s' if len(nodes) > 1 else ''} {','.join(map(str, nodes))}"
