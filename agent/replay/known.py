"""The deliberate differences from the recorded decisions: one table, counted by `replay --check` as known.

Each entry has its reason, and its test and text in docs/differences.md under the same name.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from agent.replay.context import JSONObject


@dataclass(frozen=True, slots=True)
class KnownDifference:
    """name: as in docs/differences.md. applies: (record, our output) -> whether this difference explains the mismatch."""

    name: str
    reason: str
    kinds: frozenset[str]
    applies: Callable[[JSONObject, JSONObject], bool]


_TOO_MANY_NODES = re.compile(r"unsupported on machines with more than \d+ NUMA Nodes")


def _more_numa_nodes(record: JSONObject, output: JSONObject) -> bool:
    want: Any = record.get("want") or {}
    text = want.get("error") or want.get("new_error") or ""
    # a start may still be refused for what comes after the topology manager
    served = (
        "best" in output or "allocatable_cpus" in output or (record.get("kind") == "startup" and output.get("error"))
    )
    return bool(_TOO_MANY_NODES.match(text)) and bool(served)


KNOWN: tuple[KnownDifference, ...] = (
    KnownDifference(
        "more-numa-nodes",
        "hints and merge are bounded here, so machines with more NUMA nodes than upstream allows are served",
        frozenset({"startup", "topology_hints"}),
        _more_numa_nodes,
    ),
)


def known_difference(record: JSONObject, output: JSONObject) -> KnownDifference | None:
    """The entry that explains why `output` is not `want`, if any."""
    return next((d for d in KNOWN if record.get("kind") in d.kinds and d.applies(record, output)), None)
