"""The v1 hierarchy against the real kernel: every errno of the table comes out as the typed error that says what to do."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import pytest

from agent.model.cpuset import CPUSet
from agent.node.cgroup import Hierarchy
from agent.node.cgroup_errors import (
    CgroupBusyError,
    CgroupError,
    CgroupGoneError,
    EmptySetError,
    OutOfRangeError,
    OutsideParentError,
    RefusedSettingError,
)
from agent.node.exec_process import run_in_cgroups
from agent.node.tasks import affinity
from agent.policy.cgroup_settings import NO_LIMIT, Settings
from tests.node.cgroup_parent import join, need_cpus, real_parent, sleeper

pytestmark = pytest.mark.real


@pytest.fixture
def corner() -> Iterator[tuple[Hierarchy, PurePosixPath]]:
    with real_parent(frozenset({"cpuset", "cpu"})) as (hierarchy, parent):
        if hierarchy.version != 1:
            pytest.skip("cgroup v2 here; the v1 refusals cannot be seen")
        yield hierarchy, parent


def raw(hierarchy: Hierarchy, group: PurePosixPath, name: str, value: str) -> None:
    """A write behind the hierarchy's back."""
    (cpuset_dir(hierarchy, group) / name).write_text(value)


def cpuset_dir(hierarchy: Hierarchy, group: PurePosixPath) -> Path:
    return next(path for path in hierarchy.directories(group) if (path / "cpuset.cpus").exists())


def test_a_new_group_has_its_parents_cpus_and_takes_tasks_at_once(corner: tuple[Hierarchy, PurePosixPath]) -> None:
    hierarchy, parent = corner
    hierarchy.create(parent / "a" / "b")
    assert hierarchy.bounds(parent / "a" / "b") == hierarchy.bounds(parent)
    with sleeper() as pid:
        join(hierarchy, parent / "a" / "b", pid)
        assert hierarchy.processes(parent / "a" / "b") == (pid,)
        assert hierarchy.processes(parent) == (pid,)


def test_what_is_written_is_read_back(corner: tuple[Hierarchy, PurePosixPath]) -> None:
    hierarchy, parent = corner
    cpus = need_cpus(2, hierarchy)
    group = parent / "a"
    hierarchy.create(group)
    one = CPUSet.of(list(cpus)[:1])
    hierarchy.write(group, Settings(cpus=one, mems=1, quota_us=50_000, shares=512))
    seen = hierarchy.observe(group)
    assert (seen.cpus, seen.effective, seen.mems, seen.quota_us, seen.shares) == (one, one, 1, 50_000, 512)
    hierarchy.write(group, Settings(quota_us=NO_LIMIT))
    assert hierarchy.observe(group).quota_us == NO_LIMIT


def test_a_quota_with_another_period_is_read_as_the_same_share_of_a_cpu(
    corner: tuple[Hierarchy, PurePosixPath],
) -> None:
    hierarchy, parent = corner
    directory = next(path for path in hierarchy.directories(parent) if (path / "cpu.shares").exists())
    (directory / "cpu.cfs_period_us").write_text("50000")
    (directory / "cpu.cfs_quota_us").write_text("10000")
    assert hierarchy.observe(parent).quota_us == 20_000
    hierarchy.write(parent, Settings(quota_us=150_000))
    assert (directory / "cpu.cfs_quota_us").read_text() == "150000\n"
    assert (directory / "cpu.cfs_period_us").read_text() == "100000\n"


def test_a_memory_bound_is_read_back_and_lifted() -> None:
    with real_parent(frozenset({"cpuset", "memory"})) as (hierarchy, parent):
        if "memory" not in hierarchy.controllers:
            pytest.skip("no memory controller here")
        assert hierarchy.observe(parent).memory_bytes == NO_LIMIT
        hierarchy.write(parent, Settings(memory_bytes=64 << 20))
        assert hierarchy.observe(parent).memory_bytes == 64 << 20
        hierarchy.write(parent, Settings(memory_bytes=NO_LIMIT))
        assert hierarchy.observe(parent).memory_bytes == NO_LIMIT


def test_a_task_before_cpus_are_set_is_refused(corner: tuple[Hierarchy, PurePosixPath]) -> None:
    hierarchy, parent = corner
    cpuset_dir(hierarchy, parent).joinpath("empty").mkdir()
    with pytest.raises(EmptySetError, match="no CPUs or no memory nodes") as caught:
        run_in_cgroups(lambda _: hierarchy.directories(parent / "empty"), ["true"])
    assert caught.value.errno == errno.ENOSPC
    assert "set cpuset.cpus" in caught.value.hint


@pytest.mark.parametrize(
    ("settings", "error", "number", "hint"),
    [
        pytest.param(Settings(cpus=CPUSet.of([8000])), OutOfRangeError, errno.ERANGE, "possible", id="impossible CPU"),
        pytest.param(Settings(mems=1 << 60), RefusedSettingError, errno.EINVAL, "has_memory", id="absent memory node"),
        pytest.param(Settings(quota_us=500), RefusedSettingError, errno.EINVAL, "parent", id="quota below 1 ms"),
    ],
)
def test_a_value_that_the_kernel_refuses_is_explained(
    corner: tuple[Hierarchy, PurePosixPath], settings: Settings, error: type[CgroupError], number: int, hint: str
) -> None:
    hierarchy, parent = corner
    with pytest.raises(error) as caught:
        hierarchy.write(parent, settings)
    assert caught.value.errno == number
    assert hint in caught.value.hint
    assert str(parent) in str(caught.value)


def test_a_set_wider_than_the_parent_names_what_the_parent_has(corner: tuple[Hierarchy, PurePosixPath]) -> None:
    hierarchy, parent = corner
    first, second, *_ = need_cpus(2, hierarchy)
    hierarchy.create(parent / "a" / "b")
    hierarchy.write(parent / "a", Settings(cpus=CPUSet.of([first])))
    with pytest.raises(OutsideParentError, match=f"the parent cgroup has '{first}' only") as caught:
        hierarchy.write(parent / "a" / "b", Settings(cpus=CPUSet.of([first, second])))
    assert caught.value.errno == errno.EACCES


def test_a_parent_shrinks_with_all_that_is_inside(corner: tuple[Hierarchy, PurePosixPath]) -> None:
    hierarchy, parent = corner
    first, second, *_ = need_cpus(2, hierarchy)
    hierarchy.create(parent / "a" / "b" / "c")
    hierarchy.create(parent / "a" / "other")
    hierarchy.write(parent / "a" / "other", Settings(cpus=CPUSet.of([second])))
    with sleeper() as pid:
        join(hierarchy, parent / "a" / "b" / "c", pid)
        hierarchy.write(parent / "a", Settings(cpus=CPUSet.of([first])))
        assert affinity(pid) == CPUSet.of([first])
    inside = ("a", "a/b", "a/b/c", "a/other")
    assert {name: str(hierarchy.observe(parent / name).cpus) for name in inside} == dict.fromkeys(inside, str(first))


def test_an_empty_set_never_reaches_the_kernel(corner: tuple[Hierarchy, PurePosixPath]) -> None:
    hierarchy, parent = corner
    before = hierarchy.observe(parent)
    with pytest.raises(ValueError, match="never written"):
        hierarchy.write(parent, Settings(cpus=CPUSet()))
    assert hierarchy.observe(parent) == before


def test_a_group_that_is_gone_is_named(corner: tuple[Hierarchy, PurePosixPath]) -> None:
    hierarchy, parent = corner
    for action in (
        lambda: hierarchy.write(parent / "gone", Settings(cpus=CPUSet.of([0]))),
        lambda: hierarchy.observe(parent / "gone"),
        lambda: hierarchy.processes(parent / "gone"),
        lambda: hierarchy.children(parent / "gone"),
    ):
        with pytest.raises(CgroupGoneError):
            action()
    hierarchy.remove(parent / "gone")


def test_a_group_with_a_task_stays_and_an_empty_tree_goes(corner: tuple[Hierarchy, PurePosixPath]) -> None:
    hierarchy, parent = corner
    hierarchy.create(parent / "a" / "b")
    with sleeper() as pid:
        join(hierarchy, parent / "a" / "b", pid)
        with pytest.raises(CgroupBusyError, match="still inside"):
            hierarchy.remove(parent / "a")
        assert hierarchy.processes(parent / "a") == (pid,)
    hierarchy.remove(parent / "a")
    assert not hierarchy.exists(parent / "a")


def test_one_refused_setting_does_not_keep_back_the_others(corner: tuple[Hierarchy, PurePosixPath]) -> None:
    hierarchy, parent = corner
    cpus = need_cpus(1, hierarchy)
    one = CPUSet.of(list(cpus)[:1])
    with pytest.raises(RefusedSettingError):
        hierarchy.write(parent, Settings(mems=1 << 60, cpus=one, shares=77))
    seen = hierarchy.observe(parent)
    assert (seen.cpus, seen.shares) == (one, 77)
