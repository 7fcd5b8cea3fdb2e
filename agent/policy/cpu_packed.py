"""Picking CPUs so that they lie close together (kubelet cm/cpumanager/cpu_assignment.go, takeByTopologyNUMAPacked).

All sets here are bitmasks of CPUs. Sizes are those of the element at hand, its real sibling list, where the kubelet compares
with machine-wide averages: on machines with uneven cores or sockets it hands out CPUs that are in use.
"""

from __future__ import annotations

from collections.abc import Iterable

from agent.model.machine import CPUTopology


def best_fit(masks: Iterable[int], free: int, within: int = -1) -> list[int]:
    """The elements with free CPUs, those with the fewest free CPUs first, then in the order given (ascending id).

    within: the outer element they are listed for; an element without free CPUs inside it is left out.
    """
    return sorted((mask for mask in masks if mask & free & within), key=lambda mask: (mask & free).bit_count())


def _outer_order(topology: CPUTopology, free: int) -> list[int]:
    return best_fit(topology.outer_masks, free)


def _inner_order(topology: CPUTopology, free: int) -> list[int]:
    inner_of = topology.inner_of
    return [inner for outer in _outer_order(topology, free) for inner in best_fit(inner_of[outer], free, outer)]


def numa_order(topology: CPUTopology, free: int) -> list[int]:
    """The CPUs of every NUMA node with free ones, in the order in which picking looks at them."""
    return _outer_order(topology, free) if topology.numa_is_outer else _inner_order(topology, free)


def _socket_order(topology: CPUTopology, free: int) -> list[int]:
    return _inner_order(topology, free) if topology.numa_is_outer else _outer_order(topology, free)


def _core_order(topology: CPUTopology, free: int) -> Iterable[int]:
    cores_of = topology.cores_of
    return (core for inner in _inner_order(topology, free) for core in best_fit(cores_of[inner], free, inner))


def _uncore_order(topology: CPUTopology, free: int) -> list[int]:
    uncores_of = topology.uncores_of
    return [uncore for numa in numa_order(topology, free) for uncore in best_fit(uncores_of[numa], free, numa)]


def _take_whole(elements: Iterable[int], free: int, need: int) -> int:
    """The elements that are entirely free and still needed in full, in the order given; smaller later ones may fit."""
    taken = 0
    for element in elements:
        if element & ~free:
            continue
        size = element.bit_count()
        if size <= need:
            taken |= element
            free &= ~element
            need -= size
            if not need:
                break
    return taken


def _lowest(mask: int, count: int) -> int:
    """The lowest `count` CPUs of a mask."""
    taken = 0
    for _ in range(count):
        low = mask & -mask
        taken |= low
        mask ^= low
    return taken


def _take_single(elements: Iterable[int], free: int, need: int) -> int:
    """Single CPUs: the free ones of each element, ascending, element after element."""
    taken = 0
    for element in elements:
        loose = element & free & ~taken
        count = loose.bit_count()
        if count >= need:
            return taken | _lowest(loose, need)
        taken |= loose
        need -= count
    return taken


def _part_of_uncore(cores: Iterable[int], free: int, need: int) -> int:
    """The free CPUs of the first cores of a cache whose threads would cover the need; nothing unless they are exactly enough.

    For an odd need one CPU too many is fine, the last one is left: so an odd request stays in one cache too
    (kubernetes/kubernetes#131850).
    """
    part = threads = 0
    for core in cores:
        if threads >= need:
            break
        if core & free:
            part |= core & free
            threads += core.bit_count()
    count = part.bit_count()
    if need % 2 and count == need + 1:
        part ^= 1 << part.bit_length() - 1
        count -= 1
    return part if count == need else 0


# The stages of a pick. Each gets what is still free and still needed, at least one CPU, and gives what it takes of it.


def _whole_outer(topology: CPUTopology, free: int, need: int) -> int:
    return _take_whole(_outer_order(topology, free), free, need)


def _whole_inner(topology: CPUTopology, free: int, need: int) -> int:
    return _take_whole(_inner_order(topology, free), free, need)


def _uncores(topology: CPUTopology, free: int, need: int) -> int:
    """Whole free caches where at least an average cache is needed, then the rest from one cache if it comes out even.

    The average is a threshold of the kubelet's for looking at whole caches, nothing is taken by it. The kubelet looks at
    whole caches again for every cache it visits; those that did not fit the first time never fit later.
    """
    order = _uncore_order(topology, free)
    taken = _take_whole(order, free, need) if need >= topology.cpus_per_uncore else 0
    free, need = free & ~taken, need - taken.bit_count()
    for uncore in order if need else ():
        part = _part_of_uncore(topology.cores_of[uncore], free, need)
        if part:
            return taken | part
    return taken


def _whole_cores(topology: CPUTopology, free: int, need: int) -> int:
    return _take_whole(_core_order(topology, free), free, need)


def _threads_by_core(topology: CPUTopology, free: int, need: int) -> int:
    return _take_single(_core_order(topology, free), free, need)


def _threads_by_socket(topology: CPUTopology, free: int, need: int) -> int:
    return _take_single(_socket_order(topology, free), free, need)


def pick_packed(topology: CPUTopology, free: int, need: int, *, spread_cores: bool, prefer_uncore: bool) -> int:
    """`need` CPUs out of `free`, which holds at least as many: whole elements first, large to small, then single CPUs.

    spread_cores: no whole cores, and single CPUs by ascending id inside a socket (distribute-cpus-across-cores).
    prefer_uncore: between NUMA nodes or sockets and cores, look at uncore caches (prefer-align-cpus-by-uncorecache).
    """
    stages = [_whole_outer, _whole_inner]
    stages += [_uncores] if prefer_uncore else []
    stages += [_threads_by_socket] if spread_cores else [_whole_cores, _threads_by_core]
    picked = 0
    for stage in stages:
        taken = stage(topology, free, need)
        picked |= taken
        free &= ~taken
        need -= taken.bit_count()
        if not need:
            break
    return picked
