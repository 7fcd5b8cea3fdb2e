"""May a running pod grow in place: the check behind the `pods/resize` webhook.

Growth is what the new spec asks for beyond what the pod occupies now. It must fit the limit of every queue from the pod
group's up to the root and, for work that cannot be preempted, their quota too. CPU in whole millicores, memory in whole
bytes. Source: KAI-Scheduler v0.18 admission check for pods/resize, and the design document "In-Place Pod Resize
Accounting and Queue Admission"; where the two differ, the code (docs/queues.md). Pod-level requests are ours.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from agent.model.pod import Pod
from agent.model.quantity import ZERO, Quantity
from agent.model.queue import PodGroup, Queue, ResourceName
from agent.model.resources import CPU, MEMORY, is_pod_level_resource
from agent.policy.pod_resources import SizingOptions, aggregate_container_requests, pod_requests
from agent.queues.derivation import Rule, Step
from agent.queues.quantities import format_amount
from agent.queues.workloads import POD_GROUP_ANNOTATION, SCHEDULER_NAME, Directory, is_preemptible, pod_group_of

_SPEC = SizingOptions()
_EFFECTIVE = SizingOptions(use_status_resources=True)
_POD_LEVEL_SPEC = SizingOptions(skip_container_level_resources=True, exclude_overhead=True)
_POD_LEVEL_EFFECTIVE = SizingOptions(
    use_status_resources=True,
    in_place_pod_level_resources=True,
    skip_container_level_resources=True,
    exclude_overhead=True,
)


class CPUMemory(NamedTuple):
    """The two resources that can be resized, in whole units: millicores and bytes."""

    cpu_millis: int = 0
    memory_bytes: int = 0

    @classmethod
    def of(cls, amounts: Mapping[str, Quantity]) -> CPUMemory:
        """Both rounded up to whole units; absent is 0."""
        return cls(amounts.get(CPU, ZERO).milli_value(), amounts.get(MEMORY, ZERO).value())


NOTHING = CPUMemory()


@dataclass(frozen=True, slots=True)
class QueueCharge:
    """What a queue is charged for now. reserved, reserved_non_preemptible: admitted growth that no report shows yet."""

    allocated: CPUMemory = NOTHING
    allocated_non_preemptible: CPUMemory = NOTHING
    reserved: CPUMemory = NOTHING
    reserved_non_preemptible: CPUMemory = NOTHING


@dataclass(frozen=True, slots=True)
class ResizeOptions:
    """KAI's `spec.admission.inPlacePodResize` and scheduler name, and one of ours.

    block_upsize_on_bounded_queues: strict mode. pod_level: growth of pod-level requests counts too, which upstream
    overlooks.
    """

    scheduler_name: str = SCHEDULER_NAME
    validate_quota: bool = True
    block_upsize_on_bounded_queues: bool = False
    pod_level: bool = True


class ResizeReason(StrEnum):
    """Why a resize was admitted or rejected: the first that applies."""

    NOT_MANAGED = "the pod is not scheduled by KAI"
    VALIDATION_OFF = "validateQuota is off"
    NOT_ALLOCATED = "the pod is not allocated to a node yet"
    NO_POD_GROUP = "the pod names no pod group"
    POD_GROUP_NOT_FOUND = "the pod group does not exist"
    NO_GROWTH = "nothing grows beyond what the pod occupies"
    FITS = "the growth fits every queue of the path"
    REJECTED = "the growth does not fit"
    LEDGER_FULL = "the reservation ledger is full"


class BoundKind(StrEnum):
    """Which bound of a queue: its limit, or its deserved quota."""

    LIMIT = "limit"
    QUOTA = "quota"


class Mode(StrEnum):
    """How a bound forbids: because the growth does not fit it, or because it exists."""

    CAPACITY = "capacity"
    STRICT = "strict"


@dataclass(frozen=True, slots=True)
class Rejection:
    """The first bound that the growth passes. Amounts in millicores or bytes; reserved is part of none of the others.

    room: the growth of this resource that would fit every queue of the path; 0 in strict mode.
    """

    queue: str
    resource: ResourceName
    bound_kind: BoundKind
    mode: Mode
    allocated: int
    reserved: int
    delta: int
    bound: float
    room: int

    @property
    def allocated_kind(self) -> str:
        """The field of the queue's status that was compared."""
        return "Allocated" if self.bound_kind is BoundKind.LIMIT else "AllocatedNonPreemptible"


@dataclass(frozen=True, slots=True)
class ResizeAnswer:
    """The answer, what it is based on, and a text for the person who asked.

    delta: growth of every resource that grows, exact. charge: its CPU and memory in whole units. preemptible: None
    where the pod group was not found. steps: every bound compared, in order.
    """

    allowed: bool
    reason: ResizeReason
    message: str
    delta: Mapping[str, Quantity]
    pod_allocated: bool
    preemptible: bool | None = None
    group: PodGroup | None = None
    rejection: Rejection | None = None
    steps: tuple[Step, ...] = field(default=())

    @property
    def charge(self) -> CPUMemory:
        """The growth of CPU and memory, rounded up to whole units."""
        return CPUMemory.of(self.delta)


def decide_resize(
    old: Pod,
    new: Pod,
    directory: Directory,
    options: ResizeOptions,
    charges: Mapping[str, QueueCharge] | None = None,
    delta: Mapping[str, Quantity] | None = None,
) -> ResizeAnswer:
    """Whether `old` may become `new`. charges: by queue; None takes what every `Queue.status` says. delta: `growth`, if
    known.

    Walks up from the pod group's queue; a queue that does not exist ends the walk, one without `spec.resources` is
    skipped. On each queue: strict mode, then limits, then quotas for non-preemptible work; CPU before memory. A
    negative bound is unlimited.
    """
    delta = growth(old, new, pod_level=options.pod_level) if delta is None else delta
    allocated = is_allocated(old)
    group = pod_group_of(old, directory)
    preemptible = None if group is None else is_preemptible(group, directory)
    early = _admitted_early(old, new, group, delta, options, allocated=allocated)
    if early is not None or group is None or preemptible is None:
        reason = early or ResizeReason.POD_GROUP_NOT_FOUND
        return ResizeAnswer(True, reason, reason.value, delta, allocated, preemptible, group)
    path = _path(group.queue, directory)
    steps = []
    for step, bound in _checks(path, delta, charges, options, preemptible=preemptible):
        steps.append(step)
        if not step.holds:
            rejection = _rejection(step, bound, _room(path, step, charges, preemptible=preemptible))
            message = _message(old, group, rejection)
            reason = ResizeReason.REJECTED
            return ResizeAnswer(False, reason, message, delta, allocated, preemptible, group, rejection, tuple(steps))
    fits = ResizeReason.FITS
    return ResizeAnswer(True, fits, fits.value, delta, allocated, preemptible, group, steps=tuple(steps))


def is_allocated(pod: Pod) -> bool:
    """Whether queues are charged for the pod: running, or pending and scheduled (its first PodScheduled condition is
    True).
    """
    if pod.status.phase == "Pending":
        return next((each.status == "True" for each in pod.status.conditions if each.type == "PodScheduled"), False)
    return pod.status.phase == "Running"


def growth(old: Pod, new: Pod, *, pod_level: bool) -> dict[str, Quantity]:
    """What a resize adds to the pod's occupancy, resources that grow only.

    Per resource whose spec aggregate changes: the new spec aggregate less what the pod occupies now (the largest of
    spec, allocated and actual). So moving requests between containers and changing limits is free, and the step back
    from an infeasible size is not. With `pod_level`, the same of the pod-level requests, and the larger of the two
    counts.
    """
    before, after = aggregate_container_requests(old, _SPEC), aggregate_container_requests(new, _SPEC)
    occupied = aggregate_container_requests(old, _EFFECTIVE)
    delta = _growth(before, after, occupied)
    if pod_level and (old.resources is not None or new.resources is not None):
        # Without a pod-level request so far, the pod holds what its containers do.
        held = {**occupied, **pod_requests(old, _POD_LEVEL_EFFECTIVE)}
        more = _growth(pod_requests(old, _POD_LEVEL_SPEC), pod_requests(new, _POD_LEVEL_SPEC), held)
        delta |= {
            name: amount
            for name, amount in more.items()
            if is_pod_level_resource(name) and amount > delta.get(name, ZERO)
        }
    return delta


def _growth(
    before: Mapping[str, Quantity], after: Mapping[str, Quantity], occupied: Mapping[str, Quantity]
) -> dict[str, Quantity]:
    changed = {name: amount for name, amount in after.items() if amount != before.get(name, ZERO)}
    return {name: more for name, amount in changed.items() if (more := amount - occupied.get(name, ZERO)) > ZERO}


def _admitted_early(
    old: Pod,
    new: Pod,
    group: PodGroup | None,
    delta: Mapping[str, Quantity],
    options: ResizeOptions,
    *,
    allocated: bool,
) -> ResizeReason | None:
    """The reason to admit without looking at queues, in upstream's order."""
    if new.scheduler_name != options.scheduler_name:
        return ResizeReason.NOT_MANAGED
    if not options.validate_quota:
        return ResizeReason.VALIDATION_OFF
    if not allocated:
        return ResizeReason.NOT_ALLOCATED
    if not old.annotations.get(POD_GROUP_ANNOTATION):
        return ResizeReason.NO_POD_GROUP
    if group is None:
        return ResizeReason.POD_GROUP_NOT_FOUND
    return None if delta else ResizeReason.NO_GROWTH


def _path(name: str, directory: Directory) -> list[Queue]:
    """The queues to check, leaf to root. A missing queue or a cycle ends it."""
    path: list[Queue] = []
    while (queue := directory.queues.get(name)) is not None and queue not in path:
        path.append(queue)
        name = queue.parent
    return [queue for queue in path if queue.has_resources]


def status_charge(queue: Queue) -> QueueCharge:
    """What `Queue.status` says; a missing entry counts as 0."""
    return QueueCharge(CPUMemory.of(queue.status.allocated), CPUMemory.of(queue.status.allocated_non_preemptible))


def _charge(queue: Queue, charges: Mapping[str, QueueCharge] | None) -> QueueCharge:
    return status_charge(queue) if charges is None else charges.get(queue.name, QueueCharge())


class _Bound(NamedTuple):
    """One comparison: what would be held against what may be."""

    kind: BoundKind
    resource: ResourceName
    allocated: int
    reserved: int
    bound: float


def _bounds(queue: Queue, charge: QueueCharge, *, preemptible: bool) -> list[_Bound]:
    """The bounds of one queue in the order in which they are checked; negative ones are unlimited and left out."""
    kinds = [(BoundKind.LIMIT, charge.allocated, charge.reserved, queue.limit)]
    if not preemptible:
        quota = (charge.allocated_non_preemptible, charge.reserved_non_preemptible, queue.deserved)
        kinds.append((BoundKind.QUOTA, *quota))
    bounds = []
    for kind, allocated, reserved, bound in kinds:
        bounds.append(_Bound(kind, ResourceName.CPU, allocated.cpu_millis, reserved.cpu_millis, bound.cpu))
        # Megabytes as a float times 1e6, the fraction of a byte cut off, as upstream.
        memory = float(int(bound.memory))
        bounds.append(_Bound(kind, ResourceName.MEMORY, allocated.memory_bytes, reserved.memory_bytes, memory))
    return [each for each in bounds if each.bound >= 0]


def _checks(
    path: list[Queue],
    delta: Mapping[str, Quantity],
    charges: Mapping[str, QueueCharge] | None,
    options: ResizeOptions,
    *,
    preemptible: bool,
) -> Iterator[tuple[Step, _Bound]]:
    """Every comparison until one fails, with the bound it is about."""
    more = dict(zip((ResourceName.CPU, ResourceName.MEMORY), CPUMemory.of(delta), strict=True))
    for queue in path:
        bounds = [
            each
            for each in _bounds(queue, _charge(queue, charges), preemptible=preemptible)
            if delta.get(each.resource)
        ]
        if options.block_upsize_on_bounded_queues:
            for bound in sorted(bounds, key=lambda each: each.resource):  # cpu: limit, quota; then memory
                rule = Rule.STRICT_LIMIT if bound.kind is BoundKind.LIMIT else Rule.STRICT_QUOTA
                yield _step(rule, queue, bound, more[bound.resource], holds=False), bound
        for bound in bounds:
            amount = more[bound.resource]
            holds = bound.allocated + bound.reserved + amount <= bound.bound
            yield _step(_rule(bound), queue, bound, amount, holds=holds), bound


def _rule(bound: _Bound) -> Rule:
    if bound.kind is BoundKind.LIMIT:
        return Rule.RESERVED_LIMIT if bound.reserved else Rule.LIMIT
    return Rule.RESERVED_QUOTA if bound.reserved else Rule.QUOTA


def _step(rule: Rule, queue: Queue, bound: _Bound, delta: int, *, holds: bool) -> Step:
    amounts = [("allocated", float(bound.allocated)), ("growth", float(delta)), (bound.kind.value, bound.bound)]
    if bound.reserved:
        amounts.insert(1, ("reserved", float(bound.reserved)))
    return Step(rule, queue.name, holds, bound.resource, tuple(amounts))


def _room(path: list[Queue], failed: Step, charges: Mapping[str, QueueCharge] | None, *, preemptible: bool) -> int:
    """The growth of the failed step's resource that every queue of the path would take."""
    if failed.rule in (Rule.STRICT_LIMIT, Rule.STRICT_QUOTA):
        return 0
    bounds = [each for queue in path for each in _bounds(queue, _charge(queue, charges), preemptible=preemptible)]
    free = min(each.bound - each.allocated - each.reserved for each in bounds if each.resource is failed.resource)
    return max(0, int(free))


def _rejection(step: Step, bound: _Bound, room: int) -> Rejection:
    mode = Mode.STRICT if step.rule in (Rule.STRICT_LIMIT, Rule.STRICT_QUOTA) else Mode.CAPACITY
    delta = int(dict(step.amounts)["growth"])
    return Rejection(
        step.queue, bound.resource, bound.kind, mode, bound.allocated, bound.reserved, delta, bound.bound, room
    )


def _message(pod: Pod, group: PodGroup, rejection: Rejection) -> str:
    """The refusal, with everything that a user or an administrator needs to act on it."""

    def amount(number: float) -> str:
        return format_amount(rejection.resource, number)

    held = f"allocated {amount(rejection.allocated)}"
    if rejection.bound_kind is BoundKind.QUOTA:
        held = f"allocated to non-preemptible work {amount(rejection.allocated)}"
    if rejection.reserved:
        held += f" + reserved by admitted resizes {amount(rejection.reserved)}"
    subject = f"resize rejected: pod {pod.namespaced_name} (PodGroup {group.name}), queue {rejection.queue}, {rejection.resource}"
    bound = f"{rejection.bound_kind} {amount(rejection.bound)}"
    if rejection.mode is Mode.STRICT:
        return (
            f"{subject}: no growth by resize where the queue has a {bound} (blockUpsizeOnBoundedQueues); "
            f"{held}, growth {amount(rejection.delta)}"
        )
    return (
        f"{subject}: {held} + growth {amount(rejection.delta)} exceeds {bound}; {amount(rejection.room)} more would fit"
    )
