"""The enforcer on the scripted v2 tree: order, drift, failures, the gap by an injected clock; exec cgroups beside it."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from itertools import count
from pathlib import Path, PurePosixPath

import pytest

from agent.model.cpuset import CPUSet
from agent.model.state import CPUState, Grants
from agent.node.cgroup import Hierarchy, detect
from agent.node.cgroup_errors import NotEffectiveError, OutOfRangeError
from agent.node.enforcer import Applied, CgroupEnforcer, CgroupsNow, Enforcer, ObserveOnly
from agent.node.exec_cgroups import ExecCgroups
from agent.policy.cgroup_intents import Rules, intent
from agent.policy.cgroup_names import CgroupKey, CgroupNameError, ContainerCgroup, PodCgroup
from agent.policy.cgroup_settings import Settings
from agent.policy.isolation import Drift
from agent.policy.pins import PinPlan, pins
from tests.node.scripted_cgroup2 import ScriptedV2

DB, WEB, JOB = ContainerCgroup("e", "db"), ContainerCgroup("s", "web"), ContainerCgroup("s", "job")
SHARED = Grants(CPUState(CPUSet.parse("0-7")))
GRANTED = Grants(CPUState(CPUSet.parse("0,3-7"), {"e": {"db": CPUSet.parse("1-2")}}))


@pytest.fixture
def kernel(tmp_path: Path) -> ScriptedV2:
    return ScriptedV2(tmp_path / "cgroup")


@pytest.fixture
def hierarchy(kernel: ScriptedV2) -> Hierarchy:
    return detect(kernel.root, kernel)


@pytest.fixture
def groups(hierarchy: Hierarchy) -> ExecCgroups:
    found = ExecCgroups(hierarchy)
    found.open()
    return found


@pytest.fixture
def enforcer(hierarchy: Hierarchy, groups: ExecCgroups) -> CgroupEnforcer:
    ticks: Iterator[int] = count()
    return CgroupEnforcer(hierarchy, groups.find, lambda: float(next(ticks)))


def prepare(groups: ExecCgroups, key: ContainerCgroup, grants: Grants) -> tuple[Path, ...]:
    pod, container = (intent(each, grants, {}, Rules()).settings for each in (PodCgroup(key.pod), key))
    return groups.prepare(key, pod, container)


def change(enforcer: Enforcer, grants: Grants) -> tuple[PinPlan, Applied]:
    plan = pins(grants, {}, enforcer.observe().groups, Rules())
    return plan, enforcer.apply(plan)


def effective(enforcer: Enforcer) -> dict[CgroupKey, str]:
    return {key: str(seen.effective) for key, seen in enforcer.observe().groups.items()}


def test_a_change_is_applied_in_order_and_a_second_look_finds_nothing_to_do(
    kernel: ScriptedV2, groups: ExecCgroups, enforcer: CgroupEnforcer
) -> None:
    for key in (DB, WEB):
        prepare(groups, key, SHARED)
    kernel.writes.clear()
    plan, applied = change(enforcer, GRANTED)
    assert [name for name, _ in kernel.writes] == [
        "pinfold/s/web/cpuset.cpus",
        "pinfold/s/cpuset.cpus",
        "pinfold/e/db/cpuset.cpus",
    ]
    assert applied == Applied(written=len(plan.pins), seconds=3.0, gap_seconds=2.0)
    assert effective(enforcer) == {
        PodCgroup("e"): "0-7",
        DB: "1-2",
        PodCgroup("s"): "0,3-7",
        WEB: "0,3-7",
    }
    assert change(enforcer, GRANTED) == (PinPlan((), CPUSet.parse("1-2")), Applied())
    change(enforcer, SHARED)
    assert set(effective(enforcer).values()) == {"0-7"}


def test_a_container_starts_inside_its_grant(groups: ExecCgroups, enforcer: CgroupEnforcer, kernel: ScriptedV2) -> None:
    (directory,) = prepare(groups, DB, GRANTED)
    assert directory == kernel.root / "pinfold/e/db"
    assert kernel.read(directory / "cpuset.cpus.effective") == "1-2"
    assert change(enforcer, GRANTED)[1].written == 0


def test_drift_is_seen_named_and_mended(kernel: ScriptedV2, groups: ExecCgroups, enforcer: CgroupEnforcer) -> None:
    for key in (DB, WEB):
        prepare(groups, key, SHARED)
    change(enforcer, GRANTED)
    assert enforcer.observe().drift == ()
    kernel.write(kernel.root / "pinfold/s/web/cpuset.cpus", "")
    kernel.write(kernel.root / "pinfold/e/db/cpuset.cpus", "0-7")
    assert set(enforcer.observe().drift) == {
        Drift(DB, "cpus", "1-2", "0-7", "unknown"),
        Drift(WEB, "cpus", "0,3-7", "0,3-7 (inherited)", "systemd"),
    }
    change(enforcer, GRANTED)
    assert enforcer.observe().drift == ()


def test_a_change_of_intent_and_a_new_group_are_no_drift(groups: ExecCgroups, enforcer: CgroupEnforcer) -> None:
    prepare(groups, WEB, SHARED)
    change(enforcer, GRANTED)
    change(enforcer, SHARED)
    assert enforcer.observe().drift == ()
    groups.remove(WEB)
    assert enforcer.observe().drift == ()
    change(enforcer, GRANTED)
    prepare(groups, WEB, GRANTED)
    assert enforcer.observe().drift == ()


def test_a_failed_write_is_told_and_does_not_stop_the_rest(
    kernel: ScriptedV2, groups: ExecCgroups, enforcer: CgroupEnforcer
) -> None:
    for key in (WEB, JOB):
        prepare(groups, key, SHARED)
    plan = pins(GRANTED, {}, enforcer.observe().groups, Rules())
    kernel.fail = {"cpuset.cpus": errno.ERANGE}
    applied = enforcer.apply(plan)
    assert applied.written == len(plan.pins) - 1
    assert {key: type(error) for key, error in applied.failed.items()} == {JOB: OutOfRangeError}
    assert effective(enforcer)[WEB] == "0,3-7"


def test_a_group_that_ended_between_look_and_write_is_gone_not_failed(
    groups: ExecCgroups, enforcer: CgroupEnforcer
) -> None:
    for key in (WEB, JOB):
        prepare(groups, key, SHARED)
    plan = pins(GRANTED, {}, enforcer.observe().groups, Rules())
    groups.remove(JOB)
    applied = enforcer.apply(plan)
    assert applied.gone == (JOB,)
    assert applied.failed == {}


def test_a_narrow_parent_is_reported_for_every_container_it_holds_back(
    kernel: ScriptedV2, groups: ExecCgroups, enforcer: CgroupEnforcer
) -> None:
    prepare(groups, WEB, SHARED)
    kernel.write(kernel.root / "pinfold/cpuset.cpus", "0-3")
    _, applied = change(enforcer, SHARED)
    assert {key: type(error) for key, error in applied.failed.items()} == {
        PodCgroup("s"): NotEffectiveError,
        WEB: NotEffectiveError,
    }
    groups.open()  # the parent takes all of its own parent again
    assert change(enforcer, SHARED)[1].failed == {}


def test_an_unreadable_group_does_not_hide_the_others(
    kernel: ScriptedV2, groups: ExecCgroups, enforcer: CgroupEnforcer
) -> None:
    for key in (WEB, JOB):
        prepare(groups, key, SHARED)
    (kernel.root / "pinfold/s/job/cpuset.cpus").write_text("junk")
    observation = enforcer.observe()
    assert list(observation.unreadable) == [JOB]
    assert WEB in observation.groups


def test_backend_none_looks_at_nothing_and_writes_nothing() -> None:
    enforcer: Enforcer = ObserveOnly()
    assert enforcer.observe() == CgroupsNow()
    assert enforcer.apply(PinPlan()) == Applied()


def test_exec_groups_are_alive_while_they_hold_processes(
    kernel: ScriptedV2, groups: ExecCgroups, hierarchy: Hierarchy
) -> None:
    prepare(groups, WEB, SHARED)
    prepare(groups, JOB, SHARED)
    assert not groups.alive(WEB)
    kernel.run(groups.group(WEB), 42)
    assert groups.alive(WEB)
    assert groups.processes(WEB) == (42,)
    assert groups.running("s") == ("web",)
    assert not groups.remove(PodCgroup("s"))
    assert groups.alive(WEB)
    kernel.end(42)
    assert groups.running("s") == ()
    assert groups.remove(PodCgroup("s"))
    assert groups.find() == {}
    assert not groups.alive(WEB)
    assert groups.remove(WEB)


def test_exec_groups_that_are_not_ours_are_left_alone(groups: ExecCgroups, hierarchy: Hierarchy) -> None:
    hierarchy.create(PurePosixPath("pinfold/-odd/db"))
    hierarchy.create(PurePosixPath("pinfold/u/Not_A_Container"))
    assert groups.find() == {PodCgroup("u"): PurePosixPath("pinfold/u")}


@pytest.mark.parametrize(
    "key", [ContainerCgroup("../../x", "db"), ContainerCgroup("u", "../db"), ContainerCgroup("", "")]
)
def test_no_path_is_made_from_an_unchecked_name(groups: ExecCgroups, key: ContainerCgroup) -> None:
    for action in (
        lambda: groups.prepare(key, Settings(), Settings()),
        lambda: groups.remove(key),
        lambda: groups.alive(key),
    ):
        with pytest.raises(CgroupNameError):
            action()
