"""The annotation `kai.scheduler/numa-placement-observed`: what a pod holds per NUMA zone, as KAI-Scheduler's exporter writes it.

A compact JSON array of zones in the order of their names, amounts as a Kubernetes ResourceList: keys sorted, quantities canonical
in decimal form, because string equality decides whether KAI's own exporter would write again.
"""

from __future__ import annotations

import json

from agent.formats.occupancy import zone_name
from agent.model.occupancy import Holdings
from agent.model.quantity import Quantity

OBSERVED = "kai.scheduler/numa-placement-observed"


def encode_placement(held: Holdings) -> str | None:
    """The value for a pod that holds this; None where it holds nothing in any zone and must not have the annotation."""
    zones = []
    for name, node in sorted((zone_name(node), node) for node in held):
        amounts = {kind: size for kind, size in held[node].memory.items() if size}
        if held[node].cpus:
            amounts["cpu"] = len(held[node].cpus)
        if amounts:
            listed = {kind: str(Quantity.of(amount)) for kind, amount in sorted(amounts.items())}
            zones.append({"zone": name, "amount": listed})
    return json.dumps(zones, separators=(",", ":")) if zones else None
