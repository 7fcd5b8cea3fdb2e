"""What an accountant knows as JSON, for its query API. Amounts are in the scheduler's units; -1 is unlimited."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from operator import itemgetter
from typing import Any

from agent.model.queue import RESOURCES
from agent.queues.accountant_view import AccountantView
from agent.queues.encode import encode_share, encode_snapshot, encode_step, encode_violation, quantities
from agent.queues.jobs import Job
from agent.queues.ledger import Reservation
from agent.queues.resize_growth import NOTHING, CPUMemory


def moment(seconds: float) -> str:
    """Unix time as RFC 3339."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def encode_view(view: AccountantView) -> dict[str, Any]:
    """Everything that `pinfold queues status` shows, and how far it can be trusted."""
    document = encode_snapshot(view.snapshot, list(view.violations))
    for share in document["queues"]:
        share |= _of_queue(view, share["name"])
    taken = view.capture
    return {
        "time": moment(taken.taken),
        "complete": taken.complete,
        "missingNodes": sorted(taken.missing),
        "staleNodes": sorted(taken.stale_since),
        "statusDiffers": {name: moment(since) for name, since in taken.status_differs.items()},
        **document,
    }


def _of_queue(view: AccountantView, name: str) -> dict[str, Any]:
    found: dict[str, Any] = {"reserved": _cpu_memory(view.reserved.get(name, NOTHING))}
    if name in view.stale:
        found["stale"] = quantities(view.stale[name].allocated.quantities())
    return found


def _cpu_memory(amounts: CPUMemory) -> dict[str, int]:
    return {RESOURCES[0].value: amounts.cpu_millis, RESOURCES[1].value: amounts.memory_bytes}


def encode_queue(view: AccountantView, name: str, jobs: Iterable[Job]) -> dict[str, Any]:
    """One queue: itself, its ancestors up to the root, its children, how its fair share came about, and its jobs."""
    path = [each.name for each in view.tree.path(name)]
    return {
        "time": moment(view.capture.taken),
        "queue": {**encode_share(view.shares[name]), **_of_queue(view, name)},
        "path": [{**encode_share(view.shares[each]), **_of_queue(view, each)} for each in path],
        "children": list(view.tree.children.get(name, ())),
        "fairShare": [encode_step(step) for step in view.fair.derivation(view.tree, name)],
        "violations": [encode_violation(each) for each in view.violations if each.queue in path],
        "reservations": [
            encode_reservation(uid, each)
            for uid, each in view.capture.ledger.reservations.items()
            if name in [above.name for above in view.tree.path(each.queue)]
        ],
        "jobs": [encode_job(job) for job in jobs if job.queue == name],
    }


def encode_job(job: Job) -> dict[str, Any]:
    """A pod group, or a pod without one."""
    return {
        "name": job.name,
        "queue": job.queue,
        "preemptible": job.preemptible,
        "pending": quantities(job.pending),
        "running": [quantities(each) for each in job.running],
    }


def encode_fair_shares(view: AccountantView) -> dict[str, Any]:
    """Fair shares alone, by queue."""
    return {
        "time": moment(view.capture.taken),
        "total": quantities(view.total),
        "fairShare": {name: quantities(share.fair_share) for name, share in view.shares.items()},
    }


def encode_reservations(view: AccountantView) -> dict[str, Any]:
    """Growth that was admitted and that no report shows yet."""
    return {
        "time": moment(view.capture.taken),
        "reservations": [encode_reservation(uid, each) for uid, each in view.capture.ledger.reservations.items()],
        "byQueue": {name: _cpu_memory(amounts) for name, amounts in view.reserved.items()},
    }


def encode_reservation(uid: str, reservation: Reservation) -> dict[str, Any]:
    """One of them. held: what is still to come."""
    return {
        "uid": uid,
        "pod": reservation.pod,
        "queue": reservation.queue,
        "preemptible": reservation.preemptible,
        "target": _cpu_memory(reservation.target),
        "held": _cpu_memory(reservation.held),
        "expires": moment(reservation.expires),
    }


def encode_nodes(view: AccountantView) -> dict[str, Any]:
    """Which nodes are accounted for, and how."""
    taken = view.capture
    return {
        "time": moment(taken.taken),
        "complete": taken.complete,
        "nodes": {
            name: {
                "source": "api" if stamp is None else "report",
                **({} if stamp is None else {"epoch": str(stamp[0]), "generation": stamp[1]}),
                **({"staleSince": moment(taken.stale_since[name])} if name in taken.stale_since else {}),
            }
            for name, stamp in sorted(taken.nodes.items(), key=itemgetter(0))
        },
        "missing": sorted(taken.missing),
        "disagreements": [
            {"node": node, "uid": uid, "since": moment(since)}
            for node, pods in taken.disagreements.items()
            for uid, since in pods.items()
        ],
    }
