"""How far a container's CPUs are set apart (KEP-5526)."""

from __future__ import annotations

from enum import StrEnum


class Isolation(StrEnum):
    """What a container's CPUs are set apart from: nothing, the rest of the node, or every other container."""

    HOST = "host"
    POD = "pod"
    CONTAINER = "container"

    @property
    def words(self) -> str:
        """For people, in every text of the commands."""
        return {"host": "shared", "pod": "shared in the pod", "container": "exclusive"}[self]
