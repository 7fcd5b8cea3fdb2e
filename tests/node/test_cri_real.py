"""Backend `cri` against a real containerd: who runs, cpusets through the runtime, and what its answers are worth."""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath

import pytest

from agent.backends import assemble
from agent.config_schema import Config
from agent.model.cpuset import CPUSet
from agent.model.state import CPUState, Grants
from agent.node.cgroup import Hierarchy, detect
from agent.node.cgroup_errors import CgroupGoneError, CgroupPermissionError, RuntimeCallError
from agent.node.cgroup_files import KernelFiles
from agent.node.cri import CRIClient, RuntimeWriter
from agent.node.enforcer import Enforcer
from agent.node.kubelet_cgroups import KubeletCgroups
from agent.node.tasks import affinity
from agent.policy.cgroup_intents import Rules
from agent.policy.cgroup_names import CgroupKey, ContainerCgroup
from agent.policy.cgroup_settings import Settings
from agent.policy.pins import pins
from tests.node.cgroup_parent import ROOT, need_cpus, real_parent
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
        self.held = contextlib.ExitStack()
        self.enforcer = self.backend()

    def backend(self, **enforcement: object) -> Enforcer:
        section = {
            "backend": "cri",
            "runtimeEndpoint": self.runtime.socket,
            "kubeletCgroupRoot": f"/{self.parent}",
            **enforcement,
        }
        config = Config.model_validate({"sources": {"kubelet": {}}, "enforcement": section})
        return assemble(config, self.held).open().enforcer

    def pod(self, uid: str, qos: str = "") -> tuple[str, Message]:
        return self.runtime.pod(uid, f"/{self.parent}/kubepods{qos}/pod{uid}")

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
        here.held.close()
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


def test_a_container_made_while_cpus_are_held_starts_outside_of_them_before_the_runtime_is_told(node: Node) -> None:
    db = node.pod("db")
    pinned = node.runtime.container(db, "main")
    burstable, guaranteed = node.pod("web", "/burstable"), node.pod("later")
    node.pin("0", db="1")
    new = node.pod("new", "/burstable")
    late = [node.runtime.container(pod, "main") for pod in (burstable, new, guaranteed)]
    assert [node.affinities(each) for each in late] == [{"0"}] * 3
    assert node.affinities(pinned) == {"1"}
    node.pin("0-1")
    assert [node.affinities(each) for each in late] == [{"0-1"}] * 3


def test_with_containers_only_the_cgroups_around_are_left_alone(node: Node) -> None:
    node.enforcer = node.backend(containersOnly=True)
    pinned = node.runtime.container(node.pod("db"), "main")
    web = node.pod("web", "/burstable")
    early = node.runtime.container(web, "main")
    node.pin("0", db="1")
    assert (node.affinities(pinned), node.affinities(early)) == ({"1"}, {"0"})
    late = node.runtime.container(web, "late")
    everything = node.hierarchy.bounds(PurePosixPath())[0]
    assert node.affinities(late) == {str(everything)}  # until the next turn
    node.pin("0", db="1")
    assert node.affinities(late) == {"0"}


class ReadOnlyFiles(KernelFiles):
    """As in a container whose /sys/fs/cgroup is mounted read-only."""

    def write(self, path: str, text: str) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)


def test_a_pods_cgroup_that_the_agent_may_not_write_is_told_with_the_way_out(node: Node) -> None:
    made = node.runtime.container(node.pod("db"), "main")
    writer = RuntimeWriter(detect(ROOT, ReadOnlyFiles(), controllers=ALL), node.client)
    group = node.group(made)
    writer.write(group, Settings(cpus=CPUSet.parse("1")))
    assert node.affinities(made) == {"1"}
    with pytest.raises(CgroupPermissionError, match="containers start on every CPU") as refused:
        writer.write(group.parent, Settings(cpus=CPUSet.parse("1")))
    assert "enforcement.containersOnly" in refused.value.hint


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
