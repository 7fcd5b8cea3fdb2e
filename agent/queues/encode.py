"""Answers of the queue rules as JSON, for `-o json` and the query API: names as in KAI's objects where it has them.

Amounts are in the scheduler's units (millicores, bytes, devices); -1 is unlimited.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agent.model.queue import RESOURCES, QueueShare, ResourceQuantities
from agent.queues.derivation import Step
from agent.queues.reclaim_search import ReclaimProposal
from agent.queues.resize_admission import ResizeAnswer
from agent.queues.simulation import Event, Outcome
from agent.queues.snapshot import Snapshot
from agent.queues.take_back import TakeBack
from agent.queues.violations import Violation


def number(amount: float) -> float:
    """A whole amount without a fraction."""
    return int(amount) if amount.is_integer() else amount


def quantities(amounts: ResourceQuantities) -> dict[str, float]:
    """By resource name."""
    return {resource.value: number(amount) for resource, amount in zip(RESOURCES, amounts, strict=True)}


def encode_step(step: Step) -> dict[str, Any]:
    """One step of a derivation."""
    return {
        "rule": step.rule.name,
        "says": str(step.rule),
        "queue": step.queue,
        "holds": step.holds,
        **({"resource": step.resource.value} if step.resource is not None else {}),
        **({"amounts": {label: number(amount) for label, amount in step.amounts}} if step.amounts else {}),
        **({"values": dict(step.values)} if step.values else {}),
    }


def encode_share(share: QueueShare) -> dict[str, Any]:
    """One queue with everything that is charged to it and due to it."""
    queue = share.queue
    return {
        "name": queue.name,
        "displayName": queue.display_name,
        "parentQueue": queue.parent,
        "priority": queue.priority,
        "allocated": quantities(share.allocated),
        "allocatedNonPreemptible": quantities(share.allocated_non_preemptible),
        "requested": quantities(share.request),
        "quota": quantities(queue.deserved),
        "limit": quantities(queue.limit),
        "overQuotaWeight": quantities(queue.over_quota_weight),
        "fairShare": quantities(share.fair_share),
    }


def encode_violation(violation: Violation) -> dict[str, Any]:
    """A bound that is passed."""
    return {
        "queue": violation.queue,
        "resource": violation.resource.value,
        "boundKind": violation.bound_kind.value,
        "held": number(violation.held),
        "bound": number(violation.bound),
    }


def encode_snapshot(snapshot: Snapshot, found: list[Violation]) -> dict[str, Any]:
    """`pinfold queues status`."""
    return {
        "total": quantities(snapshot.total),
        "fromStatus": snapshot.from_status,
        "queues": [encode_share(share) for share in snapshot.shares.values()],
        "violations": [encode_violation(each) for each in found],
        "unknownQueues": {
            name: {"pods": totals.pods, "allocated": quantities(totals.allocated.quantities())}
            for name, totals in snapshot.unknown.items()
        },
        "problems": [str(problem) for problem in snapshot.problems],
    }


def encode_resize(answer: ResizeAnswer) -> dict[str, Any]:
    """`pinfold queues check-resize`."""
    rejection = answer.rejection
    return {
        "allowed": answer.allowed,
        "reason": answer.reason.name,
        "message": answer.message,
        "delta": {name: str(amount) for name, amount in answer.delta.items()},
        "podAllocated": answer.pod_allocated,
        **({"preemptible": answer.preemptible} if answer.preemptible is not None else {}),
        **({"podGroup": answer.group.name, "queue": answer.group.queue} if answer.group is not None else {}),
        **(
            {
                "rejection": {
                    "queue": rejection.queue,
                    "resource": rejection.resource.value,
                    "boundKind": rejection.bound_kind.value,
                    "mode": rejection.mode.value,
                    "allocatedKind": rejection.allocated_kind,
                    "allocated": rejection.allocated,
                    "reserved": rejection.reserved,
                    "delta": rejection.delta,
                    "bound": number(rejection.bound),
                    "room": rejection.room,
                }
            }
            if rejection is not None
            else {}
        ),
        "steps": [encode_step(step) for step in answer.steps],
    }


def encode_proposal(job: str, proposal: ReclaimProposal) -> dict[str, Any]:
    """`pinfold queues reclaim`."""
    decision = proposal.decision
    return {
        "job": job,
        "queue": proposal.reclaimer.queue,
        "request": quantities(proposal.reclaimer.resources),
        "possible": proposal.possible,
        "lacking": quantities(proposal.lacking),
        "canReclaim": {"allowed": decision.gate.allowed, "steps": [encode_step(step) for step in decision.gate.steps]},
        "candidates": {
            name: {"allowed": verdict.allowed, "steps": [encode_step(step) for step in verdict.steps]}
            for name, verdict in proposal.candidates.items()
        },
        "victims": [
            {"job": piece.job.name, "queue": piece.job.queue, "resources": quantities(piece.resources)}
            for piece in proposal.pieces
        ],
        "steps": [encode_step(step) for step in decision.steps],
        "takeBacks": [encode_take_back(each) for each in decision.take_backs],
    }


def encode_take_back(found: TakeBack) -> dict[str, Any]:
    """A way in which victims could undo a reclaim."""
    return {
        "kind": found.kind.value,
        "queue": found.queue,
        "resources": quantities(found.resources),
        "releasedBy": [strategy.value for strategy in found.released_by],
        "by": [strategy.value for strategy in found.by],
    }


def encode_event(event: Event) -> dict[str, Any]:
    """A job that starts in a simulation."""
    return {
        "round": event.round,
        "kind": event.kind.value,
        "job": event.job,
        "queue": event.queue,
        "victims": list(event.victims),
        "strategies": [strategy.value for strategy in event.strategies],
        "takeBacks": [encode_take_back(each) for each in event.take_backs],
    }


def encode_outcome(outcome: Outcome, take_backs: Mapping[str, int]) -> dict[str, Any]:
    """`pinfold queues simulate`."""
    return {
        "rounds": outcome.rounds,
        "looped": outcome.looped,
        "takeBacks": dict(take_backs),
        "events": [encode_event(event) for event in outcome.events],
        "waiting": {job.name: quantities(job.pending) for job in outcome.jobs if any(job.pending)},
        "queues": [encode_share(share) for share in outcome.shares.values()],
    }
