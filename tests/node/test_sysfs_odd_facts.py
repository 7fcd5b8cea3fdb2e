"""One odd fact at a time: an even machine with one thing absent, damaged or unusual, and what is made of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from agent.model.cpuset import CPUSet
from agent.model.topology import NodeKind
from agent.node.sysfs import SysfsError
from agent.node.topology import read_topology
from tests.node.sysfs_reading import groups, read_edited
from tests.node.sysfs_tree import Style, TreeCPU, format_mask, regular, write_tree

CPU = "sys/devices/system/cpu"
NODE = "sys/devices/system/node"


# --- which CPUs run ---


def test_this_host_is_read() -> None:
    topology = read_topology(Path("/"))
    assert topology.lists.online
    assert [cpu.id for cpu in topology.cpus] == list(topology.lists.online)


def test_without_lists_each_cpu_is_asked_and_a_missing_file_means_online(tmp_path: Path) -> None:
    machine = regular(cores=4)
    cpus = tuple(replace(cpu, online=cpu.id != 2) for cpu in machine.cpus)
    topology = read_edited(tmp_path, replace(machine, cpus=cpus), {f"{CPU}/cpu3/online": None}, Style(cpu_lists=False))
    assert str(topology.lists.online) == "0-1,3"
    assert str(topology.lists.offline) == "2"
    assert topology.lists.possible is None


def test_a_cpu_without_topology_and_without_online_file_was_never_started(tmp_path: Path) -> None:
    edits: dict[str, str | None] = {f"{CPU}/cpu{n}/online": None for n in (1, 2, 3)}
    topology = read_edited(tmp_path, regular(), {**edits, f"{CPU}/cpu3/topology": None}, Style(cpu_lists=False))
    assert str(topology.lists.online) == "0-2"


def test_without_any_topology_all_directories_are_online_but_those_in_the_offline_list(tmp_path: Path) -> None:
    for cpu in range(4):
        (tmp_path / CPU / f"cpu{cpu}").mkdir(parents=True)
    (tmp_path / CPU / "offline").write_text("3-1023\n")
    topology = read_topology(tmp_path)
    assert str(topology.lists.online) == "0-2"
    assert groups(topology.packages) == ["0-2"]
    assert groups(topology.cores) == ["0", "1", "2"]
    assert topology.llc_is_package


def test_an_empty_online_list_is_noted_and_each_cpu_asked(tmp_path: Path) -> None:
    topology = read_edited(tmp_path, regular(), {f"{CPU}/online": "\n"})
    assert str(topology.lists.online) == "0-3"
    assert f"{CPU}/online is empty, so the files of each CPU were asked" in topology.notes


def test_a_cut_online_list_is_an_error_where_it_loses_cpus(tmp_path: Path) -> None:
    with pytest.raises(SysfsError, match=r"cpu/online: cut short: it ends after 0-1, but cpu2/online says 1"):
        read_edited(tmp_path, regular(), {f"{CPU}/online": "0-1"})


def test_a_whole_online_list_is_believed_against_the_files_of_cpus(tmp_path: Path) -> None:
    topology = read_edited(tmp_path, regular(), {f"{CPU}/online": "0-1\n"})
    assert str(topology.lists.online) == "0-1"
    assert any("leaves out CPUs" in note for note in topology.notes)


def test_masks_that_list_offline_cpus_are_cut_to_online_ones(tmp_path: Path) -> None:
    machine = regular(1, 1, 1, 2, 2)
    cpus = tuple(replace(cpu, online=cpu.id != 1) for cpu in machine.cpus)
    topology = read_edited(tmp_path, replace(machine, cpus=cpus), {})
    assert groups(topology.cores) == ["0", "2-3"]
    assert str(topology.numa[0].cpus) == "0,2-3"
    assert topology.threads_per_core == (1, 2)


@pytest.mark.parametrize("part", ["", "sys", CPU])
def test_a_directory_that_is_no_sysfs_is_an_error_that_names_it(tmp_path: Path, part: str) -> None:
    (tmp_path / part).mkdir(parents=True, exist_ok=True)
    with pytest.raises(SysfsError, match=f"{tmp_path}/{CPU}: shows no online CPU"):
        read_topology(tmp_path)


def test_more_cpus_than_any_kernel_has_are_refused(tmp_path: Path) -> None:
    (tmp_path / CPU / "cpu99999999").mkdir(parents=True)
    with pytest.raises(SysfsError, match="cpu99999999"):
        read_topology(tmp_path)


def test_a_machine_that_changes_during_every_attempt_is_an_error(tmp_path: Path) -> None:
    write_tree(tmp_path, replace(regular(), nodes=()))
    (tmp_path / NODE).mkdir()
    (tmp_path / NODE / "online").symlink_to("/proc/sys/kernel/random/uuid")  # another content at every read
    with pytest.raises(SysfsError, match="changed during each of 5 attempts"):
        read_topology(tmp_path)


# --- packages, cores, dies ---


def test_a_package_without_id_follows_its_siblings(tmp_path: Path) -> None:
    machine = regular(packages=2, cores=2)
    cpus = tuple(replace(cpu, package_id=-1) for cpu in machine.cpus)
    topology = read_edited(tmp_path, replace(machine, cpus=cpus), {})
    assert groups(topology.packages) == ["0-1", "2-3"]
    assert [package.id for package in topology.packages] == [-1, -1]


def test_without_ids_and_siblings_there_is_one_package(tmp_path: Path) -> None:
    machine = regular(packages=2, cores=2)
    edits: dict[str, str | None] = {f"{CPU}/cpu{n}/topology/package_cpus_list": None for n in range(4)}
    cpus = tuple(replace(cpu, package_id=None) for cpu in machine.cpus)
    assert groups(read_edited(tmp_path, replace(machine, cpus=cpus), edits).packages) == ["0-3"]


def test_a_single_cpu_without_package_id_joins_its_siblings(tmp_path: Path) -> None:
    topology = read_edited(tmp_path, regular(packages=2, cores=2), {f"{CPU}/cpu3/topology/physical_package_id": "-1\n"})
    assert groups(topology.packages) == ["0-1", "2-3"]
    assert any("placed by core_siblings" in note for note in topology.notes)


def test_sibling_sets_that_follow_the_node_do_not_split_a_package(tmp_path: Path) -> None:
    """As some kernels had it with several nodes per package: the id is right."""
    machine = regular(packages=2, nodes=2, cores=2)
    edits: dict[str, str | None] = {f"{CPU}/cpu{n}/topology/package_cpus_list": f"{n & ~1}-{n | 1}\n" for n in range(8)}
    assert groups(read_edited(tmp_path, machine, edits).packages) == ["0-3", "4-7"]


def test_an_id_per_numa_node_that_two_packages_share_does_not_merge_them(tmp_path: Path) -> None:
    """As on some ia64: id per node, sibling sets and repeated core ids say two packages."""
    machine = regular(packages=2, nodes=1, cores=4)
    edits: dict[str, str | None] = {}
    for cpu in range(8):
        edits[f"{CPU}/cpu{cpu}/topology/package_cpus_list"] = f"{cpu & ~1}-{cpu | 1}\n"
        edits[f"{CPU}/cpu{cpu}/topology/core_id"] = f"{cpu % 2}\n"
    topology = read_edited(tmp_path, machine, edits)
    assert groups(topology.packages) == ["0-1", "2-3", "4-5", "6-7"]
    assert groups(topology.cores) == [str(cpu) for cpu in range(8)]


def test_one_altered_package_mask_changes_nothing(tmp_path: Path) -> None:
    machine = regular(packages=2, cores=3)
    cpus = tuple(replace(cpu, package_id=-1) for cpu in machine.cpus)
    topology = read_edited(tmp_path, replace(machine, cpus=cpus), {f"{CPU}/cpu1/topology/package_cpus_list": "1,4\n"})
    assert groups(topology.packages) == ["0-2", "3-5"]


def test_cores_follow_siblings_where_core_ids_repeat_in_a_package(tmp_path: Path) -> None:
    machine = regular(cores=4, threads=2)
    cpus = tuple(replace(cpu, core_id=cpu.id // 2 % 2) for cpu in machine.cpus)
    assert groups(read_edited(tmp_path, replace(machine, cpus=cpus), {}).cores) == ["0-1", "2-3", "4-5", "6-7"]


@pytest.mark.parametrize("text", ["0-", "", "\0", "5\n", "1\n"])
def test_a_damaged_sibling_list_falls_back_to_the_mask(tmp_path: Path, text: str) -> None:
    edits: dict[str, str | None] = {f"{CPU}/cpu0/topology/core_cpus": f"{format_mask(CPUSet.of([0, 1]))}\n"}
    edits |= {f"{CPU}/cpu{cpu}/topology/core_cpus_list": text for cpu in (0, 1)}
    edits[f"{CPU}/cpu1/topology/core_cpus"] = edits[f"{CPU}/cpu0/topology/core_cpus"]
    topology = read_edited(tmp_path, regular(cores=2, threads=2), edits)
    if text == "1\n":  # consistent in itself for CPU 1, so only CPU 0 is left over
        assert groups(topology.cores) == ["0", "1", "2-3"]
    else:
        assert groups(topology.cores) == ["0-1", "2-3"]


def test_without_sibling_lists_equal_core_ids_are_taken_as_siblings(tmp_path: Path) -> None:
    edits: dict[str, str | None] = {f"{CPU}/cpu{n}/topology/core_cpus_list": None for n in range(4)}
    topology = read_edited(tmp_path, regular(cores=2, threads=2), edits)
    assert groups(topology.cores) == ["0-1", "2-3"]
    assert any("no usable sibling list" in note for note in topology.notes)


def test_die_ids_repeat_in_every_package_and_minus_one_means_the_list(tmp_path: Path) -> None:
    machine = regular(packages=2, cores=4)
    by_id = tuple(replace(cpu, die_id=cpu.id % 4 // 2) for cpu in machine.cpus)
    by_list = tuple(replace(cpu, die_id=-1, die=CPUSet.of([cpu.id & ~1, cpu.id | 1])) for cpu in machine.cpus)
    expected = ["0-1", "2-3", "4-5", "6-7"]
    assert groups(read_edited(tmp_path / "id", replace(machine, cpus=by_id), {}).dies) == expected
    assert groups(read_edited(tmp_path / "list", replace(machine, cpus=by_list), {}).dies) == expected


def test_clusters_that_repeat_the_cores_say_nothing(tmp_path: Path) -> None:
    single: dict[str, str | None] = {f"{CPU}/cpu{n}/topology/cluster_cpus_list": f"{n}\n" for n in range(4)}
    pairs: dict[str, str | None] = {f"{CPU}/cpu{n}/topology/cluster_cpus_list": f"{n & ~1}-{n | 1}\n" for n in range(4)}
    assert read_edited(tmp_path / "single", regular(), single).clusters is None
    assert groups(read_edited(tmp_path / "pairs", regular(), pairs).clusters) == ["0-1", "2-3"]


# --- caches ---


def test_caches_are_told_apart_by_their_cpus_not_by_their_id(tmp_path: Path) -> None:
    edits: dict[str, str | None] = {f"{CPU}/cpu{n}/cache/index3/id": "0\n" for n in range(8)}
    assert groups(read_edited(tmp_path, regular(caches=2), edits).llc) == ["0-3", "4-7"]


def test_index_order_is_not_level_order_and_instruction_caches_do_not_count(tmp_path: Path) -> None:
    machine = regular(cores=2)
    cpus = tuple(
        replace(cpu, caches=(cpu.caches[3], cpu.caches[0], cpu.caches[2], cpu.caches[1])) for cpu in machine.cpus
    )
    topology = read_edited(tmp_path, replace(machine, cpus=cpus), {f"{CPU}/cpu0/cache/index0/type": "Instruction\n"})
    assert [(cache.level, str(cache.cpus)) for cache in topology.llc] == [(3, "0-1")]  # CPU 1 names CPU 0


def test_a_machine_without_cache_directories_falls_back_to_packages(tmp_path: Path) -> None:
    machine = regular(packages=2, cores=2)
    topology = read_edited(tmp_path, replace(machine, cpus=tuple(replace(cpu, caches=()) for cpu in machine.cpus)), {})
    assert groups(topology.llc) == ["0-1", "2-3"]
    assert topology.llc_is_package


def test_a_level_whose_sharing_is_blank_leaves_the_next_one(tmp_path: Path) -> None:
    edits: dict[str, str | None] = {f"{CPU}/cpu{n}/cache/index3/shared_cpu_list": "\n" for n in range(4)}
    topology = read_edited(tmp_path, regular(cores=2, threads=2), edits)
    assert [(cache.level, str(cache.cpus)) for cache in topology.llc] == [(2, "0-1"), (2, "2-3")]


def test_cpus_with_different_cache_trees_are_resolved_one_by_one(tmp_path: Path) -> None:
    def without_l3(cpu: TreeCPU) -> TreeCPU:
        caches = tuple(replace(cache, cpus=CPUSet.parse("0-1")) if cache.level == 3 else cache for cache in cpu.caches)
        return replace(cpu, caches=caches if cpu.id < 2 else caches[:3])

    machine = regular(cores=4)
    topology = read_edited(tmp_path, replace(machine, cpus=tuple(map(without_l3, machine.cpus))), {})
    assert [(cache.level, str(cache.cpus)) for cache in topology.llc] == [(3, "0-1"), (2, "2"), (2, "3")]


def test_a_cache_said_to_span_packages_is_noted(tmp_path: Path) -> None:
    edits: dict[str, str | None] = {f"{CPU}/cpu{n}/cache/index3/shared_cpu_list": "0-3\n" for n in range(4)}
    topology = read_edited(tmp_path, regular(packages=2, cores=2), edits)
    assert "last-level cache said to be shared by several packages; not used for placement: CPUs 0-3" in topology.notes


# --- NUMA ---


def test_without_node_directories_one_node_stands_for_the_machine(tmp_path: Path) -> None:
    machine = replace(regular(packages=2), nodes=(), meminfo_kib=1024)
    pages: dict[str, str | None] = {"sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages": "3\n"}
    (node,) = read_edited(tmp_path, machine, pages).numa
    assert (node.id, node.kind, str(node.cpus), node.memory_bytes) == (0, NodeKind.FALLBACK, "0-7", 1 << 20)
    assert node.distances == (10,)
    assert [(size.size_kib, size.nr, size.free) for size in node.hugepages] == [(2048, 3, None)]


@pytest.mark.parametrize(
    ("edits", "kind"),
    [
        ({f"{NODE}/node1/cpulist": "\n"}, NodeKind.MEMORY_ONLY),
        ({f"{NODE}/node1/meminfo": "Node 1 MemTotal:       0 kB\n"}, NodeKind.CPU_ONLY),
        ({f"{NODE}/node1/cpulist": "\n", f"{NODE}/node1/meminfo": None}, NodeKind.EMPTY),
        ({f"{NODE}/node1/meminfo": None}, NodeKind.CPU_MEMORY_UNKNOWN),
        ({f"{NODE}/node1/meminfo": "Node 1 MemTo"}, NodeKind.CPU_MEMORY_UNKNOWN),
        ({}, NodeKind.CPU_AND_MEMORY),
    ],
)
def test_kinds_of_nodes(tmp_path: Path, edits: dict[str, str | None], kind: NodeKind) -> None:
    assert read_edited(tmp_path, regular(packages=2), edits).numa[1].kind is kind


def test_a_memory_only_node_is_nearest_to_the_least_distance_unless_initiators_say_otherwise(tmp_path: Path) -> None:
    machine = regular(packages=3, cores=1)
    empty: dict[str, str | None] = {f"{NODE}/node2/cpulist": "\n", f"{NODE}/node2/distance": "30 20 10\n"}
    told = {**empty, f"{NODE}/node2/access0/initiators/node0/uevent": "\n"}
    assert str(read_edited(tmp_path / "distance", machine, empty).numa[2].local_cpus) == "1"
    assert str(read_edited(tmp_path / "initiators", machine, told).numa[2].local_cpus) == "0"


def test_sparse_node_ids_keep_one_distance_column_per_node(tmp_path: Path) -> None:
    machine = regular(packages=2)
    nodes = (machine.nodes[0], replace(machine.nodes[1], id=8))
    topology = read_edited(tmp_path, replace(machine, nodes=nodes), {})
    assert [(node.id, node.distances) for node in topology.numa] == [(0, (10, 21)), (8, (21, 10))]


def test_a_cpu_in_several_nodes_belongs_to_the_lowest_and_one_in_none_to_none(tmp_path: Path) -> None:
    edits: dict[str, str | None] = {f"{NODE}/node1/cpulist": "2,4-6\n"}
    topology = read_edited(tmp_path, regular(packages=2), edits)
    assert [cpu.node for cpu in topology.cpus] == [0, 0, 0, 0, 1, 1, 1, None]
    assert "listed by several NUMA nodes; the lowest is used: CPUs 2" in topology.notes
    assert "listed by no NUMA node: CPUs 7" in topology.notes


def test_a_damaged_cpulist_falls_back_to_the_map_then_to_the_links(tmp_path: Path) -> None:
    edits: dict[str, str | None] = {
        f"{NODE}/node0/cpulist": "0-\n",
        f"{NODE}/node0/cpumap": "0000000f\n",
        f"{NODE}/node1/cpulist": None,
        f"{NODE}/node1/cpu5": "",
        f"{NODE}/node1/cpu99": "",
    }
    topology = read_edited(tmp_path, regular(packages=2), edits)
    assert [str(node.cpus) for node in topology.numa] == ["0-3", "5"]


def test_nodes_that_list_nothing_leave_all_cpus_to_the_lowest(tmp_path: Path) -> None:
    edits: dict[str, str | None] = {f"{NODE}/node{n}/cpulist": None for n in (0, 1)}
    topology = read_edited(tmp_path, regular(packages=2), edits)
    assert {cpu.node for cpu in topology.cpus} == {0}
    assert any("no NUMA node lists an online CPU" in note for note in topology.notes)


@pytest.mark.parametrize("row", ["10 x\n", "10,21\n", "-1 3\n"])
def test_a_damaged_distance_row_is_unknown_and_noted(tmp_path: Path, row: str) -> None:
    topology = read_edited(tmp_path, regular(packages=2), {f"{NODE}/node0/distance": row})
    assert topology.numa[0].distances is None
    assert any("distance" in note for note in topology.notes)


def test_hugepage_sizes_are_whatever_directories_there_are(tmp_path: Path) -> None:
    machine = regular(hugepages={64: (1, 0), 16777216: (2, 2), 2048: (0, 0)})
    assert [(size.size_kib, size.nr) for size in read_edited(tmp_path, machine, {}).numa[0].hugepages] == [
        (64, 1),
        (2048, 0),
        (16777216, 2),
    ]


def test_differing_capacities_make_a_hybrid(tmp_path: Path) -> None:
    machine = regular()
    cpus = tuple(replace(cpu, capacity=(280, 1024)[cpu.id // 2]) for cpu in machine.cpus)
    hybrid = read_edited(tmp_path, replace(machine, cpus=cpus), {}).hybrid
    assert hybrid is not None
    assert hybrid.capacities == (280, 1024)
