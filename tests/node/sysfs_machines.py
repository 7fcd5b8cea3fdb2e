"""The machines of fixtures/sysfs that are built, not captured; and the one way to write them and every golden file again.

    python -m tests.node.sysfs_machines

rewrites the built trees, `topology.golden` and `topology.json` of every machine, and the archive that `pinfold demo` reads. The
difference is then reviewed like code.
"""

from __future__ import annotations

import gzip
import io
import shutil
import tarfile
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import agent.examples
from agent.formats.topology_json import render_json
from agent.formats.topology_text import render_text
from agent.model.cpuset import CPUSet
from agent.node.topology import read_topology
from tests.node.sysfs_tree import Style, TreeCache, TreeCPU, TreeMachine, TreeNode, regular, write_tree

REPOSITORY = Path(__file__).resolve().parents[2]
FIXTURES = REPOSITORY / "fixtures" / "sysfs"
EXAMPLE_ARCHIVE = Path(agent.examples.__file__).with_name("two-socket-smt.tar.gz")  # also where a wheel is tested


def two_socket_smt() -> TreeMachine:
    """The machine people expect: two sockets, a NUMA node and an L3 each, hyper-threads half the machine apart."""
    machine = regular(2, 1, 1, 8, 2, near_siblings=False, hugepages={2048: (1024, 1024), 1048576: (4, 4)})
    first, second = machine.nodes
    # The first node always has less: the kernel and the firmware take their share there.
    return replace(machine, nodes=(replace(first, memory_kib=65_698_108), replace(second, memory_kib=66_050_988)))


def old_kernel_masks() -> TreeMachine:
    """Two single-core sockets with hyper-threads on a kernel without NUMA and without list files."""
    return replace(regular(2, 1, 1, 1, 2, cache_ids=False), nodes=(), meminfo_kib=4_143_612)


def hybrid_p_e_cores() -> TreeMachine:
    """Four two-thread performance cores and one module of four efficiency cores behind one L3."""
    everybody, modules = CPUSet.of(range(12)), CPUSet.of(range(8, 12))
    cpus = []
    for cpu in range(12):
        siblings = CPUSet.of([cpu & ~1, cpu | 1]) if cpu < 8 else CPUSet.of([cpu])
        caches = (
            TreeCache(1, "Data", 48 if cpu < 8 else 32, siblings),
            TreeCache(1, "Instruction", 32 if cpu < 8 else 64, siblings),
            TreeCache(2, "Unified", 1280 if cpu < 8 else 2048, siblings if cpu < 8 else modules),
            TreeCache(3, "Unified", 12288, everybody, 0),
        )
        core_id = cpu // 2 * 4 if cpu < 8 else 8 + cpu
        cpus.append(TreeCPU(cpu, 0, core_id, siblings, everybody, die_id=0, die=everybody, caches=caches))
    return TreeMachine(
        cpus=tuple(cpus),
        nodes=(TreeNode(0, everybody, 16_156_228, (10,), {2048: (0, 0)}),),
        pmu_groups={"cpu_core": CPUSet.of(range(8)), "cpu_atom": modules},
    )


def s390_books() -> TreeMachine:
    """Two books with one socket each: both sockets have the id 1, and core ids restart in each book."""
    cpus = []
    for cpu in range(8):
        book = cpu // 4
        siblings = CPUSet.of([cpu & ~1, cpu | 1])
        socket = CPUSet.of(range(book * 4, book * 4 + 4))
        cpus.append(TreeCPU(cpu, 1, cpu % 4 // 2, siblings, socket, book_id=book, drawer_id=0))
    return TreeMachine(cpus=tuple(cpus), meminfo_kib=8_129_228)


def arm64_l3_per_node() -> TreeMachine:
    """Two packages with huge ids, two nodes each, one L3 per node without cache ids, 64 KiB huge pages."""
    machine = regular(2, 2, 1, 4, 1, cache_ids=False, hugepages={64: (16, 16), 2048: (256, 256), 32768: (0, 0)})
    cpus = (
        replace(cpu, package_id=(36, 8442)[cpu.id // 8], die_id=-1, die=cpu.siblings, capacity=1024)
        for cpu in machine.cpus
    )
    return replace(machine, cpus=tuple(cpus))


MACHINES: Mapping[str, tuple[TreeMachine, Style]] = {
    "two-socket-smt": (two_socket_smt(), Style()),
    "old-kernel-masks": (old_kernel_masks(), Style(masks=True, cpu_lists=False)),
    "hybrid-p-e-cores": (hybrid_p_e_cores(), Style()),
    "s390-books": (s390_books(), Style()),
    "arm64-l3-per-node": (arm64_l3_per_node(), Style()),
}


def tree_files(root: Path) -> dict[str, str]:
    """Every file below sys/ and proc/ with its content; links with their target."""
    paths = (path for part in ("sys", "proc") for path in sorted((root / part).rglob("*")) if not path.is_dir())
    return {str(path.relative_to(root)): path.read_text(encoding="ascii") for path in paths}


def archive_bytes(root: Path) -> bytes:
    """A .tar.gz of the tree, the same bytes for the same tree."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name, text in tree_files(root).items():
            member = tarfile.TarInfo(name)
            member.size = len(text)
            tar.addfile(member, io.BytesIO(text.encode("ascii")))
    return gzip.compress(packed.getvalue(), mtime=0)


def write_all() -> None:
    """Write built trees, golden files and the example archive."""
    for name, (machine, style) in MACHINES.items():
        for part in ("sys", "proc"):
            shutil.rmtree(FIXTURES / name / part, ignore_errors=True)
        write_tree(FIXTURES / name, machine, style)
    for directory in sorted(FIXTURES.iterdir()):
        topology = read_topology(directory)
        (directory / "topology.golden").write_text(render_text(topology), encoding="utf-8")
        (directory / "topology.json").write_text(render_json(topology), encoding="utf-8")
    with tempfile.TemporaryDirectory() as scratch:
        machine, style = MACHINES["two-socket-smt"]
        EXAMPLE_ARCHIVE.parent.mkdir(exist_ok=True)
        EXAMPLE_ARCHIVE.write_bytes(archive_bytes(write_tree(Path(scratch), machine, style)))


if __name__ == "__main__":
    write_all()
