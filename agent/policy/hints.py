"""What the CPU and memory managers say of NUMA placement (kubelet cm/cpumanager and cm/memorymanager, policy_static.go).

How they say it is `agent.policy.hint_family`; what becomes of it is `agent.policy.topology_manager`.
"""

from __future__ import annotations

from collections.abc import Mapping

from agent.model.cpuset import CPUSet
from agent.model.machine import CPUTopology
from agent.model.numa import NodeMask
from agent.model.state import NUMANodeState
from agent.policy.hint_family import CapacityHints, Hint, ProviderHints, ResourceHints

__all__ = ["CapacityHints", "Hint", "ProviderHints", "ResourceHints", "cpu_hints", "enumerate_hints", "memory_hints"]


def cpu_hints(topology: CPUTopology, available: CPUSet, reusable: CPUSet, n: int, *, align_by_socket: bool) -> ResourceHints:
    """Where `n` exclusive CPUs can come from. An empty tuple: nowhere."""
    raise NotImplementedError


def memory_hints(
    machine: Mapping[int, NUMANodeState], request: Mapping[str, int], reusable: Mapping[NodeMask, Mapping[str, int]]
) -> dict[str, ResourceHints]:
    """Where the requested memory can come from: resource -> hints, the same for each. Empty: nowhere, which is no preference."""
    raise NotImplementedError


def enumerate_hints(hints: ResourceHints) -> tuple[Hint, ...]:
    """Every hint, listed. Exponential in the number of NUMA nodes: for replay and explain on small machines."""
    raise NotImplementedError
