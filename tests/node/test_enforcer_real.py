"""The proof: real processes in real cgroups, and what the kernel says of where they may run."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

import pytest

from agent.model.cpuset import CPUSet
from agent.model.pod import QOSClass
from agent.model.state import CPUState, Grants
from agent.node.cgroup import Hierarchy
from agent.node.cgroup_errors import CgroupError
from agent.node.enforcer import Applied, CgroupEnforcer
from agent.node.exec_cgroups import ExecCgroups
from agent.node.kubepods import detect_driver, find_kubepods
from agent.node.tasks import foreign_tasks, read_task
from agent.policy.cgroup_intents import Rules, intent
from agent.policy.cgroup_names import CgroupKey, ContainerCgroup, Driver, PodCgroup, QOSCgroup, pod_cgroup
from agent.policy.cgroup_settings import Settings
from agent.policy.pins import pins
from tests.node.cgroup_parent import join, need_cpus, real_parent, sleeper

pytestmark = pytest.mark.real
PROC = Path("/proc")
DB, WEB, JOB = ContainerCgroup("e", "db"), ContainerCgroup("s", "web"), ContainerCgroup("t", "job")


@dataclass
class Corner:
    """Part of this machine: `all` CPUs, of which `last` is given exclusively and `rest` stays shared."""

    hierarchy: Hierarchy
    parent: PurePosixPath
    groups: ExecCgroups
    enforcer: CgroupEnforcer
    all: CPUSet
    last: CPUSet

    @property
    def rest(self) -> CPUSet:
        return self.all - self.last

    @property
    def shared(self) -> Grants:
        return Grants(CPUState(self.all))

    @property
    def granted(self) -> Grants:
        return Grants(CPUState(self.rest, {"e": {"db": self.last}}))

    def apply(self, grants: Grants) -> Applied:
        return self.enforcer.apply(pins(grants, {}, self.enforcer.observe().groups, Rules()))

    @contextlib.contextmanager
    def running(self, key: ContainerCgroup, grants: Grants) -> Iterator[int]:
        """A process of a container, started under these grants."""
        pod, container = (intent(each, grants, {}, Rules()).settings for each in (PodCgroup(key.pod), key))
        self.groups.prepare(key, pod, container)
        with sleeper() as pid:
            join(self.hierarchy, self.groups.group(key), pid)
            yield pid


@pytest.fixture
def corner() -> Iterator[Corner]:
    with real_parent(frozenset({"cpuset", "cpu"})) as (hierarchy, parent):
        cpus = need_cpus(2, hierarchy)
        groups = ExecCgroups(hierarchy, parent)
        enforcer = CgroupEnforcer(hierarchy, groups.find, time.monotonic)
        yield Corner(hierarchy, parent, groups, enforcer, cpus, CPUSet.of(list(cpus)[-1:]))


def allowed(*pids: int) -> list[str]:
    """Cpus_allowed_list of every process."""
    return [str(read_task(PROC, pid).allowed) for pid in pids]


def test_shared_processes_leave_the_cpus_of_an_exclusive_container_and_come_back(corner: Corner) -> None:
    every, rest, last = str(corner.all), str(corner.rest), str(corner.last)
    with corner.running(WEB, corner.shared) as web, corner.running(JOB, corner.shared) as job:
        assert allowed(web, job) == [every, every]
        applied = corner.apply(corner.granted)
        assert applied.failed == {}
        assert allowed(web, job) == [rest, rest]
        with corner.running(DB, corner.granted) as db:
            assert allowed(web, job, db) == [rest, rest, last]
            assert corner.apply(corner.granted) == Applied()
        corner.apply(corner.shared)
        assert allowed(web, job) == [every, every]


def test_a_running_container_is_moved_onto_its_grant_after_the_others_left(corner: Corner) -> None:
    with corner.running(WEB, corner.shared) as web, corner.running(DB, corner.shared) as db:
        applied = corner.apply(corner.granted)
        assert allowed(web, db) == [str(corner.rest), str(corner.last)]
        assert 0 < applied.gap_seconds <= applied.seconds


def test_a_new_agent_finds_what_runs_and_moves_nothing(corner: Corner) -> None:
    with corner.running(WEB, corner.granted) as web, corner.running(DB, corner.granted) as db:
        corner.apply(corner.granted)
        again = ExecCgroups(corner.hierarchy, corner.parent)
        again.open()
        enforcer = CgroupEnforcer(corner.hierarchy, again.find, time.monotonic)
        seen = enforcer.observe()
        assert pins(corner.granted, {}, seen.groups, Rules()).pins == ()
        assert again.processes(DB) == (db,)
        assert again.processes(WEB) == (web,)
        assert allowed(web, db) == [str(corner.rest), str(corner.last)]


def test_a_set_changed_behind_our_back_is_drift_and_is_mended(corner: Corner) -> None:
    with corner.running(WEB, corner.shared) as web, corner.running(DB, corner.granted):
        corner.apply(corner.granted)
        corner.hierarchy.write(corner.groups.group(WEB).parent, Settings(cpus=corner.all))
        corner.hierarchy.write(corner.groups.group(WEB), Settings(cpus=corner.all))
        assert allowed(web) == [str(corner.all)]
        drift = corner.enforcer.observe().drift
        assert {str(each.key): (each.written, each.found) for each in drift} == {
            "pod s": (str(corner.rest), str(corner.all)),
            "pod s container web": (str(corner.rest), str(corner.all)),
        }
        applied = corner.apply(corner.granted)
        assert allowed(web) == [str(corner.rest)]
        assert applied.gap_seconds > 0


def test_a_container_that_starts_between_decision_and_look_starts_outside_exclusive_cpus(corner: Corner) -> None:
    corner.groups.prepare(WEB, Settings(cpus=corner.rest), Settings())
    with sleeper() as pid:
        join(corner.hierarchy, corner.groups.group(WEB), pid)
        assert allowed(pid) == [str(corner.rest)]


def test_foreign_processes_on_exclusive_cpus_are_found(corner: Corner) -> None:
    with corner.running(DB, corner.granted) as db, corner.running(WEB, corner.granted) as web, sleeper() as foreign:
        found = {task.pid for task in foreign_tasks(PROC, corner.last, {db})}
        assert foreign in found
        assert not found & {db, web}


def test_a_parent_that_lacks_cpus_is_named_for_every_group_it_holds_back(corner: Corner) -> None:
    with corner.running(WEB, corner.granted):
        corner.hierarchy.write(corner.parent, Settings(cpus=corner.rest))
        assert corner.hierarchy.bounds(corner.parent)[0] == corner.rest
        failed = corner.apply(corner.shared).failed
        assert set(failed) == {PodCgroup("s"), WEB}
        assert all(str(corner.rest) in str(error) and error.hint for error in failed.values())
        corner.groups.open()
        assert corner.apply(corner.shared).failed == {}


def kubepods(corner: Corner) -> tuple[Callable[[], Mapping[CgroupKey, PurePosixPath]], PurePosixPath]:
    """What a kubelet with the cgroupfs driver and containerd make: the pause container has a set of its own on v1."""
    root = f"/{corner.parent}"
    ids = {"a" * 64: DB, "b" * 64: WEB}
    one, two = (
        pod_cgroup(Driver.CGROUPFS, QOSClass.GUARANTEED, "e", root),
        pod_cgroup(Driver.CGROUPFS, QOSClass.BURSTABLE, "s", root),
    )
    for group in (one / ("a" * 64), one / ("f" * 64), two / ("b" * 64), two / ("e" * 64)):
        corner.hierarchy.create(group)
    driver = detect_driver(corner.hierarchy, root)
    assert driver is Driver.CGROUPFS
    return lambda: find_kubepods(corner.hierarchy, driver, ids, root), two


def test_a_kubelets_cgroups_are_narrowed_with_their_pause_containers(corner: Corner) -> None:
    find, burstable = kubepods(corner)
    enforcer = CgroupEnforcer(corner.hierarchy, find, time.monotonic)
    with sleeper() as pause:
        join(corner.hierarchy, burstable / ("e" * 64), pause)
        applied = enforcer.apply(pins(corner.granted, {}, enforcer.observe().groups, Rules()))
        assert applied.failed == {}
        assert allowed(pause) == [str(corner.rest)]
    sets = {key: str(seen.effective) for key, seen in enforcer.observe().groups.items()}
    assert sets == {
        QOSCgroup(QOSClass.BURSTABLE): str(corner.rest),
        PodCgroup("e"): str(corner.all),
        replace(DB, instance="a" * 64): str(corner.last),
        PodCgroup("s"): str(corner.rest),
        replace(WEB, instance="b" * 64): str(corner.rest),
    }


def test_a_restarted_container_keeps_its_cpus_whatever_the_order_of_stop_and_start(corner: Corner) -> None:
    root = f"/{corner.parent}"
    ids: dict[str, ContainerCgroup] = {}
    pod = pod_cgroup(Driver.CGROUPFS, QOSClass.GUARANTEED, "e", root)
    enforcer = CgroupEnforcer(
        corner.hierarchy, lambda: find_kubepods(corner.hierarchy, Driver.CGROUPFS, ids, root), time.monotonic
    )
    first, second = pod / ("1" * 64), pod / ("2" * 64)

    def start(group: PurePosixPath) -> None:
        corner.hierarchy.create(group)
        ids[group.name] = DB
        enforcer.apply(pins(corner.granted, {}, enforcer.observe().groups, Rules()))

    start(first)
    assert corner.hierarchy.observe(first).cpus == corner.last
    start(second)  # before the first is gone
    assert corner.hierarchy.observe(first).cpus == corner.hierarchy.observe(second).cpus == corner.last
    corner.hierarchy.remove(first)
    assert corner.hierarchy.observe(second).cpus == corner.last
    corner.hierarchy.remove(second)
    start(second)  # after
    assert corner.hierarchy.observe(second).cpus == corner.last
    assert enforcer.observe().drift == ()


def test_quotas_of_a_pod_are_lifted_parent_first_and_tightened_child_first(corner: Corner) -> None:
    pod = corner.groups.group(DB).parent
    if "cpu" not in corner.hierarchy.controllers:
        pytest.skip("no cpu controller here")
    corner.groups.prepare(DB, Settings(quota_us=100_000), Settings(quota_us=50_000))
    with pytest.raises(CgroupError) if corner.hierarchy.version == 1 else contextlib.nullcontext():
        corner.hierarchy.write(corner.groups.group(DB), Settings(quota_us=150_000))
    corner.hierarchy.write(pod, Settings(quota_us=200_000))
    corner.hierarchy.write(corner.groups.group(DB), Settings(quota_us=150_000))
    assert corner.hierarchy.observe(corner.groups.group(DB)).quota_us == 150_000
