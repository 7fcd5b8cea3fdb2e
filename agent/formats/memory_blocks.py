"""Memory blocks as programs read them (status, explanations, recorded decisions): sizes in bytes, NUMA ids as a list.

In our own state file they are `agent.formats.grants`.
"""

from __future__ import annotations

from typing import Any

from agent.model.numa import node_ids
from agent.model.state import Blocks


def block_objects(blocks: Blocks) -> list[dict[str, Any]]:
    """One object for each block, in their order."""
    return [{"type": block.type, "size": block.size, "numa": list(node_ids(block.nodes))} for block in blocks]
