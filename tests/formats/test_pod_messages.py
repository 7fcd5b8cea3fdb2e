"""A pod as a protobuf message says what the same pod says as JSON."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.formats.node_pods import decode_node_pod
from agent.formats.pod_messages import PodMessageError, decode_pod_message
from agent.formats.pods import decode_pod, encode_pod
from agent.model.pod import ContainerKind, ContainerState, Pod, StatusList
from tests.kube.pods_service import pod_bytes
from tests.pods import pods, spelt
from tests.shared import SHARED

times = st.sampled_from(["", "2026-01-01T00:00:00Z", "1999-12-31T23:59:59Z", "9999-12-31T23:59:59Z"])


def as_go_writes(pod: Pod) -> Pod:
    """Empty maps and lists are absent in what Go writes, in JSON as in protobuf."""
    status = pod.status
    resources = status.resources
    return replace(
        pod,
        status=replace(
            status,
            allocated_resources=status.allocated_resources or None,
            resources=resources and replace(resources, limits=resources.limits or None),
            container_statuses=tuple(
                replace(each, allocated_resources=each.allocated_resources or None)
                for each in status.container_statuses
            ),
        ),
    )


@given(pods, times, times)
def test_every_pod_is_read_as_from_json(pod: Pod, created: str, deleted: str) -> None:
    obj = encode_pod(as_go_writes(replace(pod, creation_timestamp=created, deletion_timestamp=deleted)))
    assert decode_pod(decode_pod_message(pod_bytes(obj))) == decode_pod(obj)


def recorded() -> Iterator[Any]:
    """Every pod in the recorded files: single ones, lists, and those in watch events."""
    for path in sorted((SHARED / "samples").rglob("*.json")):
        yield from _pods(json.loads(path.read_text()))


def _pods(value: Any) -> Iterator[Any]:
    if isinstance(value, list):
        for each in value:
            yield from _pods(each)
    elif isinstance(value, dict):
        if "containers" in (value.get("spec") or {}) and value.get("metadata", {}).get("uid"):
            yield value
        else:
            yield from _pods(list(value.values()))


@pytest.mark.shared
def test_recorded_pods_are_read_as_from_json(shared_dir: Path) -> None:
    found = list(recorded())
    assert len(found) > 50
    for obj in found:
        sent = decode_pod_message(pod_bytes(obj))
        assert decode_pod(sent) == decode_pod({**obj, "kind": "Pod"})
        assert decode_node_pod(sent) == decode_node_pod(obj)


# --- the wire, by upstream's field numbers (generated.proto of core/v1, meta/v1 and resource), as Go writes it: with empty texts,
# zeros and empty messages ---


def number(value: int) -> bytes:
    out = b""
    while value > 127:
        out, value = out + bytes([value & 127 | 128]), value >> 7
    return out + bytes([value])


def field(key: int, value: int | str | bytes) -> bytes:
    if isinstance(value, int):
        return number(key << 3) + number(value)
    data = value.encode() if isinstance(value, str) else value
    return number(key << 3 | 2) + number(len(data)) + data


def entry(key: int, name: str, amount: str) -> bytes:
    return field(key, field(1, name) + field(2, field(1, amount)))


def test_upstreams_bytes() -> None:
    resources = entry(1, "cpu", "2") + entry(2, "cpu", "1500m")
    common = field(2, "image") + field(13, "") + field(16, 0)
    container = field(1, "app") + common + field(8, resources)
    sidecar = field(1, "side") + common + field(8, b"") + field(24, "Always")
    debug = field(1, field(1, "debug") + common + field(8, b"")) + field(2, "app")
    created = field(8, field(1, 1767225600) + field(2, 0))
    metadata = field(1, "web") + field(2, "") + field(3, "shop") + field(4, "") + field(5, "u-1") + field(6, "612")
    metadata += field(7, 4) + created + field(9, field(1, 1767225660)) + field(10, 30)
    metadata += field(11, field(1, "app") + field(2, "web")) + field(12, field(1, "note") + field(2, ""))
    metadata += field(13, field(1, "ReplicaSet") + field(3, "web-1") + field(5, "apps/v1") + field(6, 1) + field(7, 1))
    spec = field(1, field(1, "volume")) + field(2, container) + field(3, "Never") + field(4, 30) + field(10, "n1")
    spec += field(11, 0) + field(19, "kai-scheduler") + field(20, sidecar) + field(24, "high") + field(25, 0)
    spec += entry(32, "memory", "64Mi") + field(34, debug) + field(40, entry(1, "memory", "1Gi"))
    running, ended = (
        field(2, field(2, field(1, b""))),
        field(2, field(3, field(1, 0) + field(2, 0) + field(3, "Completed"))),
    )
    status = field(1, "app") + running + field(3, b"") + field(4, 1) + field(5, 3) + field(6, "") + field(7, "")
    status += field(8, "containerd://1") + field(9, 0) + entry(10, "cpu", "1") + field(11, entry(1, "cpu", "3"))
    statuses = field(8, status) + field(10, field(1, "side") + ended + field(4, 0) + field(5, 0))
    statuses += field(13, field(1, "debug") + field(2, field(1, field(1, "why"))))
    condition = field(1, "Ready") + field(2, "True") + field(3, b"") + field(4, b"") + field(5, "r") + field(6, "m")
    phase = field(1, "Running") + field(2, condition) + field(3, "message") + field(4, "reason") + field(5, "10.0.0.1")
    phase += field(9, "Burstable") + entry(19, "cpu", "4") + field(20, entry(2, "cpu", "5")) + field(14, "")
    message = decode_pod_message(field(1, metadata) + field(2, spec) + field(3, phase + statuses))
    assert decode_node_pod(message).controller == "ReplicaSet"
    pod = decode_pod(message)
    assert (pod.uid, pod.namespaced_name, pod.labels, pod.annotations) == (
        "u-1",
        "shop/web",
        {"app": "web"},
        {"note": ""},
    )
    assert (pod.creation_timestamp, pod.deletion_timestamp) == ("2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z")
    assert (pod.restart_policy, pod.node_name, pod.scheduler_name) == ("Never", "n1", "kai-scheduler")
    assert (pod.priority_class_name, pod.priority, spelt(pod.overhead)) == ("high", 0, "memory=64Mi")
    assert pod.resources is not None
    assert spelt(pod.resources.limits) == "memory=1Gi"
    side, app = pod.containers
    assert (side.name, side.kind, app.name, app.kind) == ("side", ContainerKind.SIDECAR, "app", ContainerKind.APP)
    assert (spelt(app.resources.requests), spelt(app.resources.limits)) == ("cpu=1500m", "cpu=2")
    assert pod.ephemeral_containers == ("debug",)
    seen = pod.status
    assert (seen.phase, seen.reason, seen.message, seen.qos_class) == ("Running", "reason", "message", "Burstable")
    assert [(each.type, each.status, each.reason, each.message) for each in seen.conditions] == [
        ("Ready", "True", "r", "m")
    ]
    assert seen.resources is not None
    assert (spelt(seen.allocated_resources), spelt(seen.resources.requests)) == ("cpu=4", "cpu=5")
    init, main, late = sorted(seen.container_statuses, key=lambda each: ["side", "app", "debug"].index(each.name))
    assert (init.state, init.exit_code, init.listed) == (ContainerState.TERMINATED, 0, StatusList.INIT)
    assert (main.state, main.ready, main.started, main.restart_count) == (ContainerState.RUNNING, True, False, 3)
    assert main.resources is not None
    assert (main.container_id, spelt(main.allocated_resources), spelt(main.resources.limits)) == (
        "containerd://1",
        "cpu=1",
        "cpu=3",
    )
    assert (late.state, late.listed) == (ContainerState.WAITING, StatusList.EPHEMERAL)


def test_a_zero_time_is_none() -> None:
    assert decode_pod_message(field(1, field(1, "web") + field(8, b""))) == {
        "metadata": {"name": "web", "creationTimestamp": ""}
    }


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b'{"kind": "Pod"}', id="JSON"),
        pytest.param(field(1, field(1, b"\xff\xfe")), id="a name that is no text"),
        pytest.param(field(1, field(1, "web"))[:-1], id="cut"),
        pytest.param(field(1, field(8, field(1, 2**62))), id="a time beyond all calendars"),
        pytest.param(field(2, "spec"), id="a text where an object belongs"),
    ],
)
def test_what_is_no_pod_is_named(data: bytes) -> None:
    with pytest.raises(PodMessageError, match=f"{len(data)} bytes are not a core/v1 Pod"):
        decode_pod_message(data)


@given(st.binary(max_size=200))
def test_no_bytes_do_worse(data: bytes) -> None:
    with contextlib.suppress(PodMessageError):
        assert isinstance(decode_pod_message(data), dict)
