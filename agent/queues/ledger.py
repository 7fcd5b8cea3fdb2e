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
from typing import TypeAlias

from agent.model.pod import Pod
from agent.model.queue import PodGroup
from agent.queues.charge import occupies
from agent.queues.resize_admission import (
    NOTHING,
    CPUMemory,
    QueueCharge,
    ResizeAnswer,
    ResizeOptions,
    ResizeReason,
    decide_resize,
    growth,
)
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


Key: TypeAlias = tuple[str, bool]  # queue, and whether the work is preemptible
Sums: TypeAlias = Mapping[Key, CPUMemory]


@dataclass(frozen=True, slots=True)
class Ledger:
    """Reservations by pod UID, at most one for each pod. sums: what they hold by queue, kept along so that an answer need not
    walk thousands of reservations; None: to be found out. none_ends_before: a time; no reservation ends before it.
    """

    reservations: Mapping[str, Reservation] = field(default_factory=dict)
    sums: Sums | None = field(default=None, compare=False, repr=False)
    none_ends_before: float = field(default=0.0, compare=False, repr=False)

    def by_queue(self) -> Sums:
        """What the reservations of each queue hold together, those of its descendants not included."""
        if self.sums is None:
            sums: dict[Key, CPUMemory] = {}
            for each in self.reservations.values():
                _add(sums, each, each.held)
            object.__setattr__(self, "sums", sums)  # follows from the rest, so the value stays the same
            return sums
        return self.sums

    def having(self, uid: str, reservation: Reservation) -> Ledger:
        """With another reservation for one pod."""
        sums, before = dict(self.by_queue()), self.reservations.get(uid)
        if before is not None:
            _add(sums, before, CPUMemory(-before.held.cpu_millis, -before.held.memory_bytes))
        _add(sums, reservation, reservation.held)
        ends = min(self.none_ends_before, reservation.expires)
        return Ledger({**self.reservations, uid: reservation}, sums, ends)

    def without(self, uid: str) -> Ledger:
        """Without the reservation of one pod."""
        sums, left = dict(self.by_queue()), dict(self.reservations)
        if (before := left.pop(uid, None)) is not None:
            _add(sums, before, CPUMemory(-before.held.cpu_millis, -before.held.memory_bytes))
        return Ledger(left, sums, self.none_ends_before)


def _add(sums: dict[Key, CPUMemory], reservation: Reservation, amount: CPUMemory) -> None:
    key = reservation.queue, reservation.preemptible
    cpu_millis, memory_bytes = sums.get(key, NOTHING)
    sums[key] = CPUMemory(cpu_millis + amount.cpu_millis, memory_bytes + amount.memory_bytes)
    if sums[key] == NOTHING:
        del sums[key]


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
    reservation = _reservation(ledger, old, directory, more, seen, now + limits.ttl_seconds)
    sums, before = dict(ledger.by_queue()), ledger.reservations.get(old.uid)
    if before is not None:
        _add(sums, before, CPUMemory(-before.held.cpu_millis, -before.held.memory_bytes))
    if reservation is not None:
        # The check adds the growth itself: of this pod's own reservation only what goes beyond that counts here.
        _add(sums, reservation, _minus(reservation.held, more))
    reserved = _reserved(charges, sums, directory, () if reservation is None else _path(reservation.queue, directory))
    answer = decide_resize(old, new, directory, options, reserved, delta)
    if answer.reason is not ResizeReason.FITS or answer.group is None or reservation is None or more == NOTHING:
        return answer, ledger
    if old.uid not in ledger.reservations and len(ledger.reservations) >= limits.capacity:
        return _full(answer, old, answer.group, limits.capacity), ledger
    return answer, ledger.having(old.uid, reservation)


def _reservation(
    ledger: Ledger, old: Pod, directory: Directory, more: CPUMemory, seen: CPUMemory, expires: float
) -> Reservation | None:
    """The pod's reservation if this growth is admitted: up to what it occupies plus the growth, or what was let grow
    before.
    """
    if (group := pod_group_of(old, directory)) is None:
        return None
    before = ledger.reservations.get(old.uid)
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
    reservations = dict(ledger.reservations)
    for uid in concerned:
        reservation = replace(reservations[uid], seen=occupied.get(uid, NOTHING))
        if uid in gone or reservation.held == NOTHING:
            del reservations[uid]
        else:
            reservations[uid] = reservation
    return Ledger(reservations)


def expire(ledger: Ledger, now: float) -> Ledger:
    """End every reservation whose time has come."""
    if now < ledger.none_ends_before:
        return ledger
    left = {uid: each for uid, each in ledger.reservations.items() if each.expires > now}
    sums = ledger.sums if len(left) == len(ledger.reservations) else None
    return Ledger(left, sums, min((each.expires for each in left.values()), default=inf))


def rebuild(ledger: Ledger, wanted: Mapping[str, Reservation]) -> Ledger:
    """The ledger with reservations that it may lack, conservatively: every pod whose API object asks for more than it is
    charged for.

    wanted: by pod UID, `target` what the API server's pod would occupy, `seen` what it is charged for. Of a pod that has
    a reservation the larger target and the later end count. None is left out, however many there are: what is under way
    is held, and no more is admitted until there is room in the ledger.
    """
    reservations = dict(ledger.reservations)
    for uid, new in wanted.items():
        before = reservations.get(uid, new)
        target = CPUMemory(*map(max, before.target, new.target))
        found = replace(new, target=target, expires=max(before.expires, new.expires))
        if found.held != NOTHING:
            reservations[uid] = found
    return Ledger(reservations) if reservations != ledger.reservations else ledger


def with_reserved(charges: Mapping[str, QueueCharge], ledger: Ledger, directory: Directory) -> dict[str, QueueCharge]:
    """The charges with what is reserved below each queue."""
    return _reserved(charges, ledger.by_queue(), directory, None)


def _reserved(
    charges: Mapping[str, QueueCharge], sums: Sums, directory: Directory, wanted: Collection[str] | None
) -> dict[str, QueueCharge]:
    """The charges with these amounts reserved in each queue and above. wanted: the only queues that matter; None: all."""
    totals: dict[str, list[int]] = {}  # cpu and memory of all work, then of non-preemptible work
    for (queue, preemptible), (cpu_millis, memory_bytes) in sums.items():
        for name in _path(queue, directory):
            held = totals.setdefault(name, [0, 0, 0, 0])
            held[0] += cpu_millis
            held[1] += memory_bytes
            if not preemptible:
                held[2] += cpu_millis
                held[3] += memory_bytes
    result = dict(charges)
    for name in totals if wanted is None else totals.keys() & wanted:
        held = totals[name]
        charge = result.get(name, QueueCharge())
        result[name] = replace(charge, reserved=CPUMemory(*held[:2]), reserved_non_preemptible=CPUMemory(*held[2:]))
    return result


def _path(name: str, directory: Directory) -> list[str]:
    """The names of a queue and its ancestors, as far as they exist; a cycle ends it."""
    path: list[str] = []
    while name not in path and (queue := directory.queues.get(name)) is not None:
        path.append(name)
        name = queue.parent
    return path


def _minus(a: CPUMemory, b: CPUMemory) -> CPUMemory:
    """a - b, not below 0."""
    return CPUMemory(max(0, a.cpu_millis - b.cpu_millis), max(0, a.memory_bytes - b.memory_bytes))
