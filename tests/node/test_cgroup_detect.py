"""Which hierarchy has the cpuset controller: unified v2, v1, hybrid of either kind, none."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

import pytest

from agent.node.cgroup import detect
from agent.node.cgroup_errors import CgroupError, NoControllerError


def tree(root: Path, *files: str) -> Path:
    """Files by path, with their content behind a "="."""
    for file in files:
        name, _, content = file.partition("=")
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content + "\n")
    return root


V1 = ("cpuset/cpuset.cpus=0-1", "cpu,cpuacct/cpu.shares=1024", "memory/memory.limit_in_bytes=1", "pids/pids.max=max")


def test_unified(tmp_path: Path) -> None:
    found = detect(tree(tmp_path, "cgroup.controllers=cpuset cpu io memory pids"))
    assert (found.version, found.controllers) == (2, frozenset({"cpuset", "cpu", "memory"}))
    assert found.directories(PurePosixPath("a")) == (tmp_path / "a",)


def test_v1_with_several_controllers_on_one_mount(tmp_path: Path) -> None:
    found = detect(tree(tmp_path, *V1))
    assert (found.version, found.controllers) == (1, frozenset({"cpuset", "cpu", "memory"}))
    assert set(found.directories(PurePosixPath("a"))) == {
        tmp_path / "cpuset/a",
        tmp_path / "cpu,cpuacct/a",
        tmp_path / "memory/a",
    }


def test_hybrid_with_cpuset_on_v1(tmp_path: Path) -> None:
    found = detect(tree(tmp_path, *V1, "unified/cgroup.controllers=hugetlb"))
    assert found.version == 1


def test_hybrid_with_cpuset_on_v2(tmp_path: Path) -> None:
    found = detect(tree(tmp_path, "memory/memory.limit_in_bytes=1", "unified/cgroup.controllers=cpuset cpu"))
    assert (found.version, found.controllers) == (2, frozenset({"cpuset", "cpu"}))
    assert found.directories(PurePosixPath("a")) == (tmp_path / "unified/a",)


def test_only_the_controllers_asked_for_are_used(tmp_path: Path) -> None:
    assert detect(tree(tmp_path, *V1), controllers=frozenset({"cpuset"})).controllers == {"cpuset"}


def test_without_cpuset_it_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(NoControllerError, match="no cgroup hierarchy here has the cpuset controller") as caught:
        detect(tree(tmp_path, "memory/memory.limit_in_bytes=1"))
    assert "boot with it enabled" in caught.value.hint
    with pytest.raises(CgroupError, match="absent"):
        detect(tmp_path / "absent")


def test_a_group_never_leaves_the_hierarchy(tmp_path: Path) -> None:
    found = detect(tree(tmp_path, *V1))
    for hostile in ("/etc", "a/../../etc", ".."):
        with pytest.raises(Exception, match="not a path inside the cgroup hierarchy"):
            found.observe(PurePosixPath(hostile))
