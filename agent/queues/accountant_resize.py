"""May a pod be resized, by what an accountant knows: the charges that the check counts, and whether enough is known to judge.

The check itself is `agent.queues.resize_admission`, with reservations `agent.queues.ledger`.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from agent.model.pod import Pod
from agent.queues.accountant import Accountant
from agent.queues.charge import occupies
from agent.queues.ledger import Ledger, admit
from agent.queues.observed_pods import uid_of
from agent.queues.resize_admission import ResizeAnswer, ResizeReason, decide_resize
from agent.queues.resize_bounds import QueueCharge
from agent.queues.resize_growth import CPUMemory
from agent.queues.workloads import pod_group_of


class Unready(StrEnum):
    """Why a resize cannot be judged yet."""

    NO_OBJECTS = "queues and pod groups have not been read yet"
    LEDGER_LOST = "reservations of admitted resizes may have been lost, they are waited for"
    NODES_MISSING = "not every node has reported yet, and Queue.status does not say what the queues hold"


def decide(
    accountant: Accountant, old: Pod, new: Pod, now: float, *, reserve: bool = True
) -> tuple[ResizeAnswer, Unready | None, Ledger]:
    """Whether a pod may be resized, why that cannot be judged yet, and the ledger that is to be kept before it is told.

    With an Unready the answer is the best that can be said. reserve: False only asks. Changes nothing.
    """
    group = pod_group_of(old, accountant.directory)
    queue = "" if group is None else group.queue
    path = [each.name for each in accountant.accounting.totals.tree.path(queue)]
    charges, options = _charges(accountant, path, now), accountant.options
    if options.ledger is None:
        answer, ledger = decide_resize(old, new, accountant.directory, options.resize, charges), accountant.ledger
    else:
        args = (accountant.directory, options.resize, options.ledger, charges, _seen(accountant, old), now)
        answer, ledger = admit(accountant.ledger, old, new, *args)
    unready = _unready(accountant, queue, now) if _depends_on_charges(accountant, answer) else None
    return answer, unready, ledger if reserve else accountant.ledger


def _charges(accountant: Accountant, names: Iterable[str], now: float) -> dict[str, QueueCharge]:
    """What the resize check counts for these queues, reservations apart."""
    complete, totals, watch = accountant.is_complete(now), accountant.accounting.totals, accountant.status_watch
    return {
        name: watch.charge(queue, totals.of(name), complete=complete, now=now)
        for name in names
        if (queue := accountant.directory.queues.get(name)) is not None
    }


def _unready(accountant: Accountant, queue: str, now: float) -> Unready | None:
    """Why growth in this queue cannot be judged yet; None where it can."""
    if not accountant.has_objects:
        return Unready.NO_OBJECTS
    if accountant.ledger_watch.is_lost(now):
        return Unready.LEDGER_LOST
    if accountant.is_complete(now):
        return None
    path = accountant.accounting.totals.tree.path(queue)
    return None if all(each.status.allocated for each in path) else Unready.NODES_MISSING


def _depends_on_charges(accountant: Accountant, answer: ResizeAnswer) -> bool:
    """Whether the answer could be another one if more were known. A rejection stands: charges only grow with knowledge."""
    if not accountant.has_objects:
        return answer.reason is ResizeReason.POD_GROUP_NOT_FOUND and bool(answer.delta)
    return answer.reason is ResizeReason.FITS


def _seen(accountant: Accountant, old: Pod) -> CPUMemory:
    """What the pod is charged for; where only the queue's status counts it, what it occupies."""
    charge = accountant.accounting.charge_of(uid_of(old))
    return occupies(old) if charge is None else charge.allocated.cpu_memory()
