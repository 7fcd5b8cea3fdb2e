"""What every cgroup would say without pinfold (`pinfold release`): all CPUs and nodes, quotas from the pods' own limits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from agent.model.cpuset import CPUSet
from agent.model.numa import NodeMask
from agent.model.pod import Pod
from agent.model.state import CPUState, Grants, MemoryBlock, MemoryState
from agent.policy.cgroup_intents import Intents, Rules
from agent.policy.removal import holds


def released(grants: Grants, pods: Mapping[str, Pod], rules: Rules, online: CPUSet, nodes: NodeMask) -> Intents:
    """The intents of a node that holds nobody to anything; the grants themselves stay in the state.

    Pods that hold something get the quotas of their limits back too, a kubelet's among them: that is what its own formulas give.
    """
    everywhere = MemoryBlock("memory", 0, nodes)
    bound = {uid: dict.fromkeys(entries, (everywhere,)) for uid, entries in grants.memory.entries.items()}
    owned = rules.owned | {uid for uid in pods if holds(grants, uid)}
    return Intents(
        Grants(CPUState(online), MemoryState(entries=bound)), pods, replace(rules, owned=owned, strict_pod_quota=True)
    )
