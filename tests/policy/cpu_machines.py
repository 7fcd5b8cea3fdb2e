"""Machines for tests of picking: drawn by hand, or regular ones by their measures."""

from __future__ import annotations

from agent.model.machine import CPUTopology, RawCPU, discover


def drawn(drawing: str) -> CPUTopology:
    """A machine from a drawing: cores are CPU ids joined by "+", "|" begins a NUMA node, ";" a socket, "/" an uncore cache.

    "0+2 1+3 |; 4+6 5+7" is two sockets, each a NUMA node with two cores of two threads. Without a "/" the machine
    reports no caches.
    """
    numa = socket = uncore = 0
    caches = "/" in drawing
    cpus = []
    for core, word in enumerate(drawing.split()):
        if word[0].isdigit():
            cpus += [RawCPU(int(cpu), core, socket, numa, uncore if caches else None) for cpu in word.split("+")]
            continue
        numa += "|" in word
        socket += ";" in word
        uncore += "/" in word
    return discover(cpus)


def regular(cpus: int, *, sockets: int = 1, numa: int = 1, smt: int = 1, cache_cores: int = 0) -> CPUTopology:
    """A machine of equal parts, numbered as Linux does: first one thread of every core, then the second ones.

    cache_cores: cores per uncore cache; 0 where the machine reports none. `numa` counts the nodes of the whole machine.
    """
    cores = cpus // smt
    return discover(
        RawCPU(
            id=core + thread * cores,
            core=core,
            socket=core * sockets // cores,
            numa=core * numa // cores,
            uncore=core // cache_cores if cache_cores else None,
        )
        for core in range(cores)
        for thread in range(smt)
    )
