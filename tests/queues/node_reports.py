"""Node reports as agents send them, without an agent."""

from __future__ import annotations

from agent.queues.node_report import NodeReport


def changes(before: NodeReport, after: NodeReport) -> NodeReport:
    """The difference between two full reports of a node, `before` being the one that was acknowledged last."""
    return NodeReport(
        after.node,
        after.stamp,
        before.stamp,
        {uid: pod for uid, pod in after.pods.items() if before.pods.get(uid) != pod},
        tuple(uid for uid in before.pods if uid not in after.pods),
        {} if before.allocatable == after.allocatable else after.allocatable,
        after.boot_id,
    )
