"""A machine as a readable tree: the output of `pinfold topology`."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from agent.formats.topology_tree import Block, node_facts, topology_blocks
from agent.model.cpuset import CPUSet
from agent.model.topology import Topology

WIDTH = 100
_CPUS_WIDTH = 28  # longer CPU lists push the facts aside on their own line only


def render_text(topology: Topology) -> str:
    """Summary, tree, nodes without CPUs, distances, notes; ends with a newline."""
    sections = (
        _summary(topology),
        _tree(topology_blocks(topology)),
        _nodes_without_cpus(topology),
        _distances(topology),
        _notes(topology),
    )
    return "\n\n".join("\n".join(lines) for lines in sections if lines) + "\n"


def _summary(topology: Topology) -> list[str]:
    threads = topology.threads_per_core
    parts = [
        _count(len(topology.packages), "socket"),
        _count(len(topology.numa), "NUMA node"),
        _count(len(topology.cores), "core"),
        _count(len(topology.cpus), "CPU"),
        f"{' or '.join(map(str, threads))} CPU{'s' if threads[-1] > 1 else ''} per core",
        _cache_summary(topology),
    ]
    lines = [", ".join(parts)]
    lists = topology.lists
    known = {"online": lists.online, "offline": lists.offline, "present": lists.present, "possible": lists.possible}
    if lists.offline or any(cpus is not None and cpus != lists.online for cpus in (lists.present, lists.possible)):
        lines.append("CPUs " + ", ".join(f"{name} {cpus}" for name, cpus in known.items() if cpus))
    if topology.hybrid is not None:
        kinds = [f"{name} {cpus}" for name, cpus in topology.hybrid.pmu_groups]
        if topology.hybrid.capacities:
            kinds.append("capacities " + ", ".join(map(str, topology.hybrid.capacities)))
        lines.append("hybrid: " + "; ".join(kinds))
    return [line for text in lines for line in textwrap.wrap(text, WIDTH, subsequent_indent="  ")]


def _cache_summary(topology: Topology) -> str:
    levels = sorted({cache.level for cache in topology.llc if cache.level is not None})
    if not levels:
        return "no cache shown"
    return f"last-level cache {'/'.join(f'L{level}' for level in levels)} in {_count(len(topology.llc), 'group')}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _tree(blocks: Sequence[Block]) -> list[str]:
    rows = [row for block in blocks for row in _rows(block, depth=0)]
    name_width = max(len(row[0]) for row in rows if row[1])
    cpus_width = min(_CPUS_WIDTH, max(len(row[1]) for row in rows))
    return [f"{name:<{name_width}}  {cpus:<{cpus_width}}  {facts}".rstrip() for name, cpus, facts in rows]


def _rows(block: Block, depth: int) -> Iterator[tuple[str, str, str]]:
    """Name, CPUs and facts of a block and of all within; the lines of cores have only the first."""
    indent = "  " * depth
    facts = [*block.facts, *([] if block.whole else ["in part"])]
    yield indent + block.name, f"CPUs {block.cpus}", ", ".join(facts)
    for inner in block.inner:
        yield from _rows(inner, depth + 1)
    if block.cores:
        for line in _cores(block.cores, indent + "  "):
            yield line, "", ""


def _cores(cores: Sequence[CPUSet], indent: str) -> Iterator[str]:
    """The sibling lists; where every core has one CPU, how many cores and a plain CPU list say the same."""
    if all(len(core) == 1 for core in cores):
        first = f"{indent}{_count(len(cores), 'core')}  "
        words = str(CPUSet.of(min(core) for core in cores)).replace(",", ", ")
    else:
        first = f"{indent}{'core' if len(cores) == 1 else 'cores'}  "
        words = "  ".join(str(core) for core in cores)
    yield from textwrap.wrap(
        words, WIDTH, initial_indent=first, subsequent_indent=" " * len(first), break_on_hyphens=False
    )


def _nodes_without_cpus(topology: Topology) -> list[str]:
    lines = []
    for node in topology.numa:
        if not node.cpus:
            facts = [str(node.kind), *node_facts(node)]
            if node.local_cpus:
                facts.append(f"nearest CPUs {node.local_cpus}")
            lines.append(f"NUMA node {node.id}: {', '.join(facts)}")
    return lines


def _distances(topology: Topology) -> list[str]:
    """The distance table; left out for a single node, where it says nothing."""
    rows = [(node.id, node.distances) for node in topology.numa if node.distances is not None]
    if len(topology.numa) < 2 or not rows:
        return []
    ids = [node.id for node in topology.numa]
    width = max(len(str(cell)) for cell in (*ids, *(cell for _, row in rows for cell in row))) + 2
    lines = ["distances" + "".join(f"{node:>{width}}" for node in ids)]
    lines += [f"{f'node {node}':>9}" + "".join(f"{cell:>{width}}" for cell in row) for node, row in rows]
    return lines


def _notes(topology: Topology) -> list[str]:
    return [
        line
        for note in topology.notes
        for line in textwrap.wrap(f"note: {note}", WIDTH, subsequent_indent="      ", break_long_words=False)
    ]
