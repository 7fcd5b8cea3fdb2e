"""The topology manager: many providers' hints become one (kubelet cm/topologymanager, policies and HintMerger)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from agent.model.numa import NodeMask
from agent.policy.hint_family import Hint, ProviderHints
from agent.policy.topology_options import TopologyPolicy


@dataclass(frozen=True, slots=True)
class Considered:
    """What one provider said of one resource.

    provider: its place in the order of providers. resource: "" where the provider said nothing at all.
    narrowest: nodes in its narrowest mask, None = any node will do. possible: False where it sees no placement.
    preferred: whether any of its hints is preferred. decided: whether the result would be better without it.
    """

    provider: int
    resource: str
    narrowest: int | None
    possible: bool
    preferred: bool
    decided: bool = False


@dataclass(frozen=True, slots=True)
class Merged:
    """The merged hint. exact: False where the work budget ended first: then it is safe, but maybe not the kubelet's choice."""

    best: Hint
    admit: bool
    exact: bool = True
    considered: tuple[Considered, ...] = ()


def merge(
    numa_nodes: NodeMask,
    distances: Mapping[int, tuple[int, ...]],
    policy: TopologyPolicy,
    providers: Sequence[ProviderHints],
) -> Merged:
    """The best hint of all providers together, and whether the policy admits it."""
    raise NotImplementedError
