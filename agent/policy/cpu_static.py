"""The static CPU manager policy: who gets exclusive CPUs, and which (kubelet cm/cpumanager/policy_static.go, KEP-3570).

The picking itself is `agent.policy.cpu_assignment`; pods with pod-level resources in pod scope are `agent.policy.pod_pool`.
"""

from __future__ import annotations

from dataclasses import dataclass

from agent.errors import BadInputError
from agent.model.cpuset import CPUSet
from agent.model.machine import CPUTopology
from agent.model.numa import NodeMask, node_ids, node_mask
from agent.model.pod import Container, ContainerKind
from agent.policy.cpu_assignment import PickOptions, take_cpus
from agent.policy.cpu_options import StaticOptions
from agent.policy.refusal import SMTAlignmentError


class CPUReservationError(BadInputError):
    """The reserved CPUs cannot be what the configuration says."""

    hint = "check reservedSystemCPUs, systemReserved and kubeReserved against `pinfold topology`"


@dataclass(frozen=True, slots=True)
class CPUManager:
    """The static policy on one machine.

    reserved: CPUs never given exclusively. reserved_physical: these and their SMT siblings. group_size: SMT width, the
    machine-wide integer average that the kubelet's messages quote.
    """

    topology: CPUTopology
    options: StaticOptions
    reserved: CPUSet
    reserved_physical: CPUSet

    @property
    def group_size(self) -> int:
        return self.topology.cpus_per_core

    @property
    def pick(self) -> PickOptions:
        return pick_options(self.topology, self.options)

    @property
    def allocatable(self) -> CPUSet:
        """Every CPU that can be given exclusively, free or not."""
        return self.topology.all - self.reserved

    @property
    def managed(self) -> CPUSet:
        """Every CPU that is either shared or given: with strict reservation the reserved ones are neither."""
        return self.allocatable if self.options.strict_reservation else self.topology.all

    @property
    def uneven_cores(self) -> bool:
        """Whether cores differ in size (hybrid chips, offline siblings): there averages mean nothing."""
        return len({mask.bit_count() for mask in self.topology.core_masks.values()}) > 1


def pick_options(topology: CPUTopology, options: StaticOptions) -> PickOptions:
    """How the static policy picks under these options."""
    return PickOptions(
        distribute_across_numa=options.distribute_across_numa,
        spread_cores=options.distribute_across_cores,
        prefer_uncore=options.prefer_uncore,
        cpu_group_size=topology.cpus_per_core if options.full_pcpus_only else 1,
    )


def reserve(topology: CPUTopology, options: StaticOptions, explicit: CPUSet, count: int) -> CPUManager:
    """The static policy with its reserved CPUs: the explicit set, or `count` CPUs picked with the policy's own algorithm.

    Raises CPUReservationError where the set's size is not `count` or a CPU does not exist on this machine.
    """
    reserved = explicit
    if not reserved and count <= topology.num_cpus:
        reserved = take_cpus(topology, topology.all, count, pick_options(topology, options))
    if len(reserved) != count:
        raise CPUReservationError(
            f"[cpumanager] unable to reserve the required amount of CPUs (size of {reserved} did not equal {count})"
        )
    physical = 0
    for cpu in reserved:
        info = topology.by_id.get(cpu)
        if info is None:
            raise CPUReservationError(
                f"[cpumanager] unable to build the reserved physical CPUs from the reserved set: unknown CPU ID: {cpu}"
            )
        physical |= topology.core_masks[info.core]
    return CPUManager(topology, options, reserved, CPUSet(physical))


def exclusive_cpus(container: Container) -> int:
    """The whole number of CPUs that a Guaranteed container asks for; 0 where it asks for none or for a fraction.

    Whole means that the request rounded up, times 1000, is the request in millicores rounded up.
    """
    quantity = container.resources.requests.get("cpu")
    if quantity is None or quantity.value() * 1000 != quantity.milli_value():
        return 0
    return max(quantity.value(), 0)


def check_physical_cpus(manager: CPUManager, shared: CPUSet, cpus: int) -> None:
    """full-pcpus-only: refuse a count that is no multiple of a core, or larger than what is free beside reserved cores.

    Raises SMTAlignmentError.
    """
    if not manager.options.full_pcpus_only or cpus == 0:
        return
    if cpus % manager.group_size:
        raise SMTAlignmentError.not_multiple(cpus, manager.group_size)
    free = shared - manager.reserved_physical
    if cpus > len(free):
        raise SMTAlignmentError.not_enough(len(free), cpus, manager.group_size)


def allocate(
    manager: CPUManager,
    shared: CPUSet,
    cpus: int,
    affinity: NodeMask | None,
    reusable: CPUSet,
    *,
    min_numa_nodes: int = 0,
) -> CPUSet:
    """Pick `cpus` exclusive CPUs: from the affinity first, the rest from anywhere.

    shared: the shared pool. affinity: the merged hint's NUMA nodes, None = any. reusable: CPUs of the pod's finished init
    containers. min_numa_nodes: nodes a device hint forces (see `take_cpus`). Raises NotEnoughCPUs, SMTAlignmentError.
    """
    candidates = (shared - manager.reserved) | reusable
    if manager.options.full_pcpus_only and manager.uneven_cores:
        candidates = whole_cores(manager.topology, candidates)
    taken = CPUSet()
    if affinity is not None:
        aligned = candidates & affine_cpus(manager, affinity)
        taken = take_cpus(
            manager.topology, aligned, min(cpus, len(aligned)), manager.pick, min_numa_nodes=min_numa_nodes
        )
    rest = take_cpus(manager.topology, candidates - taken, cpus - len(taken), manager.pick)
    result = taken | rest
    if manager.options.full_pcpus_only and manager.uneven_cores:
        check_whole_cores(manager, result)
    return result


def affine_cpus(manager: CPUManager, affinity: NodeMask) -> CPUSet:
    """The CPUs of a hint's NUMA nodes; with align-by-socket those of the sockets in which they lie."""
    topology = manager.topology
    mask = 0
    for node in node_ids(affinity):
        mask |= topology.numa_masks.get(node, 0)
    if manager.options.align_by_socket:
        # the hint is widened to whole sockets, so that a socket's other nodes come before another socket
        mask = sum(cpus for cpus in topology.socket_masks.values() if cpus & mask)
    return CPUSet(mask)


def numa_nodes_of(topology: CPUTopology, cpus: CPUSet) -> NodeMask | None:
    """The NUMA nodes in which these CPUs lie; None where they are none of this machine's."""
    found = {topology.by_id[cpu].numa for cpu in cpus & topology.all}
    return node_mask(found) if found else None


def whole_cores(topology: CPUTopology, cpus: CPUSet) -> CPUSet:
    """Those of the CPUs whose core is completely among them."""
    return CPUSet(sum(core for core in topology.core_masks.values() if not core & ~cpus.mask))


def check_whole_cores(manager: CPUManager, cpus: CPUSet) -> None:
    """Refuse a set with a part of a core. Raises SMTAlignmentError."""
    whole = whole_cores(manager.topology, cpus)
    if whole != cpus:
        raise SMTAlignmentError.uneven(cpus - whole, len(cpus))


def reusable_after(kind: ContainerKind, reusable: CPUSet, cpus: CPUSet) -> CPUSet:
    """What later containers of the pod may reuse once this one has its CPUs: an init container adds, the others use up."""
    return reusable | cpus if kind is ContainerKind.INIT else reusable - cpus
