"""Exclusive sets that grow and shrink: a larger set that contains the old one, a smaller one that contains the first.

KEP-5554 fixes what must stay; which CPUs come and go follows the rules by which the static policy picks at admission
(`agent.policy.cpu_assignment`), so that a set that has grown is as well aligned as can be without moving anybody.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from agent.model.cpuset import CPUSet
from agent.model.numa import NodeMask
from agent.policy.cpu_assignment import NotEnoughCPUs, take_cpus
from agent.policy.cpu_static import CPUManager, affine_cpus, allocate, check_whole_cores, numa_nodes_of, whole_cores
from agent.policy.refusal import SMTAlignmentError


def grow(manager: CPUManager, free: CPUSet, held: CPUSet, count: int, affinity: NodeMask | None) -> CPUSet:
    """`held` and `count` CPUs more out of `free`, those of the affinity first.

    free: CPUs that may be given; reserved ones are never taken. Where the set that admission would pick for the whole size
    contains what is held, it is that one. Raises NotEnoughCPUs, SMTAlignmentError.
    """
    if count <= 0:
        return held
    usable = free - manager.reserved - held
    if manager.options.full_pcpus_only:
        usable = whole_cores(manager.topology, usable)
    if len(usable) < count:
        raise NotEnoughCPUs(count, len(usable))
    grown = _grown(manager, usable, held, count, affinity)
    if manager.options.full_pcpus_only:
        check_whole_cores(manager, grown)
    return grown


def _grown(manager: CPUManager, usable: CPUSet, held: CPUSet, count: int, affinity: NodeMask | None) -> CPUSet:
    ideal = _as_at_admission(manager, usable, held, count, affinity)
    if ideal is not None and held <= ideal:
        return ideal
    if ideal is not None and manager.options.distribute_across_numa:
        spread = _per_node(manager, usable, held, ideal)
        if spread is not None:
            return spread
    return held | _nearest(manager, usable, held, count, affinity)


def shrink(manager: CPUManager, held: CPUSet, first: CPUSet, total: int) -> CPUSet:
    """`total` of the CPUs held, among them all of `first`: the set that `first` would have grown to with only these free, on
    its own NUMA nodes before others.

    first: what the first admission gave; CPUs of it that are no longer held (they went offline) do not count.
    """
    kept = first & held
    if total >= len(held):
        return held
    return grow(manager, held - kept, kept, total - len(kept), numa_nodes_of(manager.topology, kept))


def _as_at_admission(
    manager: CPUManager, usable: CPUSet, held: CPUSet, count: int, affinity: NodeMask | None
) -> CPUSet | None:
    """What an empty-handed container would get of these CPUs; None where even that cannot be aligned."""
    try:
        return allocate(manager, usable, len(held) + count, affinity, held)
    except (NotEnoughCPUs, SMTAlignmentError):
        return None


def _per_node(manager: CPUManager, usable: CPUSet, held: CPUSet, ideal: CPUSet) -> CPUSet | None:
    """distribute-cpus-across-numa: the amounts per NUMA node of `ideal`, where no node has to give anything back for them."""
    result = held
    for mask in manager.topology.numa_masks.values():
        node = CPUSet(mask)
        missing = len(ideal & node) - len(held & node)
        if missing < 0:
            return None
        result |= take_cpus(manager.topology, usable & node, missing, manager.pick)
    return result


def _nearest(manager: CPUManager, usable: CPUSet, held: CPUSet, count: int, affinity: NodeMask | None) -> CPUSet:
    """`count` CPUs, from the closest surroundings of what is held outwards, the affinity before everything else."""
    taken = CPUSet()
    for region in _regions(manager, usable, held, affinity):
        pool = (usable & region) - taken
        taken |= take_cpus(manager.topology, pool, min(count - len(taken), len(pool)), manager.pick)
    return taken


def _regions(manager: CPUManager, usable: CPUSet, held: CPUSet, affinity: NodeMask | None) -> Iterator[CPUSet]:
    topology = manager.topology
    within = affine_cpus(manager, affinity) if affinity is not None else usable
    own_cores = _around(topology.core_masks.values(), held)
    levels = [topology.numa_masks, topology.socket_masks]
    if manager.options.prefer_uncore:
        levels.insert(0, topology.uncore_masks)
    surroundings = [_around(masks.values(), held) for masks in levels]
    if manager.options.distribute_across_cores:
        yield from ((within & region) - own_cores for region in surroundings)  # a core of its own for every CPU
        yield within - own_cores
    else:
        yield within & own_cores  # fill a half-used core before opening another
    yield from (within & region for region in surroundings)
    yield within
    yield usable


def _around(masks: Iterable[int], held: CPUSet) -> CPUSet:
    """All CPUs of the elements in which some of `held` lie."""
    result = 0
    for mask in masks:
        if mask & held.mask:
            result |= mask
    return CPUSet(result)
