"""Pods as a kubelet shows them: which sizes it has accepted, which containers run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agent.formats.node_pods import container_id, decode_node_pod
from tests.pods import spelt
from tests.shared import SHARED

ID = "ab" * 32


def pod(
    spec: dict[str, Any], allocated: dict[str, str] | None = None, limits: dict[str, str] | None = None
) -> dict[str, Any]:
    status: dict[str, Any] = {"name": "app", "containerID": f"containerd://{ID}", "state": {"running": {}}}
    if allocated is not None:
        status["allocatedResources"] = allocated
    if limits is not None:
        status["resources"] = {"limits": limits}
    return {
        "metadata": {"name": "web", "uid": "u-1", "annotations": {}},
        "spec": {"containers": [{"name": "app", "resources": spec}]},
        "status": {"phase": "Running", "containerStatuses": [status]},
    }


TWO = {"requests": {"cpu": "2"}, "limits": {"cpu": "2"}}


@pytest.mark.parametrize(
    ("obj", "expected"),
    [
        pytest.param(pod(TWO), "cpu=2/cpu=2", id="a kubelet without in-place resize"),
        pytest.param(pod(TWO, {"cpu": "2"}), "cpu=2/cpu=2", id="accepted"),
        pytest.param(pod(TWO, {"cpu": "2000m"}), "cpu=2/cpu=2", id="accepted, spelt otherwise"),
        pytest.param(pod(TWO, {"cpu": "1"}, {"cpu": "1"}), "cpu=1/cpu=1", id="the resize waits"),
        pytest.param(pod(TWO, {"cpu": "1"}), "cpu=1/cpu=2", id="the resize waits, and the limits are not told"),
        pytest.param(pod(TWO, {"memory": "1Gi"}), "cpu=2/cpu=2", id="of another resource"),
    ],
)
def test_the_sizes_that_the_kubelet_has_accepted_count(obj: dict[str, Any], expected: str) -> None:
    (container,) = decode_node_pod(obj).pod.containers
    assert f"{spelt(container.resources.requests)}/{spelt(container.resources.limits)}" == expected


def test_pod_level_sizes_too() -> None:
    obj = pod(TWO)
    obj["spec"]["resources"] = {"requests": {"cpu": "4"}, "limits": {"cpu": "4"}}
    obj["status"] |= {"allocatedResources": {"cpu": "3"}, "resources": {"limits": {"cpu": "3"}}}
    resources = decode_node_pod(obj).pod.resources
    assert resources is not None
    assert (spelt(resources.requests), spelt(resources.limits)) == ("cpu=3", "cpu=3")


def test_status_and_the_copied_manifest_are_not_kept() -> None:
    obj = pod(TWO)
    obj["metadata"]["annotations"] = {"kubectl.kubernetes.io/last-applied-configuration": "{}", "mine": "kept"}
    found = decode_node_pod(obj)
    assert found.pod.annotations == {"mine": "kept"}
    assert not found.pod.status.container_statuses
    assert (found.instances, found.running, found.terminal) == ({ID: "app"}, "app", False)


def test_the_last_container_that_runs_is_told() -> None:
    obj = pod(TWO)
    obj["spec"]["initContainers"] = [{"name": "one"}, {"name": "side", "restartPolicy": "Always"}]
    obj["status"]["containerStatuses"][0]["state"] = {"waiting": {}}
    obj["status"]["initContainerStatuses"] = [
        {"name": "one", "state": {"terminated": {"exitCode": 0}}},
        {"name": "side", "state": {"running": {}}},
    ]
    assert decode_node_pod(obj).running == "side"


@pytest.mark.parametrize(
    ("owners", "controller"),
    [
        pytest.param([{"kind": "ReplicaSet", "controller": True}], "ReplicaSet", id="its controller"),
        pytest.param([{"kind": "A"}, {"kind": "Job", "controller": True}], "Job", id="one of several owners"),
        pytest.param([{"kind": "A"}, {"kind": "B", "controller": False}], "", id="owners that do not manage it"),
        pytest.param(None, "", id="no owner"),
        pytest.param([7, {"controller": True}, {"kind": 7, "controller": True}], "", id="nonsense"),
        pytest.param("DaemonSet", "", id="no list"),
    ],
)
def test_the_controller_is_told(owners: object, controller: str) -> None:
    obj = pod(TWO)
    obj["metadata"]["ownerReferences"] = owners
    assert decode_node_pod(obj).controller == controller


def test_a_static_pods_copy_has_the_uid_that_the_kubelet_knows() -> None:
    """Its cgroups carry the hash of its file, not the UID of the API server's copy."""
    obj = pod(TWO)
    obj["metadata"]["annotations"] = {"kubernetes.io/config.mirror": "0123456789abcdef" * 2}
    assert decode_node_pod(obj).pod.uid == "0123456789abcdef" * 2
    obj["metadata"]["annotations"] = {"kubernetes.io/config.mirror": "../../etc"}
    assert decode_node_pod(obj).pod.uid == "u-1"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"containerd://{ID}", ID),
        (f"cri-o://{ID}", ID),
        (ID, ""),
        ("containerd://short", ""),
        ("", ""),
        (f"x://{ID}\n", ""),
    ],
)
def test_container_id(text: str, expected: str) -> None:
    assert container_id(text) == expected


@pytest.mark.shared
@pytest.mark.parametrize(
    ("name", "stays"),
    [("deferred", True), ("infeasible", True), ("inprogress", False), ("error", False), ("done", False)],
)
def test_recorded_resizes(shared_dir: Path, name: str, stays: bool) -> None:
    """Deferred and infeasible ones have not been accepted, all others have."""
    obj = json.loads((SHARED / f"samples/pods/pod-{name}.json").read_text())
    for container, raw in zip(decode_node_pod(obj).pod.containers, obj["spec"]["containers"], strict=True):
        wanted = raw["resources"]["requests"]["cpu"]
        assert (str(container.resources.requests["cpu"]) != wanted) is stays
