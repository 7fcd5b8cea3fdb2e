"""The hugepages that a machine has free, read anew at every look."""

from __future__ import annotations

from pathlib import Path

from agent.config_schema import Config
from agent.hugepages_now import free_hugepages_now
from agent.node.sysfs import Sysfs
from agent.node.sysfs_numa import read_hugepages
from agent.policy.free_hugepages import FreeHugepages, FreeHugepagesRule
from agent.policy.policy_machine import free_hugepages
from tests.node.sysfs_tree import regular, write_tree

MIB = 2**20


def test_free_pages_are_told_per_node_and_size_in_bytes(tmp_path: Path) -> None:
    root = write_tree(tmp_path, regular(2, 1, 2, 2, 2, hugepages={2048: (512, 500), 1048576: (4, 1)}))
    assert free_hugepages(read_hugepages(Sysfs(root))) == {
        node: {"hugepages-2Mi": 1000 * MIB, "hugepages-1Gi": 1024 * MIB} for node in (0, 1)
    }


def test_a_machine_without_node_directories_has_them_on_node_0(tmp_path: Path) -> None:
    pages = tmp_path / "sys/kernel/mm/hugepages/hugepages-2048kB"
    pages.mkdir(parents=True)
    (pages / "free_hugepages").write_text("3\n")
    (pages / "nr_hugepages").write_text("8\n")
    assert free_hugepages(read_hugepages(Sysfs(tmp_path))) == {0: {"hugepages-2Mi": 6 * MIB}}


def test_a_size_without_a_count_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "sys/devices/system/node/node0/hugepages/hugepages-2048kB").mkdir(parents=True)
    assert free_hugepages(read_hugepages(Sysfs(tmp_path))) == {0: {}}


def test_the_configuration_says_whether_to_look(tmp_path: Path) -> None:
    root = str(write_tree(tmp_path, regular(2, 1, 2, 2, 2, hugepages={2048: (512, 500)})))
    warned = free_hugepages_now(Config.model_validate({"node": {"root": root}}))
    assert warned == FreeHugepages(FreeHugepagesRule.WARN, {node: {"hugepages-2Mi": 1000 * MIB} for node in (0, 1)})
    assert free_hugepages_now(Config.model_validate({"node": {"root": root, "freeHugepages": "ignore"}})) is None
