"""Which module answers which kind of record. Imported on first use, so that one kind does not pay for the others."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import cast

from agent.replay.context import Handler

MODULES: Mapping[str, str] = {
    kind: f"agent.replay.{kind}"
    for kind in (
        "topology",
        "take_cpus",
        "topology_hints",
        "startup",
        "admission",
        "checkpoint",
        "effective_requests",
        "pod_qos",
        "fair_share",
        "reclaimable",
        "queue_order",
        "resize_admission",
        "capacity_policy",
    )
}


def handler(kind: str) -> Handler | None:
    """The function that answers records of this kind; None where there is no such kind."""
    if kind not in MODULES:
        return None
    return cast(Handler, importlib.import_module(MODULES[kind]).replay)
