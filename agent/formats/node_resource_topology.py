"""The NodeResourceTopology object of a node (topology.node.k8s.io/v1alpha2): NUMA zones with what they have and what is left.

Conventions of the field: a zone per NUMA node called `node-<id>`, type `Node`; costs are the ACPI distances; allocatable is
capacity without what is reserved there, available is allocatable without what is held exclusively.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agent.formats.occupancy import zone_name
from agent.formats.pods_fingerprint import ATTRIBUTE, METHOD_ATTRIBUTE, fingerprint
from agent.model.occupancy import Amounts, NodePolicies, Occupancy, Zone
from agent.model.quantity import Quantity

API_VERSION = "topology.node.k8s.io/v1alpha2"
KIND = "NodeResourceTopology"
PLURAL = "noderesourcetopologies"

# what `topologyPolicies`, deprecated and still read as a fallback, calls a policy in a scope
_DEPRECATED: Mapping[str, Mapping[str, str]] = {
    "none": {"container": "None", "pod": "None"},
    "best-effort": {"container": "BestEffortContainerLevel", "pod": "BestEffortPodLevel"},
    "restricted": {"container": "RestrictedContainerLevel", "pod": "RestrictedPodLevel"},
    "single-numa-node": {"container": "SingleNUMANodeContainerLevel", "pod": "SingleNUMANodePodLevel"},
}


def encode_node_resource_topology(
    report: Occupancy, *, node_uid: str = "", pods_fingerprint: bool = False
) -> dict[str, Any]:
    """The object as an API server takes it. node_uid: of the Node object that shall own it; "" for no owner.

    pods_fingerprint: also say which pods it is about, for schedulers that reserve beyond what they see here.
    """
    metadata: dict[str, Any] = {"name": report.node}
    if node_uid:
        owner = {"apiVersion": "v1", "kind": "Node", "name": report.node, "uid": node_uid}
        metadata["ownerReferences"] = [owner]
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": metadata,
        "topologyPolicies": [_DEPRECATED[report.policies.topology][report.policies.scope]],
        "attributes": [*_attributes(report.policies), *(_fingerprint(report) if pods_fingerprint else ())],
        "zones": [_zone(zone) for zone in report.zones],
    }


def _attributes(policies: NodePolicies) -> list[dict[str, str]]:
    named = {
        "topologyManagerPolicy": policies.topology,
        "topologyManagerScope": policies.scope,
        "cpuManagerPolicy": policies.cpu,
        "memoryManagerPolicy": policies.memory,
    }
    return [{"name": name, "value": value} for name, value in named.items()]


def _fingerprint(report: Occupancy) -> list[dict[str, str]]:
    pods = ((pod.namespace, pod.name) for pod in report.pods.values())
    return [{"name": ATTRIBUTE, "value": fingerprint(pods)}, {"name": METHOD_ATTRIBUTE, "value": "all"}]


def _zone(zone: Zone) -> dict[str, Any]:
    return {
        "name": zone_name(zone.node),
        "type": "Node",
        "costs": [{"name": zone_name(node), "value": distance} for node, distance in zone.distances.items()],
        "resources": [{"name": name, **_amounts(amounts)} for name, amounts in zone.resources.items()],
    }


def _amounts(amounts: Amounts) -> dict[str, str]:
    """Never negative, and never more allocatable than capacity, also while a node holds more than it has left."""
    available = max(min(amounts.free, amounts.allocatable), 0)
    return {
        "capacity": str(Quantity.of(max(amounts.capacity, amounts.allocatable))),
        "allocatable": str(Quantity.of(amounts.allocatable)),
        "available": str(Quantity.of(available)),
    }
