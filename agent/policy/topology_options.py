"""Which topology manager can start: policies, scopes, options (kubelet cm/topologymanager, NewManager and NewPolicyOptions)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from agent.errors import BadInputError
from agent.model.numa import NodeMask, node_ids
from agent.policy.go_text import parse_bool, quote

PREFER_CLOSEST = "prefer-closest-numa-nodes"
MAX_ALLOWABLE = "max-allowable-numa-nodes"
DEFAULT_MAX_ALLOWABLE = 8  # the kubelet's default, and the least it accepts
_INTEGER = re.compile(r"[+-]?[0-9]+", re.ASCII)


class TopologyPolicyName(StrEnum):
    """topologyManagerPolicy."""

    NONE = "none"
    BEST_EFFORT = "best-effort"
    RESTRICTED = "restricted"
    SINGLE_NUMA_NODE = "single-numa-node"


class TopologyScope(StrEnum):
    """topologyManagerScope."""

    CONTAINER = "container"
    POD = "pod"


class TopologyOptionError(BadInputError):
    """The topology manager cannot start with this configuration on this machine."""

    hint = "see topologyManagerPolicy, topologyManagerScope and topologyManagerPolicyOptions in the configuration"


@dataclass(frozen=True, slots=True)
class TopologyPolicy:
    """The policy and the options that change a decision. max-allowable-numa-nodes is none: it bounds the kubelet, whose work
    doubles with every node; ours does not.
    """

    name: TopologyPolicyName = TopologyPolicyName.NONE
    prefer_closest_numa_nodes: bool = False
    scope: TopologyScope = TopologyScope.CONTAINER


def validate_topology_options(
    policy: str,
    scope: str,
    options: Mapping[str, str],
    numa_nodes: NodeMask,
    distances: Mapping[int, tuple[int, ...]],
) -> TopologyPolicy:
    """The topology manager's configuration, checked against the machine in the kubelet's order and words.

    distances: NUMA id -> row of the distance file; needed only with prefer-closest-numa-nodes. With policy `none` neither
    scope nor options are looked at. More nodes than max-allowable-numa-nodes are accepted, unlike in the kubelet.
    Raises TopologyOptionError; of several wrong options the first in name order is reported.
    """
    if policy == TopologyPolicyName.NONE:
        return TopologyPolicy()
    prefer_closest = False
    for name in sorted(options):
        if name == PREFER_CLOSEST:
            prefer_closest = _boolean(name, options[name])
        elif name == MAX_ALLOWABLE:
            _check_node_count(name, options[name])
        else:
            raise TopologyOptionError(
                f"unknown Topology Manager Policy option: {quote(name)}",
                hint=f"options are: {MAX_ALLOWABLE}, {PREFER_CLOSEST}",
            )
    if prefer_closest:
        _check_distances(numa_nodes, distances)
    if policy not in list(TopologyPolicyName):
        raise TopologyOptionError(
            f"unknown policy: {quote(policy)}", hint=f"topologyManagerPolicy is one of: {', '.join(TopologyPolicyName)}"
        )
    if scope not in list(TopologyScope):
        raise TopologyOptionError(
            f"unknown scope: {quote(scope)}", hint=f"topologyManagerScope is one of: {', '.join(TopologyScope)}"
        )
    return TopologyPolicy(TopologyPolicyName(policy), prefer_closest, TopologyScope(scope))


def _boolean(name: str, text: str) -> bool:
    try:
        return parse_bool(text)
    except ValueError as error:
        raise TopologyOptionError(f"bad value for option {quote(name)}: {error}", hint="write true or false") from error


def _check_node_count(name: str, text: str) -> None:
    fault = None
    if not _INTEGER.fullmatch(text):
        fault = "invalid syntax"
    elif not -(2**63) <= int(text) < 2**63:
        fault = "value out of range"
    if fault:
        raise TopologyOptionError(
            f"unable to convert policy option to integer {quote(name)}: strconv.Atoi: parsing {quote(text)}: {fault}",
            hint=f"write a number of NUMA nodes, {DEFAULT_MAX_ALLOWABLE} or more",
        )
    if int(text) < DEFAULT_MAX_ALLOWABLE:
        raise TopologyOptionError(
            f"the minimum value of {quote(name)} should not be less than {DEFAULT_MAX_ALLOWABLE}",
            hint=f"leave {MAX_ALLOWABLE} out, or write {DEFAULT_MAX_ALLOWABLE} or more",
        )


def _check_distances(numa_nodes: NodeMask, distances: Mapping[int, tuple[int, ...]]) -> None:
    for node in node_ids(numa_nodes):
        if not distances.get(node):
            raise TopologyOptionError(
                "cannot discover NUMA topology: error getting NUMA distances from cadvisor",
                hint=f"NUMA node {node} reports no distances; leave out {PREFER_CLOSEST} on this machine",
            )
