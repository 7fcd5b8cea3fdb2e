"""core/v1 Pods: what is kept, there and back, and every wrong field named."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given

from agent.formats.pods import PodError, decode_pod, encode_pod
from agent.model.pod import ContainerState, Pod, ResourceRequirements, StatusList
from tests.pods import pods, spelt
from tests.shared import SHARED


def manifest(**spec: object) -> dict[str, Any]:
    return {"metadata": {"name": "web"}, "spec": {"containers": [{"name": "app"}], **spec}}


def with_container(**fields: object) -> dict[str, Any]:
    return manifest(containers=[{"name": "app", **fields}])


def refusal(obj: object) -> str:
    with pytest.raises(PodError) as refused:
        decode_pod(obj)  # type: ignore[arg-type]
    assert refused.value.hint
    return str(refused.value)


@given(pods)
def test_a_pod_comes_back_as_it_was(pod: Pod) -> None:
    encoded = encode_pod(pod)
    assert decode_pod(encoded) == pod
    assert decode_pod(json.loads(json.dumps(encoded))) == pod


@given(pods, pods)
def test_a_pod_reads_the_same_with_an_earlier_form_of_it(before: Pod, after: Pod) -> None:
    earlier = encode_pod(before)
    known = earlier, decode_pod(earlier)
    for later in (encode_pod(after), {**encode_pod(after), "status": earlier.get("status", {})}):
        assert decode_pod(later, known) == decode_pod(later)
    with pytest.raises(PodError, match=r"status\.phase"):
        decode_pod({**earlier, "status": {"phase": 1}}, known)


def test_a_pod_needs_little() -> None:
    pod = decode_pod({"metadata": {"name": "web"}})
    assert pod == Pod(uid="", name="web", namespace="default")
    assert encode_pod(pod) == {"metadata": {"name": "web", "namespace": "default"}, "spec": {}}


def test_an_init_container_that_always_restarts_is_a_sidecar() -> None:
    policies = ("Always", "OnFailure", "Never", "Sometimes", None)
    inits = [{"name": f"i{index}", "restartPolicy": policy} for index, policy in enumerate(policies)]
    pod = decode_pod(manifest(initContainers=inits))
    assert [str(container.kind) for container in pod.containers] == ["sidecar", "init", "init", "init", "init", "app"]


def test_nothing_is_defaulted_but_the_namespace() -> None:
    pod = decode_pod(with_container(resources={"limits": {"cpu": "1"}}))
    assert pod.containers[0].resources.requests == {}
    assert pod.namespace == "default"


def test_an_empty_pod_level_object_is_not_the_same_as_none() -> None:
    assert decode_pod(manifest(resources={})).resources == ResourceRequirements()
    assert decode_pod(manifest(resources=None)).resources is None


def test_what_decides_the_life_of_a_pod_is_kept() -> None:
    pod = decode_pod(
        {
            "metadata": {
                "name": "web",
                "namespace": "team-a",
                "uid": "u-1",
                "deletionTimestamp": "2026-01-01T00:00:00Z",
            },
            "spec": {
                "containers": [{"name": "app", "image": "x", "env": [{"name": "A"}]}],
                "ephemeralContainers": [{"name": "debug"}],
                "priority": 7,
                "priorityClassName": "high",
                "nodeName": "n1",
            },
            "status": {
                "phase": "Failed",
                "reason": "Evicted",
                "containerStatuses": [
                    {
                        "name": "app",
                        "state": {"terminated": {"exitCode": 3}},
                        "restartCount": 2,
                        "containerID": "containerd://1",
                    }
                ],
                "initContainerStatuses": [{"name": "side", "state": {"running": {}}, "started": True, "ready": True}],
                "ephemeralContainerStatuses": [{"name": "debug", "state": {"waiting": {}}}],
            },
        }
    )
    assert pod.namespaced_name == "team-a/web"
    assert pod.terminating
    assert pod.terminal
    assert (pod.priority, pod.priority_class_name, pod.node_name) == (7, "high", "n1")
    assert pod.ephemeral_containers == ("debug",)
    app, side, debug = pod.status.container_statuses
    assert (app.state, app.exit_code, app.restart_count) == (ContainerState.TERMINATED, 3, 2)
    assert (app.container_id, app.listed) == ("containerd://1", StatusList.APP)
    assert (side.state, side.started, side.ready, side.listed) == (ContainerState.RUNNING, True, True, StatusList.INIT)
    assert (debug.state, debug.listed) == (ContainerState.WAITING, StatusList.EPHEMERAL)


def test_paths_of_containers_count_each_list_by_itself() -> None:
    pod = decode_pod(manifest(initContainers=[{"name": "i"}, {"name": "s", "restartPolicy": "Always"}]))
    assert [(path, container.name) for path, container in pod.spec_paths()] == [
        ("spec.initContainers[0]", "i"),
        ("spec.initContainers[1]", "s"),
        ("spec.containers[0]", "app"),
    ]


@pytest.mark.parametrize(
    ("obj", "where"),
    [
        pytest.param(None, "pod without a name: metadata.name: required", id="no object"),
        pytest.param([], "pod without a name: must be an object, not a list", id="a list"),
        pytest.param({"metadata": {}}, "pod without a name: metadata.name: required", id="no name"),
        pytest.param(
            {"metadata": 1}, "pod without a name: metadata: must be an object, not an integer", id="no metadata"
        ),
        pytest.param(
            {"metadata": {"name": "../etc"}}, "metadata.name: '../etc' is not a valid name", id="a path as name"
        ),
        pytest.param({"metadata": {"name": "Web"}}, "metadata.name: 'Web' is not a valid name", id="upper case"),
        pytest.param(
            {"metadata": {"name": "web\n"}}, r"metadata.name: 'web\n' is not a valid name", id="a line break behind"
        ),
        pytest.param({"metadata": {"name": "a." * 127 + "a"}}, "metadata.name: ", id="a long name"),
        pytest.param(
            {"metadata": {"name": "web", "namespace": "a/b"}}, "metadata.namespace: 'a/b'", id="a path as namespace"
        ),
        pytest.param(
            {"metadata": {"name": "web", "namespace": "a.b"}}, "metadata.namespace: 'a.b'", id="dots in a namespace"
        ),
        pytest.param({"metadata": {"name": "web", "uid": ".."}}, "metadata.uid: '..'", id="a path as uid"),
        pytest.param({"metadata": {"name": "web", "uid": "a/b"}}, "metadata.uid: 'a/b'", id="a slash in a uid"),
        pytest.param(
            {"metadata": {"name": "web", "labels": {"a": 1}}}, "metadata.labels[a]: must be a string", id="label"
        ),
        pytest.param({**manifest(), "kind": "Node"}, "kind: must be Pod, not Node", id="another kind"),
        pytest.param(manifest(containers={}), "spec.containers: must be a list, not an object", id="no list"),
        pytest.param(
            manifest(containers=[1]), "spec.containers[0]: must be an object, not an integer", id="no container"
        ),
        pytest.param(manifest(containers=[{}]), "spec.containers[0].name: required", id="a container without a name"),
        pytest.param(manifest(containers=[{"name": "a"}] * 2), "spec.containers[1].name: a is the name of", id="twice"),
        pytest.param(
            manifest(initContainers=[{"name": "app"}]), "spec.containers[0].name: app is the name of", id="two lists"
        ),
        pytest.param(
            manifest(ephemeralContainers=[{"name": "app"}]), "spec.ephemeralContainers[0].name: app", id="ephemeral"
        ),
        pytest.param(manifest(containers=[{"name": "a"}] * 501), "spec.containers: has 501 elements", id="too many"),
        pytest.param(manifest(priority="high"), "spec.priority: must be an integer, not a string", id="priority"),
        pytest.param(manifest(priority=True), "spec.priority: must be an integer, not a boolean", id="priority true"),
        pytest.param(manifest(priority=2**31), "spec.priority: is not a 32-bit integer", id="priority too high"),
        pytest.param(manifest(resources=1), "spec.resources: must be an object", id="resources"),
        pytest.param(
            with_container(resources={"requests": {"cpu": "1x"}}),
            "pod default/web: spec.containers[0].resources.requests[cpu]: invalid quantity '1x'",
            id="a quantity",
        ),
        pytest.param(
            with_container(resources={"requests": {"cpu": None}}), "requests[cpu]: invalid quantity None", id="none"
        ),
        pytest.param(
            with_container(resources={"requests": {"a/../b": 1}}), "is not a resource name", id="a resource's name"
        ),
        pytest.param(
            with_container(resources={"limits": ["cpu"]}), "limits: must be an object, not a list", id="no map"
        ),
        pytest.param(
            manifest(overhead={"cpu": "1e999"}), "spec.overhead[cpu]: invalid quantity '1e999'", id="overhead"
        ),
        pytest.param(
            {**manifest(), "status": {"phase": 1}}, "status.phase: must be a string, not an integer", id="status"
        ),
        pytest.param(
            {**manifest(), "status": {"containerStatuses": [{"name": "app", "ready": "yes"}]}},
            "status.containerStatuses[0].ready: must be a boolean, not a string",
            id="a container's status",
        ),
    ],
)
def test_a_wrong_field_is_named(obj: object, where: str) -> None:
    assert where in refusal(obj)


def test_an_error_is_short_however_long_the_field() -> None:
    assert len(refusal({"metadata": {"name": "x" * 4000}})) < 600
    assert len(refusal({"metadata": {"name": "x" * 10**6}})) < 600
    assert len(refusal(with_container(resources={"requests": {"x" * 10**6: 1}}))) < 600


def objects(value: object) -> Iterator[dict[str, Any]]:
    """The pods anywhere in a document."""
    if isinstance(value, dict):
        metadata, spec = value.get("metadata"), value.get("spec")
        if isinstance(spec, dict) and "containers" in spec and isinstance(metadata, dict) and "name" in metadata:
            yield value
            return
        value = list(value.values())
    if isinstance(value, list):
        for each in value:
            yield from objects(each)


@pytest.mark.shared
def test_every_pod_that_a_real_part_gave_is_read_and_written_back() -> None:
    found = 0
    for path in sorted((SHARED / "samples").rglob("*.json")):
        for each in objects(json.loads(path.read_text())):
            pod = decode_pod(each)
            assert decode_pod(encode_pod(pod)) == pod
            found += 1
    assert found > 50


@pytest.mark.shared
def test_a_pod_of_a_real_kubelet_says_what_it_runs() -> None:
    listed = json.loads((SHARED / "samples/kubelet/host-v1-with-apiserver/pods.json").read_text())
    pods = {pod.name: pod for pod in map(decode_pod, listed["items"])}
    refused = pods["toolarge"]
    assert refused.terminal
    assert (refused.status.reason, refused.status.container_statuses) == ("UnexpectedAdmissionError", ())
    running = next(pod for pod in pods.values() if pod.status.phase == "Running")
    assert running.status.resources is not None
    assert spelt(running.status.resources.requests) == spelt(running.status.allocated_resources)
    assert all(status.state is ContainerState.RUNNING for status in running.status.container_statuses)
