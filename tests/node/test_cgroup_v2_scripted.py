"""The v2 code against a script of the kernel's answers (tests/node/scripted_cgroup2.py), not against a kernel."""

from __future__ import annotations

import errno
from pathlib import Path, PurePosixPath

import pytest

from agent.model.cpuset import CPUSet
from agent.node.cgroup import Hierarchy, detect
from agent.node.cgroup_errors import (
    Action,
    CgroupBusyError,
    CgroupError,
    CgroupGoneError,
    CgroupLimitError,
    CgroupPermissionError,
    NoControllerError,
    NotEffectiveError,
    OutOfRangeError,
    RefusedSettingError,
    explain,
)
from agent.policy.cgroup_settings import NO_LIMIT, Observed, Settings
from tests.node.scripted_cgroup2 import ScriptedV2

POD = PurePosixPath("pinfold/u")
GROUP = POD / "db"


def cpus(text: str) -> CPUSet:
    return CPUSet.parse(text)


@pytest.fixture
def kernel(tmp_path: Path) -> ScriptedV2:
    return ScriptedV2(tmp_path / "cgroup")


@pytest.fixture
def hierarchy(kernel: ScriptedV2) -> Hierarchy:
    found = detect(kernel.root, kernel)
    found.create(GROUP)
    kernel.writes.clear()
    return found


def test_a_new_group_has_all_controllers_enabled_above_it_and_inherits(
    kernel: ScriptedV2, hierarchy: Hierarchy
) -> None:
    assert hierarchy.version == 2
    assert hierarchy.controllers == {"cpuset", "cpu", "memory"}
    assert hierarchy.directories(GROUP) == (kernel.root / GROUP,)
    assert kernel.read(kernel.root / "cgroup.subtree_control") == "cpu cpuset memory"
    assert kernel.read(kernel.root / POD / "cgroup.subtree_control") == "cpu cpuset memory"
    assert kernel.read(kernel.root / GROUP / "cgroup.subtree_control") == ""
    assert hierarchy.observe(GROUP) == Observed(CPUSet(), cpus("0-7"), 0, NO_LIMIT, None, 100, NO_LIMIT)
    assert hierarchy.bounds(GROUP) == (cpus("0-7"), 0b11)
    hierarchy.create(GROUP)
    assert kernel.writes == []


def test_what_is_written_is_read_back(kernel: ScriptedV2, hierarchy: Hierarchy) -> None:
    hierarchy.write(GROUP, Settings(cpus("1-2"), 0b10, 50_000, 2048, 1 << 30))
    assert kernel.writes == [
        ("pinfold/u/db/cpuset.mems", "1"),
        ("pinfold/u/db/cpuset.cpus", "1-2"),
        ("pinfold/u/db/memory.max", "1073741824"),
        ("pinfold/u/db/cpu.weight", "79"),
        ("pinfold/u/db/cpu.max", "50000 100000"),
    ]
    assert hierarchy.observe(GROUP) == Observed(cpus("1-2"), cpus("1-2"), 0b10, 50_000, None, 79, 1 << 30)
    assert hierarchy.observe(GROUP, resources=False) == Observed(cpus("1-2"), cpus("1-2"), 0b10, 50_000)
    hierarchy.write(GROUP, Settings(quota_us=NO_LIMIT, memory_bytes=NO_LIMIT))
    seen = hierarchy.observe(GROUP)
    assert (seen.quota_us, seen.memory_bytes) == (NO_LIMIT, NO_LIMIT)


def test_an_accepted_set_that_is_not_in_effect_is_an_error(hierarchy: Hierarchy) -> None:
    hierarchy.write(POD, Settings(cpus=cpus("0-3")))
    with pytest.raises(
        NotEffectiveError, match="'5' was accepted, but its tasks get '0-3'; the parent cgroup has '0-3'"
    ):
        hierarchy.write(GROUP, Settings(cpus=cpus("5")))
    with pytest.raises(NotEffectiveError, match="tasks get '3'"):
        hierarchy.write(GROUP, Settings(cpus=cpus("3-4")))
    assert hierarchy.observe(GROUP) == Observed(cpus("3-4"), cpus("3"), 0, NO_LIMIT, None, 100, NO_LIMIT)


def test_an_offline_cpu_is_not_in_effect(kernel: ScriptedV2, hierarchy: Hierarchy) -> None:
    kernel.online = cpus("0-6")
    with pytest.raises(NotEffectiveError, match="its tasks get '6'"):
        hierarchy.write(GROUP, Settings(cpus=cpus("6-7")))


def test_a_shrunk_parent_shows_in_the_childs_effective_set(hierarchy: Hierarchy) -> None:
    hierarchy.write(GROUP, Settings(cpus=cpus("1-2")))
    hierarchy.write(POD, Settings(cpus=cpus("0,4-7")))
    seen = hierarchy.observe(GROUP)
    assert (str(seen.cpus), str(seen.effective)) == ("1-2", "0,4-7")


def test_after_hotplug_a_group_takes_its_parents_again(kernel: ScriptedV2, hierarchy: Hierarchy) -> None:
    hierarchy.write(POD, Settings(cpus=cpus("0-3"), mems=1))
    hierarchy.inherit(POD)
    assert hierarchy.observe(POD).cpus == CPUSet()
    assert hierarchy.bounds(POD) == (cpus("0-7"), 0b11)


@pytest.mark.parametrize(
    ("settings", "error", "number"),
    [
        pytest.param(Settings(cpus=cpus("0-63")), OutOfRangeError, errno.ERANGE, id="impossible CPU"),
        pytest.param(Settings(mems=0b100), RefusedSettingError, errno.EINVAL, id="absent memory node"),
        pytest.param(Settings(quota_us=999), RefusedSettingError, errno.EINVAL, id="quota below 1 ms"),
    ],
)
def test_a_value_that_the_kernel_refuses_is_explained(
    hierarchy: Hierarchy, settings: Settings, error: type[CgroupError], number: int
) -> None:
    with pytest.raises(error) as caught:
        hierarchy.write(GROUP, settings)
    assert caught.value.errno == number
    assert caught.value.hint
    assert "pinfold/u/db" in str(caught.value)


def test_an_empty_set_never_reaches_the_kernel(kernel: ScriptedV2, hierarchy: Hierarchy) -> None:
    with pytest.raises(ValueError, match="never written"):
        hierarchy.write(GROUP, Settings(cpus=CPUSet()))
    assert kernel.writes == []


def test_processes_live_in_leaves(kernel: ScriptedV2, hierarchy: Hierarchy) -> None:
    kernel.run(GROUP, 42)
    assert hierarchy.processes(POD) == hierarchy.processes(GROUP) == (42,)
    with pytest.raises(OSError, match="busy") as refused:
        kernel.run(POD, 41)
    assert "controllers enabled" in str(explain(2, Action.ATTACH, "pinfold/u", refused.value))
    with pytest.raises(CgroupBusyError, match="wants them in leaves"):
        hierarchy.create(GROUP / "inner")


def test_a_group_with_a_task_stays_and_an_empty_tree_goes(kernel: ScriptedV2, hierarchy: Hierarchy) -> None:
    kernel.run(GROUP, 42)
    with pytest.raises(CgroupBusyError, match="still inside"):
        hierarchy.remove(POD)
    kernel.end(42)
    hierarchy.remove(POD)
    assert not hierarchy.exists(POD)
    hierarchy.remove(POD)


def test_a_group_that_is_gone_is_told_from_a_controller_that_is_not_enabled(
    kernel: ScriptedV2, hierarchy: Hierarchy
) -> None:
    for action in (
        lambda: hierarchy.write(POD / "gone", Settings(cpus=cpus("1"))),
        lambda: hierarchy.observe(POD / "gone"),
        lambda: hierarchy.processes(POD / "gone"),
        lambda: hierarchy.children(POD / "gone"),
    ):
        with pytest.raises(CgroupGoneError):
            action()
    (kernel.root / GROUP / "cpuset.cpus").unlink()
    with pytest.raises(NoControllerError, match="cpuset controller is not enabled") as caught:
        hierarchy.write(GROUP, Settings(cpus=cpus("1")))
    assert "subtree_control" in caught.value.hint


@pytest.mark.parametrize(
    ("number", "error"),
    [
        (errno.ENODEV, CgroupGoneError),
        (errno.EACCES, CgroupPermissionError),
        (errno.EPERM, CgroupPermissionError),
        (errno.EROFS, CgroupPermissionError),
        (errno.EIO, CgroupError),
    ],
)
def test_every_other_refusal_is_typed_too(
    kernel: ScriptedV2, hierarchy: Hierarchy, number: int, error: type[CgroupError]
) -> None:
    kernel.fail = {"cpuset.cpus": number}
    with pytest.raises(error, match=errno.errorcode[number]) as caught:
        hierarchy.write(GROUP, Settings(cpus=cpus("1")))
    assert type(caught.value) is error
    assert caught.value.hint


def test_too_many_groups_are_a_limit_to_raise(kernel: ScriptedV2, hierarchy: Hierarchy) -> None:
    class Full(ScriptedV2):
        def mkdir(self, path: str | Path) -> None:
            raise OSError(errno.EAGAIN, "full")

    with pytest.raises(CgroupLimitError, match="EAGAIN"):
        detect(kernel.root, Full(kernel.root)).create(POD / "one-more")


def test_one_refused_setting_does_not_keep_back_the_others(hierarchy: Hierarchy) -> None:
    with pytest.raises(RefusedSettingError):
        hierarchy.write(GROUP, Settings(cpus("1"), 0b100, 20_000))
    seen = hierarchy.observe(GROUP)
    assert (str(seen.cpus), seen.quota_us) == ("1", 20_000)
