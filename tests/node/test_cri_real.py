"""Backend `cri` against a real containerd: who runs, cpusets through the runtime, and what its answers are worth."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath

import pytest

from agent.model.cpuset import CPUSet
from agent.model.state import CPUState, Grants
from agent.node.cgroup import Hierarchy
from agent.node.cgroup_errors import CgroupGoneError, RuntimeCallError
from agent.node.cri import CRIClient, RuntimeWriter
from agent.node.enforcer import CgroupEnforcer
from agent.node.kubelet_cgroups import KubeletCgroups
from agent.node.tasks import affinity
from agent.policy.cgroup_intents import Rules
from agent.policy.cgroup_names import CgroupKey, ContainerCgroup
from agent.policy.cgroup_settings import Settings
from agent.policy.pins import pins
from tests.node.cgroup_parent import need_cpus, real_parent
from tests.node.containerd import Containerd, Message, private_containerd

pytestmark = pytest.mark.real
ALL = frozenset({"cpuset", "cpu", "memory"})


@pytest.fixture(scope="module")
def runtime() -> Iterator[Containerd]:
    with private_containerd() as found:
        yield found


class Node:
    """A corner of the cgroup tree as a kubelet's, pods in it, and pinfold's view of them."""

    def __init__(self, runtime: Containerd, hierarchy: Hierarchy, parent: PurePosixPath) -> None:
        self.runtime = runtime
        self.hierarchy = hierarchy
        self.parent = parent
        self.client = CRIClient(runtime.socket)
        self.cgroups = KubeletCgroups(hierarchy, f"/{parent}", self.client.instances)
        self.writer = RuntimeWriter(hierarchy, self.client)
        self.enforcer = CgroupEnforcer(self.writer, self.containers, time.monotonic, name="cri")

    def pod(self, uid: str) -> tuple[str, Message]:
        return self.runtime.pod(uid, f"/{self.parent}/kubepods/pod{uid}")

    def containers(self) -> Mapping[CgroupKey, PurePosixPath]:
        return {key: group for key, group in self.cgroups.find().items() if isinstance(key, ContainerCgroup)}

    def group(self, instance: str) -> PurePosixPath:
        (found,) = (group for group in self.containers().values() if group.name == instance)
        return found

    def pin(self, shared: str, **own: str) -> None:
        """One turn of the loop, with these CPUs granted: pod -> CPUs of its container main."""
        entries = {uid: {"main": CPUSet.parse(cpus)} for uid, cpus in own.items()}
        grants = Grants(CPUState(CPUSet.parse(shared), entries))
        applied = self.enforcer.apply(pins(grants, {}, self.enforcer.observe().groups, Rules()))
        assert not applied.failed, applied.failed

    def affinities(self, instance: str) -> set[str]:
        return {str(affinity(pid)) for pid in self.hierarchy.processes(self.group(instance))}


@pytest.fixture
def node(runtime: Containerd) -> Iterator[Node]:
    with real_parent(ALL) as (hierarchy, parent):
        need_cpus(2, hierarchy)
        here = Node(runtime, hierarchy, parent)
        yield here
        here.client.close()
        for sandbox in runtime.sandboxes:
            runtime.call("StopPodSandbox", {1: sandbox})
            runtime.call("RemovePodSandbox", {1: sandbox})
        runtime.sandboxes.clear()
    # runc makes the parents in every v1 hierarchy; `real_parent` has removed its own three
    for left in Path("/sys/fs/cgroup").glob(f"*/{parent}"):
        for group, _, _ in os.walk(left, topdown=False):
            with contextlib.suppress(OSError):
                Path(group).rmdir()


def test_the_runtime_says_its_name(node: Node) -> None:
    assert node.client.version().startswith("containerd ")


def test_containers_are_found_by_the_kubelets_labels_and_sandboxes_are_left_out(node: Node) -> None:
    one, two = node.pod("u-1"), node.pod("u-2")
    first, second = node.runtime.container(one, "main"), node.runtime.container(two, "main")
    side = node.runtime.container(one, "side")
    assert set(node.containers()) == {
        ContainerCgroup("u-1", "main", first),
        ContainerCgroup("u-1", "side", side),
        ContainerCgroup("u-2", "main", second),
    }


def test_exclusive_and_shared_containers_really_run_where_they_shall(node: Node) -> None:
    db, web = node.pod("db"), node.pod("web")
    pinned, shared = node.runtime.container(db, "main"), node.runtime.container(web, "main")
    node.pin("0", db="1")
    assert node.affinities(pinned) == {"1"}
    assert node.affinities(shared) == {"0"}
    node.pin("0-1")
    assert node.affinities(pinned) == node.affinities(shared) == {"0-1"}


def test_a_quota_goes_alone_and_leaves_the_cpus(node: Node) -> None:
    made = node.runtime.container(node.pod("db"), "main")
    node.pin("0", db="1")
    node.writer.write(node.group(made), Settings(quota_us=50_000))
    seen = node.hierarchy.observe(node.group(made))
    assert (str(seen.cpus), seen.quota_us) == ("1", 50_000)
    node.writer.write(node.group(made), Settings(quota_us=-1))
    assert node.hierarchy.observe(node.group(made)).quota_us == -1


def test_what_the_kernel_refuses_is_told_with_the_runtimes_words_and_changes_nothing(node: Node) -> None:
    made = node.runtime.container(node.pod("db"), "main")
    node.pin("0", db="1")
    with pytest.raises(RuntimeCallError, match="UNKNOWN"):
        node.writer.write(node.group(made), Settings(cpus=CPUSet.parse("500")))
    assert node.affinities(made) == {"1"}


def test_an_empty_set_is_never_sent(node: Node) -> None:
    made = node.runtime.container(node.pod("db"), "main")
    with pytest.raises(ValueError, match="empty set"):
        node.writer.write(node.group(made), Settings(cpus=CPUSet()))


def test_a_container_that_has_ended_is_gone_although_the_runtime_says_ok(node: Node) -> None:
    made = node.runtime.container(node.pod("db"), "main")
    group = node.group(made)
    node.runtime.call("StopContainer", {1: made})
    with pytest.raises(CgroupGoneError):
        node.writer.write(group, Settings(cpus=CPUSet.parse("1")))
    assert not node.containers()
    node.runtime.call("RemoveContainer", {1: made})
    with pytest.raises(CgroupGoneError, match="no such container"):
        node.writer.write(group, Settings(cpus=CPUSet.parse("1")))


def test_a_restarted_container_is_pinned_again(node: Node) -> None:
    sandbox = node.pod("db")
    first = node.runtime.container(sandbox, "main")
    node.pin("0", db="1")
    node.runtime.call("StopContainer", {1: first})
    second = node.runtime.container(sandbox, "main", attempt=1)
    node.pin("0", db="1")
    assert set(node.containers()) == {ContainerCgroup("db", "main", second)}
    assert node.affinities(second) == {"1"}


def test_a_change_by_somebody_else_is_drift_and_undone(node: Node) -> None:
    made = node.runtime.container(node.pod("db"), "main")
    node.pin("0", db="1")
    node.hierarchy.write(node.group(made), Settings(cpus=CPUSet.parse("0-1")))
    (drift,) = node.enforcer.observe().drift
    assert (drift.setting, drift.written, drift.found) == ("cpus", "1", "0-1")
    node.pin("0", db="1")
    assert node.affinities(made) == {"1"}


def test_a_runtime_that_crashes_costs_nobody_his_cpus_and_is_used_again_afterwards(node: Node) -> None:
    made = node.runtime.container(node.pod("db"), "main")
    node.pin("0", db="1")
    group = node.group(made)
    node.runtime.kill()
    assert set(node.containers()) == {ContainerCgroup("db", "main", made)}  # as it said before
    with pytest.raises(RuntimeCallError, match="UNAVAILABLE"):
        node.writer.write(group, Settings(cpus=CPUSet.parse("0")))
    assert node.affinities(made) == {"1"}
    node.runtime.start()
    end = time.monotonic() + 30
    while time.monotonic() < end:
        try:
            node.client.version()
            break
        except RuntimeCallError:
            time.sleep(0.1)
    node.pin("0-1")
    assert node.affinities(made) == {"0-1"}
