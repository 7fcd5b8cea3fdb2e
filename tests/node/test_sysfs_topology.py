"""Whole machines: our fixtures against their golden files, the corpus beside the repository, and one machine in several forms."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agent.formats.topology_json import render_json
from agent.formats.topology_text import render_text
from agent.node.archive import open_sysroot
from agent.node.topology import read_topology
from tests.node.sysfs_machines import EXAMPLE_ARCHIVE, FIXTURES, MACHINES, tree_files
from tests.node.sysfs_reading import groups
from tests.node.sysfs_tree import Style, regular, write_tree
from tests.shared import SHARED

CPU = "sys/devices/system/cpu"
MACHINE_DIRECTORIES = sorted(path for path in FIXTURES.iterdir() if path.is_dir())
EXPECTATIONS = sorted(path for path in (SHARED / "sysfs").glob("*.json") if path.name != "index.json")
MEMORY_DIRECTORY = Path("/dev/shm")  # thousands of small files are slow to make anywhere else


# --- our own machines ---


@pytest.mark.parametrize("machine", MACHINE_DIRECTORIES, ids=lambda path: str(path.name))
def test_a_machine_reads_as_its_golden_files_say(machine: Path) -> None:
    topology = read_topology(machine)
    assert render_text(topology) == (machine / "topology.golden").read_text(encoding="utf-8")
    assert render_json(topology) == (machine / "topology.json").read_text(encoding="utf-8")


def test_there_are_machines_and_each_has_its_note() -> None:
    assert len(MACHINE_DIRECTORIES) >= 10
    for machine in MACHINE_DIRECTORIES:
        note = (machine / "NOTE.md").read_text(encoding="utf-8")
        assert all(word in note for word in ("**Hardware.**", "**Kernel.**", "**What is odd.**")), machine.name


@pytest.mark.parametrize("name", MACHINES)
def test_a_built_machine_is_what_the_builder_writes(name: str, tmp_path: Path) -> None:
    machine, style = MACHINES[name]
    assert tree_files(write_tree(tmp_path, machine, style)) == tree_files(FIXTURES / name)


def test_the_example_archive_is_the_two_socket_machine() -> None:
    with open_sysroot(EXAMPLE_ARCHIVE) as root:
        assert read_topology(root) == read_topology(FIXTURES / "two-socket-smt")


# --- the corpus ---


def differences(got: dict[str, Any], want: dict[str, Any]) -> list[str]:
    """The facts of an expectation file that the output does not repeat."""
    found = [
        f"{part} {key}" for part in ("cpus", "counts") for key, value in want[part].items() if got[part][key] != value
    ]
    found += [f"llc {key}" for key in ("level", "type", "fallback") if got["llc"][key] != want["llc"][key]]
    found += rows_that_differ("package", got["packages"], want["packages"])
    found += rows_that_differ("llc", got["llc"]["groups"], want["llc"]["groups"])
    found += rows_that_differ("cpu", got["cpu"], want["cpu"])
    found += rows_that_differ("numa", got["numa"], want["numa"])
    for row, wanted in zip(got["numa"], want["numa"], strict=False):
        for size, counts in wanted["hugepages"].items():
            found += rows_that_differ(f"numa {row['id']} {size}", [row["hugepages"][size]], [counts])
    found += [key for key in ("cores", "hybrid") if got[key] != want.get(key)]
    if got["node_states"] != (want.get("node_states") or {}):
        found.append("node_states")
    return found


def rows_that_differ(table: str, rows: list[dict[str, Any]], expected: list[dict[str, Any]]) -> list[str]:
    """By row and field; what only other tools say, and what has a table of its own, is left out."""
    left_out = {"hwloc", "hwloc_local_cpus", "cpu_links", "listed_but_not_online"} | (
        {"hugepages"} if table == "numa" else set()
    )
    found = [] if len(rows) == len(expected) else [f"{table}: {len(rows)} rows instead of {len(expected)}"]
    for index, (row, wanted) in enumerate(zip(rows, expected, strict=False)):
        fields = wanted.keys() - left_out
        found += [f"{table} {index} {key}: {row.get(key)}" for key in fields if row.get(key) != wanted[key]]
    return found


@pytest.mark.shared
@pytest.mark.parametrize("expectation", EXPECTATIONS, ids=lambda path: str(path.stem))
def test_a_machine_of_the_corpus_reads_as_its_expectation_says(
    expectation: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if MEMORY_DIRECTORY.is_dir():
        monkeypatch.setattr(tempfile, "tempdir", str(MEMORY_DIRECTORY))
    with open_sysroot(expectation.with_suffix(".tar.xz")) as root:
        got = json.loads(render_json(read_topology(root)))
    assert differences(got, json.loads(expectation.read_text(encoding="utf-8"))) == []


# --- forms of one machine ---

REMOVALS: dict[str, Callable[[str], bool]] = {
    "no cache ids": lambda name: name.endswith("/id"),
    "no cpu lists": lambda name: name in (f"{CPU}/online", f"{CPU}/present", f"{CPU}/possible", f"{CPU}/offline"),
    "no online files": lambda name: name.endswith("/online") and "/cpu1/" in name,
    "no core ids": lambda name: name.endswith("core_id"),
    "no package lists": lambda name: name.endswith("package_cpus_list"),
    "no package ids": lambda name: name.endswith("physical_package_id"),
}


@pytest.mark.parametrize("removal", REMOVALS)
def test_one_absent_witness_changes_no_group(tmp_path: Path, removal: str) -> None:
    machine = regular(packages=2, nodes=2, caches=2, cores=2, threads=2, near_siblings=False)
    whole = read_topology(write_tree(tmp_path, machine))
    for name in filter(REMOVALS[removal], tree_files(tmp_path)):
        (tmp_path / name).unlink()
    less = read_topology(tmp_path)
    for field in ("packages", "cores", "llc"):
        assert groups(getattr(less, field)) == groups(getattr(whole, field))
    assert less.lists.online == whole.lists.online


def test_masks_say_what_lists_say(tmp_path: Path) -> None:
    machine = regular(packages=2, nodes=1, caches=2, cores=2, threads=2)
    lists = read_topology(write_tree(tmp_path / "lists", machine))
    masks = read_topology(write_tree(tmp_path / "masks", machine, Style(masks=True)))
    assert (masks.packages, masks.cores, masks.llc, masks.numa) == (lists.packages, lists.cores, lists.llc, lists.numa)
