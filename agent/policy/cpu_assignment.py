"""Which CPUs: the one door to picking CPUs out of free ones, by the kubelet's rules (cm/cpumanager/cpu_assignment.go).

How: `agent.policy.cpu_packed` keeps CPUs together, `agent.policy.cpu_distributed` spreads them evenly over NUMA nodes.
"""

from __future__ import annotations

from dataclasses import dataclass

from agent.errors import AgentError
from agent.model.cpuset import CPUSet
from agent.model.machine import CPUTopology
from agent.policy.cpu_distributed import pick_distributed
from agent.policy.cpu_packed import pick_packed


@dataclass(frozen=True, slots=True)
class PickOptions:
    """How the static policy picks.

    distribute_across_numa: the algorithm of distribute-cpus-across-numa. spread_cores: the order of
    distribute-cpus-across-cores. prefer_uncore: prefer-align-cpus-by-uncorecache; packed only. cpu_group_size: CPUs that
    stay together when distributing, the SMT width where full-pcpus-only is on too, else 1.
    """

    distribute_across_numa: bool = False
    spread_cores: bool = False
    prefer_uncore: bool = False
    cpu_group_size: int = 1


class NotEnoughCPUs(AgentError):  # noqa: N818 - the answer is no; nothing broke
    """Fewer CPUs are free than asked for. The text is the kubelet's."""

    exit_status = 1
    hint = "ask for fewer CPUs, or wait until other pods end"

    def __init__(self, requested: int, available: int) -> None:
        super().__init__(f"not enough cpus available to satisfy request: requested={requested}, available={available}")


def take_cpus(
    topology: CPUTopology, available: CPUSet, n: int, options: PickOptions, *, min_numa_nodes: int = 0
) -> CPUSet:
    """Pick n of the available CPUs.

    min_numa_nodes: distribute over at least this many NUMA nodes where they can share evenly; what a mask forced by devices
    asks for (kubernetes/kubernetes#139430). 0 is the kubelet's rule: as few as possible.
    Raises NotEnoughCPUs where fewer than n CPUs of the machine are available.
    """
    free = available.mask & topology.all.mask
    if n <= 0:
        return CPUSet()
    if free.bit_count() < n:
        raise NotEnoughCPUs(n, free.bit_count())
    if options.distribute_across_numa:
        return CPUSet(
            pick_distributed(
                topology,
                free,
                n,
                group_size=options.cpu_group_size,
                spread_cores=options.spread_cores,
                min_numa_nodes=min_numa_nodes,
            )
        )
    return CPUSet(
        pick_packed(topology, free, n, spread_cores=options.spread_cores, prefer_uncore=options.prefer_uncore)
    )
