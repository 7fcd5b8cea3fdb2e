"""The reservation ledger: growth that was admitted but that no report shows yet, so that two resizes cannot share one
headroom.

A reservation says up to what size a pod was let grow. What it holds is the difference to what the pod was last seen to
occupy, so it melts as reports show the growth and ends when all of it is there, when the pod is gone, or at its time.
Nothing here reads a clock or changes in place: every function returns the next ledger.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from math import inf

from agent.model.pod import Pod
from agent.model.queue import PodGroup
from agent.queues.charge import occupies
from agent.queues.observed_pods import uid_of
from agent.queues.reserved import Hold, Reserved, queue_path
from agent.queues.resize_admission import ResizeAnswer, ResizeOptions, ResizeReason, decide_resize
from agent.queues.resize_bounds import QueueCharge
from agent.queues.resize_growth import NOTHING, CPUMemory, growth
from agent.queues.workloads import Directory, is_preemptible, pod_group_of

MAX_RESERVATIONS = 4096  # pods whose resize is under way at one time; beyond it no further growth is admitted


@dataclass(frozen=True, slots=True)
class Reservation:
    """pod: "namespace/name". target: the size it may reach, 0 where the resource does not grow. seen: its size as
    charged now.

    expires: when it ends by time, on the caller's clock.
    """

    pod: str
    queue: str
    preemptible: bool
    target: CPUMemory
    seen: CPUMemory
    expires: float

    @property
    def held(self) -> CPUMemory:
        """What is still to come."""
        return _minus(self.target, self.seen)

    @property
    def hold(self) -> Hold:
        """What it holds in its queue."""
        return Hold(self.queue, self.preemptible, *self.held)


@dataclass(frozen=True, slots=True)
class Ledger:
    """Reservations by pod UID, at most one for each pod. none_ends_before: a time; no reservation ends before it.

    sums: what they hold by queue, in the tree that was asked for last; None: to be found out.
    """

    reservations: Mapping[str, Reservation] = field(default_factory=dict)
    none_ends_before: float = field(default=0.0, compare=False, repr=False)
    sums: Reserved | None = field(default=None, compare=False, repr=False)

    def reserved(self, directory: Directory) -> Reserved:
        """What the reservations hold in every queue of these, descendants included."""
        sums = self.sums
        if sums is None or sums.queues is not directory.queues:
            sums = Reserved(directory.queues).plus(each.hold for each in self.reservations.values())
            object.__setattr__(self, "sums", sums)  # follows from the rest, so the value stays the same
        return sums

    def changed(self, changes: Mapping[str, Reservation | None]) -> Ledger:
        """With other reservations for these pods; None: without one."""
        reservations, holds, ends = dict(self.reservations), list[Hold](), self.none_ends_before
        for uid, new in changes.items():
            if (before := reservations.pop(uid, None)) is not None:
                holds.append(-before.hold)
            if new is not None:
                reservations[uid] = new
                holds.append(new.hold)
                ends = min(ends, new.expires)
        return Ledger(reservations, ends, None if self.sums is None else self.sums.plus(holds))


@dataclass(frozen=True, slots=True)
class LedgerOptions:
    """ttl_seconds: how long a growth may take to show. capacity: how many reservations are kept."""

    ttl_seconds: float = 600.0
    capacity: int = MAX_RESERVATIONS


def admit(
    ledger: Ledger,
    old: Pod,
    new: Pod,
    directory: Directory,
    options: ResizeOptions,
    limits: LedgerOptions,
    charges: Mapping[str, QueueCharge],
    seen: CPUMemory,
    now: float,
) -> tuple[ResizeAnswer, Ledger]:
    """Decide a resize with everything reserved counted in, and reserve its growth where it is admitted.

    charges: by queue, without reservations. seen: what the pod is charged for in them. With a full ledger, growth that
    would need a reservation is rejected.
    """
    ledger = expire(ledger, now)
    delta = growth(old, new, pod_level=options.pod_level)
    more = CPUMemory.of(delta)
    uid, reservation = uid_of(old), _reservation(ledger, old, directory, more, seen, now + limits.ttl_seconds)
    reserved = dict(charges)
    if reservation is not None:
        # The check adds the growth itself: of this pod's own reservation only what goes beyond that counts here.
        holds = [replace(reservation, target=_minus(reservation.target, more)).hold]
        if (before := ledger.reservations.get(uid)) is not None:
            holds.append(-before.hold)
        path = queue_path(reservation.queue, directory.queues)
        reserved = ledger.reserved(directory).plus(holds).added_to(charges, path)
    answer = decide_resize(old, new, directory, options, reserved, delta)
    if answer.reason is not ResizeReason.FITS or answer.group is None or reservation is None or more == NOTHING:
        return answer, ledger
    if uid not in ledger.reservations and len(ledger.reservations) >= limits.capacity:
        return _full(answer, old, answer.group, limits.capacity), ledger
    return answer, ledger.changed({uid: reservation})


def _reservation(
    ledger: Ledger, old: Pod, directory: Directory, more: CPUMemory, seen: CPUMemory, expires: float
) -> Reservation | None:
    """The pod's reservation if this growth is admitted: up to what it occupies plus the growth, or what was let grow
    before.
    """
    if (group := pod_group_of(old, directory)) is None:
        return None
    before = ledger.reservations.get(uid_of(old))
    occupied, earlier = occupies(old), before.target if before is not None else NOTHING
    target = CPUMemory(
        max(earlier.cpu_millis, occupied.cpu_millis + more.cpu_millis if more.cpu_millis else 0),
        max(earlier.memory_bytes, occupied.memory_bytes + more.memory_bytes if more.memory_bytes else 0),
    )
    return Reservation(old.namespaced_name, group.queue, is_preemptible(group, directory), target, seen, expires)


def _full(answer: ResizeAnswer, pod: Pod, group: PodGroup, capacity: int) -> ResizeAnswer:
    message = (
        f"resize rejected: pod {pod.namespaced_name} (PodGroup {group.name}), queue {group.queue}: {capacity} admitted resizes "
        "are under way, the reservation ledger is full; try again when some of them have finished"
    )
    return replace(answer, allowed=False, reason=ResizeReason.LEDGER_FULL, message=message)


def settle(ledger: Ledger, occupied: Mapping[str, CPUMemory], gone: Collection[str] = ()) -> Ledger:
    """Take in what reports show: `occupied` by pod UID, and pods that are gone. Ends every reservation that is used up."""
    concerned = ledger.reservations.keys() & (occupied.keys() | set(gone))
    if not concerned:
        return ledger
    changes: dict[str, Reservation | None] = {}
    for uid in concerned:
        reservation = replace(ledger.reservations[uid], seen=occupied.get(uid, NOTHING))
        changes[uid] = None if uid in gone or reservation.held == NOTHING else reservation
    return ledger.changed(changes)


def expire(ledger: Ledger, now: float) -> Ledger:
    """End every reservation whose time has come."""
    if now < ledger.none_ends_before:
        return ledger
    left = ledger.changed({uid: None for uid, each in ledger.reservations.items() if each.expires <= now})
    return replace(left, none_ends_before=min((each.expires for each in left.reservations.values()), default=inf))


def follow(ledger: Ledger, charged: Mapping[str, tuple[str, bool]]) -> Ledger:
    """Growth goes where its pod goes. charged: by UID, the queue that a pod is charged to now, and whether it is preemptible."""
    changes: dict[str, Reservation | None] = {}
    for uid, (queue, preemptible) in charged.items():
        held = ledger.reservations[uid]
        if (held.queue, held.preemptible) != (queue, preemptible):
            changes[uid] = replace(held, queue=queue, preemptible=preemptible)
    return ledger.changed(changes) if changes else ledger


def rebuild(ledger: Ledger, wanted: Mapping[str, Reservation]) -> Ledger:
    """The ledger with reservations that it may lack, conservatively: every pod whose API object asks for more than it is
    charged for.

    wanted: by pod UID, `target` what the API server's pod would occupy, `seen` what it is charged for. Of a pod that has
    a reservation the larger target and the later end count. None is left out, however many there are: what is under way
    is held, and no more is admitted until there is room in the ledger.
    """
    changes: dict[str, Reservation | None] = {}
    for uid, new in wanted.items():
        before = ledger.reservations.get(uid, new)
        target = CPUMemory(*map(max, before.target, new.target))
        found = replace(new, target=target, expires=max(before.expires, new.expires))
        if found.held != NOTHING and found != ledger.reservations.get(uid):
            changes[uid] = found
    return ledger.changed(changes) if changes else ledger


def with_reserved(charges: Mapping[str, QueueCharge], ledger: Ledger, directory: Directory) -> dict[str, QueueCharge]:
    """The charges with what is reserved below each queue."""
    return ledger.reserved(directory).added_to(charges)


def _minus(a: CPUMemory, b: CPUMemory) -> CPUMemory:
    """a - b, not below 0."""
    return CPUMemory(max(0, a.cpu_millis - b.cpu_millis), max(0, a.memory_bytes - b.memory_bytes))
