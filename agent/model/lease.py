"""A Lease as an election reads and writes it (coordination.k8s.io/v1)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LeaseRecord:
    """holder: holderIdentity, "" where nobody has it. duration_seconds: 0 where it is not said. acquired, renewed: RFC 3339
    texts by the holder's clock, for people. transitions: how often the holder changed. version: resourceVersion, "" before it
    is written.
    """

    holder: str
    duration_seconds: int
    acquired: str
    renewed: str
    transitions: int
    version: str = ""
