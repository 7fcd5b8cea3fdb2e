"""Builds sysfs trees for machines that nobody captured: describe the CPUs and nodes, get the files a kernel would show.

`regular` describes an even machine; cases change single fields from there (`dataclasses.replace`). The files have the kernel's
own form, final newline included. Masks instead of lists are a `Style`; damage is done to the written tree.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from agent.model.cpuset import CPUSet


@dataclass(frozen=True, slots=True)
class TreeCache:
    """One cache index of a CPU."""

    level: int
    type: str
    size_kib: int
    cpus: CPUSet
    id: int | None = None


@dataclass(frozen=True, slots=True)
class TreeCPU:
    """One CPU directory. online False: no topology and no cache, as the kernel shows it."""

    id: int
    package_id: int | None
    core_id: int | None
    siblings: CPUSet
    package: CPUSet
    die_id: int | None = None
    die: CPUSet | None = None
    caches: tuple[TreeCache, ...] = ()
    capacity: int | None = None
    book_id: int | None = None
    drawer_id: int | None = None
    online: bool = True


@dataclass(frozen=True, slots=True)
class TreeNode:
    """One node directory. memory_kib None: no meminfo. hugepages: size in KiB -> (nr, free)."""

    id: int
    cpus: CPUSet
    memory_kib: int | None = None
    distances: tuple[int, ...] = ()
    hugepages: Mapping[int, tuple[int, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TreeMachine:
    """A machine. nodes empty: a kernel without NUMA. meminfo_kib: MemTotal of /proc/meminfo."""

    cpus: tuple[TreeCPU, ...]
    nodes: tuple[TreeNode, ...] = ()
    meminfo_kib: int | None = None
    possible: str | None = None
    pmu_groups: Mapping[str, CPUSet] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Style:
    """How old or how complete the kernel is: hexadecimal masks only (before 2.6.2x), no list files in cpu/ (before 2.6.29)."""

    masks: bool = False
    cpu_lists: bool = True


def write_tree(root: Path, machine: TreeMachine, style: Style = Style()) -> Path:
    """Write the machine's files below `root` and return it."""
    files: dict[str, str] = {}
    cpu_dir = "sys/devices/system/cpu"
    online = CPUSet.of(cpu.id for cpu in machine.cpus if cpu.online)
    if style.cpu_lists:
        present = CPUSet.of(cpu.id for cpu in machine.cpus)
        files |= {f"{cpu_dir}/online": str(online), f"{cpu_dir}/present": str(present)}
        files |= {f"{cpu_dir}/offline": str(present - online), f"{cpu_dir}/possible": machine.possible or str(present)}
    for cpu in machine.cpus:
        if cpu.id:  # CPU 0 cannot be unplugged on x86 and has no such file
            files[f"{cpu_dir}/cpu{cpu.id}/online"] = str(int(cpu.online))
        if cpu.online:
            files |= {f"{cpu_dir}/cpu{cpu.id}/{name}": text for name, text in _cpu_files(cpu, style).items()}
    for node in machine.nodes:
        files |= {
            f"sys/devices/system/node/node{node.id}/{name}": text for name, text in _node_files(node, style).items()
        }
    files |= {f"sys/devices/{name}/cpus": str(cpus) for name, cpus in machine.pmu_groups.items()}
    if machine.meminfo_kib is not None:
        files["proc/meminfo"] = f"MemTotal:       {machine.meminfo_kib} kB\nMemFree:        4096 kB"
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f"{text}\n", encoding="ascii")
    return root


def regular(
    packages: int = 1,
    nodes: int = 1,
    caches: int = 1,
    cores: int = 4,
    threads: int = 1,
    *,
    near_siblings: bool = True,
    memory_kib: int = 16 << 20,
    hugepages: Mapping[int, tuple[int, int]] | None = None,
    cache_ids: bool = True,
) -> TreeMachine:
    """An even machine: so many nodes per package, L3 caches per node, cores per cache, CPUs per core.

    near_siblings: siblings are neighbours (0,1); else half the machine apart (0,n/2). Private L1d, L1i and L2 per core.
    Distances: 10 local, 12 within a package, 21 across.
    """
    total = packages * nodes * caches * cores
    groups = [
        CPUSet.of(core * threads + t if near_siblings else t * total + core for t in range(threads))
        for core in range(total)
    ]

    def union_of(first: int, count: int) -> CPUSet:
        return CPUSet.of(cpu for group in groups[first : first + count] for cpu in group)

    per_node, per_package = caches * cores, nodes * caches * cores
    cpus: list[TreeCPU] = []
    for core, siblings in enumerate(groups):
        l3 = core // cores
        shared = TreeCache(3, "Unified", 32768, union_of(l3 * cores, cores), l3 if cache_ids else None)
        own = [
            TreeCache(1, "Data", 32, siblings),
            TreeCache(1, "Instruction", 32, siblings),
            TreeCache(2, "Unified", 1024, siblings),
        ]
        package = core // per_package
        cpus += (
            TreeCPU(
                id=cpu,
                package_id=package,
                core_id=core % per_package,
                siblings=siblings,
                package=union_of(package * per_package, per_package),
                die_id=0,
                die=union_of(package * per_package, per_package),
                caches=(*own, shared),
            )
            for cpu in siblings
        )
    count = packages * nodes
    rows = [tuple(10 if a == b else 12 if a // nodes == b // nodes else 21 for b in range(count)) for a in range(count)]
    return TreeMachine(
        cpus=tuple(sorted(cpus, key=lambda cpu: cpu.id)),
        nodes=tuple(
            TreeNode(n, union_of(n * per_node, per_node), memory_kib, rows[n], hugepages or {}) for n in range(count)
        ),
        meminfo_kib=memory_kib * count,
    )


def format_mask(cpus: CPUSet) -> str:
    """The kernel's mask format: comma groups of 32 bits, the most significant first, as wide as a kernel for 128 CPUs writes."""
    count = max(4, (cpus.mask.bit_length() + 31) // 32)
    return ",".join(f"{cpus.mask >> 32 * word & 0xFFFFFFFF:08x}" for word in reversed(range(count)))


def _cpu_files(cpu: TreeCPU, style: Style) -> dict[str, str]:
    files: dict[str, str] = {}
    numbers = {
        "physical_package_id": cpu.package_id,
        "core_id": cpu.core_id,
        "die_id": cpu.die_id,
        "book_id": cpu.book_id,
        "drawer_id": cpu.drawer_id,
    }
    files |= {f"topology/{name}": str(number) for name, number in numbers.items() if number is not None}
    if style.masks:
        files |= {
            "topology/thread_siblings": format_mask(cpu.siblings),
            "topology/core_siblings": format_mask(cpu.package),
        }
    else:
        files |= {"topology/core_cpus_list": str(cpu.siblings), "topology/package_cpus_list": str(cpu.package)}
        if cpu.die:
            files["topology/die_cpus_list"] = str(cpu.die)
    for index, cache in enumerate(cpu.caches):
        files |= {f"cache/index{index}/{name}": text for name, text in _cache_files(cache, style).items()}
    if cpu.capacity is not None:
        files["cpu_capacity"] = str(cpu.capacity)
    return files


def _cache_files(cache: TreeCache, style: Style) -> dict[str, str]:
    files = {"level": str(cache.level), "type": cache.type, "size": f"{cache.size_kib}K"}
    if style.masks:
        files["shared_cpu_map"] = format_mask(cache.cpus)
    else:
        files["shared_cpu_list"] = str(cache.cpus)
    if cache.id is not None:
        files["id"] = str(cache.id)
    return files


def _node_files(node: TreeNode, style: Style) -> dict[str, str]:
    files = {"cpumap": format_mask(node.cpus)} if style.masks else {"cpulist": str(node.cpus)}
    if node.memory_kib is not None:
        files["meminfo"] = (
            f"Node {node.id} MemTotal:       {node.memory_kib} kB\nNode {node.id} MemFree:        4096 kB"
        )
    if node.distances:
        files["distance"] = " ".join(map(str, node.distances))
    for size, (nr, free) in node.hugepages.items():
        pages = {"nr_hugepages": nr, "free_hugepages": free, "surplus_hugepages": 0}
        files |= {f"hugepages/hugepages-{size}kB/{name}": str(count) for name, count in pages.items()}
    return files
