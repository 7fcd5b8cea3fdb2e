"""A derivation as lines for people and as JSON for programs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from agent.formats.memory_blocks import block_objects
from agent.model.numa import node_ids, union_of
from agent.model.state import Grants
from agent.policy.feature_gates import FeatureGates
from agent.policy.hint_family import CapacityHints, Hint, ResourceHints
from agent.policy.hints import enumerate_hints
from agent.policy.placement import placements
from agent.policy.reasons import Derivation, NUMAReport, aligned_nodes

_MIB = 2**20
_LISTED_NODES = 4  # with more, the hints are described instead of listed
_LISTED_PLACES = 6


def render(derivation: Derivation, grants: Grants, gates: FeatureGates) -> Iterator[str]:
    """Lines for people. grants: those after the verdict."""
    pod = derivation.pod
    if derivation.admitted:
        yield f"pod {pod.namespaced_name}  {derivation.claims.qos}, admitted"
        for placed in placements(grants, pod, gates):
            memory = "".join(
                f"  {block.type} {_amount(block.type, block.size)} on {aligned_nodes(block.nodes)}"
                for block in placed.memory
            )
            yield f"  {placed.container}  cpus {placed.cpus or '-'} ({placed.isolation.words}){memory}"
    else:
        yield f"pod {pod.namespaced_name}  {derivation.claims.qos}, refused"
        yield f"  {derivation.reason}: {derivation.message}"
    yield f"  rule: {derivation.rule}"
    for report in derivation.resources:
        yield f"  {report.resource}: asked {_amount(report.resource, report.asked)}"
        for node in report.nodes:
            yield f"    NUMA {node.node}: {_node(report.resource, node)}"
    for step in derivation.merges:
        yield f"  alignment of {step.container or 'the pod'}: {_hint(step.merged.best)}"
        for said in step.merged.considered:
            if said.resource:
                yield f"    {said.resource}: {_said(said.hints)}"
    if not derivation.exact:
        yield "  the search ran out of its work budget: the answer is safe, but may not be the best one"
    if derivation.hint:
        yield f"  hint: {derivation.hint}"
    if derivation.nearest is not None:
        near = derivation.nearest
        who = f"container {near.container}" if near.container else "the pod"
        fits, asked = _amount(near.resource, near.fits), _amount(near.resource, near.asked)
        yield f"  would fit: {near.resource} {fits} instead of {asked} for {who}"
    if derivation.pods_in_the_way:
        yield f"  would fit without any one of: {', '.join(derivation.pods_in_the_way)}"
    if derivation.all_in_the_way:
        yield f"  would fit without all of: {', '.join(derivation.all_in_the_way)}"


def encode(derivation: Derivation, grants: Grants, gates: FeatureGates) -> dict[str, Any]:
    """The same as JSON. CPU sets in kernel form, memory in bytes."""
    near = derivation.nearest
    return {
        "pod": derivation.pod.namespaced_name,
        "qos": str(derivation.claims.qos),
        "admitted": derivation.admitted,
        "reason": derivation.reason,
        "message": derivation.message,
        "rule": derivation.rule,
        "hint": derivation.hint,
        "exact": derivation.exact,
        "containers": [
            {
                "name": placed.container,
                "cpus": str(placed.cpus),
                "isolation": str(placed.isolation),
                "memory": block_objects(placed.memory),
            }
            for placed in (placements(grants, derivation.pod, gates) if derivation.admitted else ())
        ],
        "resources": [
            {
                "resource": report.resource,
                "asked": report.asked,
                "nodes": [
                    {"numa": n.node, "capacity": n.capacity, "free": n.free, "held": dict(n.held)} for n in report.nodes
                ],
            }
            for report in derivation.resources
        ],
        "merges": [
            {
                "container": step.container,
                "best": _encode_hint(step.merged.best),
                "admit": step.merged.admit,
                "providers": [
                    {resource: _encode_hints(hints) for resource, hints in (provider or {}).items()}
                    for provider in step.providers
                ],
            }
            for step in derivation.merges
        ],
        "nearest": None
        if near is None
        else {"container": near.container, "resource": near.resource, "asked": near.asked, "fits": near.fits},
        "podsInTheWay": list(derivation.pods_in_the_way),
        "allInTheWay": list(derivation.all_in_the_way),
    }


def _amount(resource: str, amount: int) -> str:
    return f"{amount}" if resource == "cpu" else f"{amount / _MIB:g} MiB"


def _node(resource: str, node: NUMAReport) -> str:
    held = ", ".join(f"{owner} {_amount(resource, amount)}" for owner, amount in sorted(node.held.items()))
    free, capacity = _amount(resource, node.free), _amount(resource, node.capacity)
    return f"{free} free of {capacity}" + (f"; held by {held}" if held else "")


def _hint(hint: Hint) -> str:
    return f"{aligned_nodes(hint.affinity)}{'' if hint.preferred else ', not preferred'}"


def _said(hints: ResourceHints) -> str:
    """One resource's hints in a phrase: where it could go, and how wide that must be."""
    if hints is None:
        return "any NUMA node"
    if isinstance(hints, CapacityHints):
        if (hints.nodes | union_of(hints.others)).bit_count() > _LISTED_NODES:
            return f"{_rule(hints)}{_others(hints)}" if hints.is_open() or hints.others else "nowhere"
        hints = enumerate_hints(hints)
    if not hints:
        return "nowhere"
    preferred = [aligned_nodes(hint.affinity) for hint in hints if hint.preferred]
    others = [aligned_nodes(hint.affinity) for hint in hints if not hint.preferred]
    return f"preferred on {_either(preferred)}; possible on {_either(others)}"


def _rule(hints: CapacityHints) -> str:
    here = f"containing {aligned_nodes(hints.required)}, " if hints.required else ""
    return f"within {aligned_nodes(hints.nodes)}, {here}preferred on {hints.preferred_size} node(s)"


def _others(hints: CapacityHints) -> str:
    return f", or on {_either([aligned_nodes(mask) for mask in hints.others])}" if hints.others else ""


def _either(places: Sequence[str]) -> str:
    listed = " or ".join(place.removeprefix("NUMA ") for place in places[:_LISTED_PLACES])
    return f"NUMA {listed}{' or others' if len(places) > _LISTED_PLACES else ''}" if places else "none"


def _encode_hint(hint: Hint) -> Mapping[str, Any]:
    nodes = None if hint.affinity is None else list(node_ids(hint.affinity))
    return {"nodes": nodes, "preferred": hint.preferred}


def _encode_hints(hints: ResourceHints) -> Any:
    """Explicit hints as a list; a family by its rule, since listing it is exponential in the NUMA nodes."""
    if hints is None:
        return None
    if isinstance(hints, CapacityHints):
        return {
            "nodes": list(node_ids(hints.nodes)),
            "containing": list(node_ids(hints.required)),
            "preferredSize": hints.preferred_size,
            "needs": [{"atLeast": need.at_least, "have": dict(need.amounts)} for need in hints.needs],
        }
    return [_encode_hint(hint) for hint in hints]
