"""The topology manager: many providers' hints become one (kubelet cm/topologymanager, policies and HintMerger)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from agent.model.cpuset import bits
from agent.model.numa import NodeMask
from agent.policy.hint_family import CapacityHints, Found, Hint, Offer, ProviderHints, ResourceHints
from agent.policy.hint_search import CommonMasks
from agent.policy.numa_distances import NUMADistances, numa_distances
from agent.policy.topology_options import TopologyPolicy, TopologyPolicyName


@dataclass(frozen=True, slots=True)
class Considered:
    """What one provider said of one resource. provider: its place in their order. resource: "" where it said nothing."""

    provider: int
    resource: str
    hints: ResourceHints


@dataclass(frozen=True, slots=True)
class Merged:
    """The merged hint.

    exact: False where the work budget ended first: what is granted is right, but the kubelet may have chosen other nodes, or
    have found a preferred hint where none is given here.
    """

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
    """The best hint of all providers together, and whether the policy admits it.

    numa_nodes: every node of the machine. distances: NUMA id -> row of the distance file.
    A combination takes one hint of every resource. Its mask is the intersection of their masks; it is preferred if all its
    hints are and their masks are equal. Preferred combinations win, narrowest first. Among the others the mask should have as
    many nodes as the resource that needs the most. Saying nothing, or no preference, means any node; an impossible resource
    means any node, not preferred. With policy `none` nothing is merged.
    """
    considered = tuple(_consider(providers))
    if policy.name is TopologyPolicyName.NONE:
        return Merged(Hint(None, False), True, considered=considered)
    single = policy.name is TopologyPolicyName.SINGLE_NUMA_NODE
    offers = [_offer(item.hints) for item in considered]
    if single:
        best, exact = _best_single(offers, numa_nodes), True
    else:
        closest = numa_distances(numa_nodes, distances) if policy.prefer_closest_numa_nodes else None
        best, exact = _best(offers, numa_nodes, closest)
    for item in considered:
        if isinstance(item.hints, CapacityHints):
            exact &= item.hints.exact
    if single and best.affinity == numa_nodes:
        best = replace(best, affinity=None)
    admit = policy.name is TopologyPolicyName.BEST_EFFORT or best.preferred
    return Merged(best, admit, exact, considered)


def _consider(providers: Sequence[ProviderHints]) -> list[Considered]:
    considered = []
    for rank, provider in enumerate(providers):
        if provider:
            considered += [Considered(rank, resource, hints) for resource, hints in provider.items()]
        else:
            considered.append(Considered(rank, "", None))
    return considered


def _offer(hints: ResourceHints) -> Offer:
    if hints is None:
        return Offer(anywhere=True, anywhere_preferred=True)
    if isinstance(hints, CapacityHints):
        return Offer(hints)
    if not hints:
        return Offer(anywhere=True)
    return Offer(
        hints=tuple(hint for hint in hints if hint.affinity is not None),
        anywhere=any(hint.affinity is None for hint in hints),
        anywhere_preferred=any(hint.affinity is None and hint.preferred for hint in hints),
    )


def _best(offers: Sequence[Offer], numa_nodes: NodeMask, distances: NUMADistances | None) -> tuple[Hint, bool]:
    named = [offer for offer in offers if offer.hints]
    exact = True
    search = CommonMasks(named, numa_nodes, distances)
    if named and all(offer.hints or offer.anywhere_preferred for offer in offers):
        found = search.best_preferred()
        exact = found.exact
        if found.mask is not None:
            return Hint(found.mask, True), exact
    if all(offer.anywhere_preferred for offer in offers):
        return Hint(numa_nodes, True), exact
    found = search.best_intersection() if named else Found(numa_nodes)
    return Hint(numa_nodes if found.mask is None else found.mask, False), exact and found.exact


def _best_single(offers: Sequence[Offer], numa_nodes: NodeMask) -> Hint:
    """Only preferred hints of one node or of any node count: a node works if every resource has it or takes any."""
    for node in bits(numa_nodes):
        having = [_prefers_node(offer, 1 << node) for offer in offers]
        if any(having) and all(has or offer.anywhere_preferred for has, offer in zip(having, offers, strict=True)):
            return Hint(1 << node, True)
    return Hint(numa_nodes, all(offer.anywhere_preferred for offer in offers))


def _prefers_node(offer: Offer, node: NodeMask) -> bool:
    if isinstance(offer.hints, CapacityHints):
        return offer.hints.prefers(node) and offer.hints.admits(node)
    return any(hint.preferred and hint.affinity == node for hint in offer.hints)


def deciding(merged: Merged, numa_nodes: NodeMask, policy: TopologyPolicy) -> tuple[Considered, ...]:
    """The resources that keep the best hint from being preferred; none where it is, or where nothing was merged.

    They are those that have no preferred hint themselves (under single-numa-node: none of one node). Where each of them has
    one, it is all that name nodes, for they have none in common.
    """
    if merged.best.preferred or policy.name is TopologyPolicyName.NONE:
        return ()
    restricting = [(item, offer) for item in merged.considered if not (offer := _offer(item.hints)).anywhere_preferred]
    if policy.name is TopologyPolicyName.SINGLE_NUMA_NODE:
        able = [any(_prefers_node(offer, 1 << node) for node in bits(numa_nodes)) for _, offer in restricting]
    else:
        able = [
            bool(offer.hints) and CommonMasks([offer], numa_nodes, None).best_preferred().mask is not None
            for _, offer in restricting
        ]
    alone = tuple(item for (item, _), can in zip(restricting, able, strict=True) if not can)
    return alone or tuple(item for item, _ in restricting)
