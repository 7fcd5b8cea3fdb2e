"""Finding what a kubelet and its runtime made, on the scripted v2 tree, with both drivers and runtimes."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

import pytest

from agent.model.pod import QOSClass
from agent.node.cgroup import Hierarchy, detect
from agent.node.kubepods import detect_driver, find_kubepods
from agent.policy.cgroup_names import (
    ContainerCgroup,
    Driver,
    PodCgroup,
    QOSCgroup,
    pod_cgroup,
    qos_cgroup,
)
from tests.node.scripted_cgroup2 import ScriptedV2
from tests.runtime_names import Runtime, container_leaf

DB, PAUSE, WEB = "a" * 64, "b" * 64, "c" * 64
IDS = {DB: ContainerCgroup("u-1", "db"), WEB: ContainerCgroup("u-2", "web")}


@pytest.fixture
def hierarchy(tmp_path: Path) -> Hierarchy:
    kernel = ScriptedV2(tmp_path / "cgroup")
    return detect(kernel.root, kernel)


def node(hierarchy: Hierarchy, driver: Driver, runtime: Runtime, root: str) -> tuple[PurePosixPath, PurePosixPath]:
    one = pod_cgroup(driver, QOSClass.GUARANTEED, "u-1", root)
    two = pod_cgroup(driver, QOSClass.BURSTABLE, "u-2", root)
    for group in (
        one / container_leaf(driver, runtime, DB) / "container",
        one / container_leaf(driver, runtime, PAUSE),
        two / container_leaf(driver, runtime, WEB),
        qos_cgroup(driver, QOSClass.BEST_EFFORT, root),
        qos_cgroup(driver, QOSClass.GUARANTEED, root) / "something-else",
        one / f"crio-conmon-{DB}.scope",
    ):
        hierarchy.create(group)
    return one, two


@pytest.mark.parametrize("root", ["/", "/kubelet"])
@pytest.mark.parametrize("runtime", Runtime)
@pytest.mark.parametrize("driver", Driver)
def test_pods_and_known_containers_are_found(hierarchy: Hierarchy, driver: Driver, runtime: Runtime, root: str) -> None:
    assert detect_driver(hierarchy, root) is None
    one, two = node(hierarchy, driver, runtime, root)
    assert detect_driver(hierarchy, root) is driver
    assert find_kubepods(hierarchy, driver, IDS, root) == {
        QOSCgroup(QOSClass.BURSTABLE): qos_cgroup(driver, QOSClass.BURSTABLE, root),
        QOSCgroup(QOSClass.BEST_EFFORT): qos_cgroup(driver, QOSClass.BEST_EFFORT, root),
        PodCgroup("u-1"): one,
        PodCgroup("u-2"): two,
        ContainerCgroup("u-1", "db", DB): one / container_leaf(driver, runtime, DB),
        ContainerCgroup("u-2", "web", WEB): two / container_leaf(driver, runtime, WEB),
    }


def test_both_instances_of_a_restarting_container_are_found(hierarchy: Hierarchy) -> None:
    driver, runtime = Driver.SYSTEMD, Runtime.CONTAINERD
    one, _ = node(hierarchy, driver, runtime, "/")
    later = "d" * 64
    hierarchy.create(one / container_leaf(driver, runtime, later))
    found = find_kubepods(hierarchy, driver, {**IDS, later: ContainerCgroup("u-1", "db")})
    for instance in (DB, later):
        group = one / container_leaf(driver, runtime, instance)
        assert found[ContainerCgroup("u-1", "db", instance)] == group


def test_a_node_without_a_kubelet_has_nothing(hierarchy: Hierarchy) -> None:
    assert find_kubepods(hierarchy, Driver.CGROUPFS, IDS) == {}
