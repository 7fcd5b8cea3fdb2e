"""The queue tree: built from any collection of queues, refusing by name those that cannot be part of one.

Refused queues take their descendants with them, as in KAI-Scheduler; everything else goes on.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from agent.model.queue import MAX_AMOUNT, RESOURCES, UNLIMITED, Queue, QueueShare, QueueShares


class Refusal(StrEnum):
    """Why a queue is not part of the tree."""

    DUPLICATE = "duplicate"
    NAMELESS = "nameless"
    NUMBER = "number"
    CYCLE = "cycle"
    MISSING_PARENT = "missing-parent"
    REFUSED_PARENT = "refused-parent"


@dataclass(frozen=True, slots=True)
class QueueProblem:
    """A queue that was refused, why, and what to do about it."""

    queue: str
    refusal: Refusal
    message: str
    hint: str

    def __str__(self) -> str:
        return f"queue {self.queue}: {self.message}"


@dataclass(frozen=True, slots=True)
class QueueTree:
    """Queues by name, in the order parents before children; `children` of "" are the top-level queues. Siblings are
    sorted by name.
    """

    queues: Mapping[str, Queue]
    children: Mapping[str, tuple[str, ...]]

    def path(self, name: str) -> tuple[Queue, ...]:
        """The queue and its ancestors, leaf to root; empty for an unknown name."""
        path = []
        while (queue := self.queues.get(name)) is not None:
            path.append(queue)
            name = queue.parent
        return tuple(path)

    def is_leaf(self, name: str) -> bool:
        """Whether the queue has no children."""
        return not self.children.get(name)


def ancestry(shares: QueueShares, name: str) -> list[QueueShare]:
    """The share of a queue and of its ancestors, leaf to root; empty for an unknown name. A cycle ends the walk."""
    path: list[QueueShare] = []
    seen: set[str] = set()
    while name not in seen and (share := shares.get(name)) is not None:
        seen.add(name)
        path.append(share)
        name = share.queue.parent
    return path


def build(queues: Iterable[Queue]) -> tuple[QueueTree, tuple[QueueProblem, ...]]:
    """The tree of these queues, and those refused, in the order given.

    Of several queues of one name the first stays. Refused: a name given twice or empty, a number that is not one, a
    cycle (every queue on it), a parent that does not exist, and the descendants of all these.
    """
    accepted: dict[str, Queue] = {}
    problems: list[QueueProblem] = []
    bad_numbers: dict[str, str] = {}
    for queue in queues:
        if not queue.name:
            problems.append(_problem(queue, Refusal.NAMELESS, "a queue without a name", "set metadata.name"))
        elif queue.name in accepted:
            problems.append(
                _problem(queue, Refusal.DUPLICATE, "given more than once, the first one counts", "remove one of them")
            )
        else:
            accepted[queue.name] = queue
            if (reason := _bad_number(queue)) is not None:
                bad_numbers[queue.name] = reason
    refused = dict.fromkeys(bad_numbers, Refusal.NUMBER)
    rooted: set[str] = set()
    for name in accepted:
        _settle(name, accepted, refused, rooted)
    for name, queue in accepted.items():
        if name in refused:
            problems.append(_explain(queue, refused[name], bad_numbers.get(name, "")))
    return _ordered({name: queue for name, queue in accepted.items() if name not in refused}), tuple(problems)


def _settle(name: str, queues: Mapping[str, Queue], refused: dict[str, Refusal], rooted: set[str]) -> None:
    """Follow the parents of one queue: every queue on the way has a root, or is refused."""
    walked: dict[str, int] = {}
    while name and name not in rooted and name not in refused and name in queues and name not in walked:
        walked[name] = len(walked)
        name = queues[name].parent
    if not name or name in rooted:
        rooted.update(walked)
        return
    chain = list(walked)
    if name in walked:
        for member in chain[walked[name] :]:
            refused[member] = Refusal.CYCLE
    elif name not in queues:
        refused[chain[-1]] = Refusal.MISSING_PARENT
    for member in chain:
        refused.setdefault(member, Refusal.REFUSED_PARENT)


def _bad_number(queue: Queue) -> str | None:
    for kind, amounts in (
        ("quota", queue.deserved),
        ("limit", queue.limit),
        ("overQuotaWeight", queue.over_quota_weight),
    ):
        for resource, amount in zip(RESOURCES, amounts, strict=True):
            if not math.isfinite(amount) or abs(amount) >= MAX_AMOUNT:
                return f"{resource} {kind} {amount} is not a usable number"
            if amount < 0 and kind == "overQuotaWeight":
                return f"{resource} overQuotaWeight {amount:g} is negative"
    return None


def _problem(queue: Queue, refusal: Refusal, message: str, hint: str) -> QueueProblem:
    return QueueProblem(queue.name, refusal, message, hint)


def _explain(queue: Queue, refusal: Refusal, reason: str) -> QueueProblem:
    match refusal:
        case Refusal.NUMBER:
            return _problem(
                queue, refusal, reason, f"write a finite number, {UNLIMITED:g} for unlimited quota or limit"
            )
        case Refusal.CYCLE:
            return _problem(
                queue,
                refusal,
                f"is its own ancestor through parent {queue.parent}",
                "give one queue of the cycle another parent",
            )
        case Refusal.MISSING_PARENT:
            return _problem(
                queue, refusal, f"parent {queue.parent} does not exist", "create the parent or correct parentQueue"
            )
        case _:
            return _problem(queue, refusal, f"parent {queue.parent} was refused", "correct the parent first")


def _ordered(queues: Mapping[str, Queue]) -> QueueTree:
    children: dict[str, list[str]] = {}
    for name in sorted(queues):
        children.setdefault(queues[name].parent, []).append(name)
    return QueueTree(
        {name: queues[name] for name in _walk(children)},
        {parent: tuple(names) for parent, names in children.items()},
    )


def _walk(children: Mapping[str, Iterable[str]]) -> Iterator[str]:
    """All names, parents before children."""
    level = list(children.get("", ()))
    while level:
        yield from level
        level = [child for name in level for child in children.get(name, ())]
