"""The runtime is asked whose a container is when nobody has told, and not for ever."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from agent.model.pod import QOSClass
from agent.node.cgroup import Hierarchy, detect
from agent.node.cgroup_errors import RuntimeCallError
from agent.node.kubelet_cgroups import Instances, KubeletCgroups
from agent.policy.cgroup_names import ContainerCgroup, Driver, pod_cgroup
from tests.node.scripted_cgroup2 import ScriptedV2
from tests.runtime_names import Runtime, container_leaf

DB, PAUSE, WEB = "a" * 64, "b" * 64, "c" * 64


@dataclass
class Node:
    """A kubelet's cgroups, a runtime that answers `says`, and ten seconds from look to look."""

    hierarchy: Hierarchy
    says: dict[str, ContainerCgroup] = field(default_factory=dict)
    down: bool = False
    asked: int = 0
    now: float = 1000.0

    def __post_init__(self) -> None:
        self.cgroups = KubeletCgroups(self.hierarchy, ask=self.ask, clock=lambda: self.now)

    def ask(self) -> Instances:
        self.asked += 1
        if self.down:
            raise RuntimeCallError("runtime.sock", "UNAVAILABLE")
        return dict(self.says)

    def make(self, uid: str, *ids: str) -> None:
        pod = pod_cgroup(Driver.SYSTEMD, QOSClass.GUARANTEED, uid)
        for each in ids:
            self.hierarchy.create(pod / container_leaf(Driver.SYSTEMD, Runtime.CONTAINERD, each))

    def look(self, times: int = 1) -> set[str]:
        """The containers that are found at the last of these looks."""
        for _ in range(times):
            self.now += 10
            found = self.cgroups.find()
        return {key.container for key in found if isinstance(key, ContainerCgroup)}

    def asked_in(self, looks: int) -> int:
        before = self.asked
        self.look(looks)
        return self.asked - before


@pytest.fixture
def node(tmp_path: Path) -> Node:
    kernel = ScriptedV2(tmp_path / "cgroup")
    return Node(detect(kernel.root, kernel))


def test_a_container_is_known_at_the_first_look_and_then_nobody_is_asked(node: Node) -> None:
    node.make("u-1", DB)
    node.says = {DB: ContainerCgroup("u-1", "db")}
    assert node.look() == {"db"}
    assert (node.asked, node.asked_in(20)) == (1, 0)
    node.make("u-2", WEB)
    node.says[WEB] = ContainerCgroup("u-2", "web")
    assert node.look() == {"db", "web"}
    assert node.asked_in(20) == 0


def test_one_that_its_pod_has_told_of_is_not_asked_about(node: Node) -> None:
    node.make("u-1", DB)
    node.look()
    node.cgroups.told = {DB: ContainerCgroup("u-1", "db")}
    assert node.look() == {"db"}
    assert node.asked_in(20) == 0


def test_an_exited_container_that_left_its_cgroup_is_forgotten_in_ten_minutes(node: Node) -> None:
    node.make("u-1", DB)
    node.says = {DB: ContainerCgroup("u-1", "db")}
    assert node.look() == {"db"}
    node.says = {}
    assert node.look(60) == set()


def test_pause_containers_are_asked_about_for_a_minute(node: Node) -> None:
    node.make("u-1", DB, PAUSE)
    node.says = {DB: ContainerCgroup("u-1", "db")}
    assert node.asked_in(50) == 6
    node.make("u-2", WEB)
    assert node.asked_in(50) == 6


def test_a_container_that_the_runtime_lists_late_is_found(node: Node) -> None:
    node.make("u-1", DB)
    assert node.look(3) == set()
    node.says = {DB: ContainerCgroup("u-1", "db")}
    assert node.look() == {"db"}


def test_a_runtime_that_is_away_is_asked_until_it_is_back_and_what_it_said_holds(node: Node) -> None:
    node.make("u-1", DB)
    node.says = {DB: ContainerCgroup("u-1", "db")}
    node.look()
    node.down = True
    node.make("u-2", WEB)
    assert node.look(30) == {"db"}
    node.down, node.says = False, {**node.says, WEB: ContainerCgroup("u-2", "web")}
    assert node.look() == {"db", "web"}
