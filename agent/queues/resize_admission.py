"""May a running pod grow in place: the check behind the `pods/resize` webhook.

Growth is what the new spec asks for beyond what the pod occupies now. It must fit the limit of every queue from the pod
group's up to the root and, for work that cannot be preempted, their quota too. CPU in whole millicores, memory in whole
bytes. Source: KAI-Scheduler v0.18 admission check for pods/resize, and the design document "In-Place Pod Resize
Accounting and Queue Admission"; where the two differ, the code (docs/queues.md). Pod-level requests are ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from agent.model.pod import Pod
from agent.model.quantity import Quantity
from agent.model.queue import POD_GROUP_ANNOTATION, PodGroup, ResourceName
from agent.queues.derivation import Rule, Step
from agent.queues.quantities import format_amount
from agent.queues.resize_bounds import Bound, BoundKind, QueueCharge, checked_queues, checks, room
from agent.queues.resize_growth import CPUMemory, growth, is_allocated
from agent.queues.workloads import SCHEDULER_NAME, Directory, is_preemptible, pod_group_of


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
    path = checked_queues(group.queue, directory)
    strict, steps = options.block_upsize_on_bounded_queues, []
    for step, bound in checks(path, delta, charges, preemptible=preemptible, strict=strict):
        steps.append(step)
        if not step.holds:
            rejection = _rejection(step, bound, room(path, step, charges, preemptible=preemptible))
            message = _message(old, group, rejection)
            reason = ResizeReason.REJECTED
            return ResizeAnswer(False, reason, message, delta, allocated, preemptible, group, rejection, tuple(steps))
    fits = ResizeReason.FITS
    return ResizeAnswer(True, fits, fits.value, delta, allocated, preemptible, group, steps=tuple(steps))


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


def _rejection(step: Step, bound: Bound, room: int) -> Rejection:
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
