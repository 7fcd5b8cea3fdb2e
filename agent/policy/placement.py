"""How a container runs under the grants: CPUs, memory nodes, isolation level, CFS quota (KEP-5526, KEP-2625)."""

from __future__ import annotations

from dataclasses import dataclass

from agent.model.cpuset import CPUSet
from agent.model.isolation import Isolation
from agent.model.numa import NodeMask
from agent.model.pod import Pod
from agent.model.state import Blocks, Grants, nodes_of
from agent.policy.eligibility import claims
from agent.policy.feature_gates import FeatureGates


@dataclass(frozen=True, slots=True)
class Placement:
    """One container. assigned: what the state holds for it, None = nothing; cpus: what it runs on.

    quota_disabled: no CFS quota, because its CPUs are its own. mems: NUMA nodes for cpuset.mems, None = not set.
    """

    container: str
    assigned: CPUSet | None
    cpus: CPUSet
    isolation: Isolation
    quota_disabled: bool
    memory: Blocks
    mems: NodeMask | None


def placements(grants: Grants, pod: Pod, gates: FeatureGates) -> tuple[Placement, ...]:
    """Every container of the pod, init containers first, spec order.

    In a bubble only containers with a slice of their own are isolated from the others; the pod's shared pool keeps its
    quota (the rule of KEP-5526, which the 1.36 code does not follow).
    """
    entries = grants.cpu.entries.get(pod.uid, {})
    slices = claims(pod, gates).cpus if pod.uid in grants.cpu.pod_entries else entries
    memory = grants.memory.entries.get(pod.uid, {})
    result = []
    for container in pod.containers:
        assigned = entries.get(container.name)
        isolation = Isolation.HOST
        if assigned is not None:
            isolation = Isolation.CONTAINER if container.name in slices else Isolation.POD
        blocks = memory.get(container.name, ())
        result.append(
            Placement(
                container.name,
                assigned,
                grants.cpu.default if assigned is None else assigned,
                isolation,
                isolation is Isolation.CONTAINER and gates.disable_cpu_quota_with_exclusive_cpus,
                blocks,
                nodes_of(blocks) or None,
            )
        )
    return tuple(result)
