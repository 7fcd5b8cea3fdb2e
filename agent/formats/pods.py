"""core/v1 Pods as JSON objects <-> `Pod`: what decisions need is kept, the rest is passed over.

Decoding takes a pod as it is written; defaults of static pods are `agent.formats.pod_defaults`, what an API server refuses about
resources is `agent.policy.pod_validation`. Names are checked here since they become parts of paths and cgroup names.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TypeAlias

from agent.errors import BadInputError
from agent.formats.kube_object import KubeField, KubeFieldError
from agent.formats.resource_lists import (
    decode_optional,
    decode_requirements,
    decode_resources,
    encode_requirements,
    encode_resources,
)
from agent.model.pod import (
    Container,
    ContainerKind,
    ContainerState,
    ContainerStatus,
    Pod,
    PodCondition,
    PodStatus,
    PodStatusResources,
    StatusList,
)

JSONObject: TypeAlias = Mapping[str, object]

MAX_CONTAINERS = 500  # far above what a node runs, far below what hurts
MAX_METADATA = 5000  # labels or annotations; the API server's bound is 256 KiB of annotations in all
MAX_ANNOTATION = 256 * 1024
MAX_TEXT = 4096  # any other text: reasons, messages, ids

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_SUBDOMAIN = re.compile(rf"{_LABEL.pattern}(\.{_LABEL.pattern})*")
_UID = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,126}[A-Za-z0-9])?")
_NAME_HINT = "lower case letters, digits and '-', beginning and ending with a letter or digit (RFC 1123)"


class PodError(BadInputError):
    """A pod that cannot be read: `pod` is its "namespace/name" as far as known, `path` the field, `why` the matter."""

    def __init__(self, pod: str, error: KubeFieldError) -> None:
        super().__init__(f"pod {pod}: {error}", hint=error.hint)
        self.pod = pod
        self.path = error.path
        self.why = error.why


def decode_pod(obj: JSONObject, before: tuple[JSONObject, Pod] | None = None) -> Pod:
    """Read a core/v1 Pod, without defaulting. Only the namespace gets one: "default".

    before: an earlier form of the pod, and what was read of it: a status that is the same is not read again.

    Raises PodError naming the field: a wrong type, a bad name or quantity, two containers of one name, absurd sizes.
    """
    status = None
    if before is not None and obj.get("status") == before[0].get("status"):
        status = before[1].status
    try:
        return _pod(KubeField(obj), status)
    except KubeFieldError as error:
        raise PodError(describe(obj), error) from error


def describe(obj: object) -> str:
    """ "namespace/name" of something that should be a pod, as far as it can be told, for error messages."""
    metadata = obj.get("metadata") if isinstance(obj, Mapping) else None
    name = metadata.get("name") if isinstance(metadata, Mapping) else None
    namespace = metadata.get("namespace") if isinstance(metadata, Mapping) else None
    if not isinstance(name, str) or not name:
        return "without a name"
    return f"{namespace if isinstance(namespace, str) and namespace else 'default'}/{name}"[:320]


def _pod(root: KubeField, status: PodStatus | None) -> Pod:
    """status: where it is known already."""
    kind = root.get("kind").text(MAX_TEXT)
    if kind not in ("", "Pod"):
        raise root.get("kind").error(f"must be Pod, not {kind}")
    metadata, spec = root.get("metadata"), root.get("spec")
    return Pod(
        uid=_uid(metadata.get("uid")),
        name=_subdomain(metadata.get("name")),
        namespace=_label(metadata.get("namespace")) if metadata.get("namespace").value else "default",
        containers=_containers(spec),
        resources=decode_requirements(spec.get("resources")) if spec.get("resources").present else None,
        overhead=decode_resources(spec.get("overhead")),
        priority=spec.get("priority").integer(),
        labels=_texts(metadata.get("labels"), MAX_TEXT),
        annotations=_texts(metadata.get("annotations"), MAX_ANNOTATION),
        status=_status(root.get("status")) if status is None else status,
        ephemeral_containers=tuple(
            _label(each.get("name")) for each in spec.get("ephemeralContainers").elements(MAX_CONTAINERS)
        ),
        priority_class_name=spec.get("priorityClassName").text(MAX_TEXT),
        node_name=spec.get("nodeName").text(MAX_TEXT),
        scheduler_name=spec.get("schedulerName").text(MAX_TEXT),
        restart_policy=spec.get("restartPolicy").text(MAX_TEXT),
        creation_timestamp=metadata.get("creationTimestamp").text(MAX_TEXT),
        deletion_timestamp=metadata.get("deletionTimestamp").text(MAX_TEXT),
    )


def _containers(spec: KubeField) -> tuple[Container, ...]:
    containers: list[Container] = []
    names: set[str] = set()
    for list_name in ("initContainers", "containers", "ephemeralContainers"):
        for each in spec.get(list_name).elements(MAX_CONTAINERS):
            name = _label(each.get("name"))
            if name in names:
                raise each.get("name").error(f"{name} is the name of another container of this pod too")
            names.add(name)
            if list_name != "ephemeralContainers":
                kind = _init_kind(each) if list_name == "initContainers" else ContainerKind.APP
                containers.append(Container(name, kind, decode_requirements(each.get("resources"))))
    return tuple(containers)


def _init_kind(container: KubeField) -> ContainerKind:
    # Any other policy makes it an ordinary one, unknown words included: the kubelet compares with Always only.
    return ContainerKind.SIDECAR if container.get("restartPolicy").text(MAX_TEXT) == "Always" else ContainerKind.INIT


def _status(status: KubeField) -> PodStatus:
    if not status.present:
        return PodStatus()
    return PodStatus(
        phase=status.get("phase").text(MAX_TEXT),
        qos_class=status.get("qosClass").text(MAX_TEXT),
        conditions=tuple(
            PodCondition(*(each.get(key).text(MAX_ANNOTATION) for key in ("type", "status", "reason", "message")))
            for each in status.get("conditions").elements(MAX_METADATA)
        ),
        container_statuses=tuple(_container_statuses(status)),
        allocated_resources=decode_optional(status.get("allocatedResources")),
        resources=_status_resources(status.get("resources")),
        reason=status.get("reason").text(MAX_TEXT),
        message=status.get("message").text(MAX_ANNOTATION),
    )


def _container_statuses(status: KubeField) -> Iterator[ContainerStatus]:
    for listed in StatusList:
        for each in status.get(listed).elements(MAX_CONTAINERS):
            state = _state(each.get("state"))
            yield ContainerStatus(
                name=_label(each.get("name")),
                allocated_resources=decode_optional(each.get("allocatedResources")),
                resources=decode_requirements(each.get("resources")) if each.get("resources").present else None,
                state=state,
                started=each.get("started").boolean(),
                ready=bool(each.get("ready").boolean()),
                restart_count=each.get("restartCount").integer() or 0,
                container_id=each.get("containerID").text(MAX_TEXT),
                exit_code=each.get("state").get("terminated").get("exitCode").integer(),
                listed=listed,
            )


def _state(field: KubeField) -> ContainerState:
    for state in (ContainerState.TERMINATED, ContainerState.RUNNING, ContainerState.WAITING):
        if field.get(state).present:
            return state
    return ContainerState.UNKNOWN


def _status_resources(field: KubeField) -> PodStatusResources | None:
    if not field.present:
        return None
    return PodStatusResources(decode_resources(field.get("requests")), decode_optional(field.get("limits")))


def _texts(field: KubeField, limit: int) -> Mapping[str, str]:
    return {key: each.text(limit) for key, each in field.entries(MAX_METADATA)}


def _label(field: KubeField) -> str:
    return _name(field, _LABEL, 63)


def _subdomain(field: KubeField) -> str:
    return _name(field, _SUBDOMAIN, 253)


def _name(field: KubeField, pattern: re.Pattern[str], limit: int) -> str:
    text = field.text(MAX_TEXT)
    if not text:
        raise field.error("required")
    if len(text) > limit or not pattern.fullmatch(text):
        dots = ", with '.' between such parts" if pattern is _SUBDOMAIN else ""
        raise field.error(f"{text[:80]!r} is not a valid name", hint=f"at most {limit} characters: {_NAME_HINT}{dots}")
    return text


def _uid(field: KubeField) -> str:
    text = field.text(MAX_TEXT)
    if text and not _UID.fullmatch(text):
        raise field.error(f"{text[:80]!r} is not a valid uid", hint="at most 128 letters, digits, '-', '_' and '.'")
    return text


def encode_pod(pod: Pod) -> dict[str, object]:
    """The core/v1 object that `decode_pod` reads back to an equal pod. Absent and empty fields are left out."""
    status = _encode_status(pod.status)
    return {
        "metadata": _without_empty(
            name=pod.name,
            namespace=pod.namespace,
            uid=pod.uid,
            labels=dict(pod.labels),
            annotations=dict(pod.annotations),
            creationTimestamp=pod.creation_timestamp,
            deletionTimestamp=pod.deletion_timestamp,
        ),
        "spec": _encode_spec(pod),
        **({"status": status} if status else {}),
    }


def _encode_spec(pod: Pod) -> dict[str, object]:
    inits = [each for each in pod.containers if each.kind is not ContainerKind.APP]
    apps = [each for each in pod.containers if each.kind is ContainerKind.APP]
    spec = _without_empty(
        initContainers=[_encode_container(each) for each in inits],
        containers=[_encode_container(each) for each in apps],
        ephemeralContainers=[{"name": name} for name in pod.ephemeral_containers],
        overhead=encode_resources(pod.overhead),
        priorityClassName=pod.priority_class_name,
        nodeName=pod.node_name,
        schedulerName=pod.scheduler_name,
        restartPolicy=pod.restart_policy,
    )
    if pod.resources is not None:
        spec["resources"] = encode_requirements(pod.resources)
    if pod.priority is not None:
        spec["priority"] = pod.priority
    return spec


def _encode_container(container: Container) -> dict[str, object]:
    return _without_empty(
        name=container.name,
        restartPolicy="Always" if container.kind is ContainerKind.SIDECAR else "",
        resources=encode_requirements(container.resources),
    )


def _encode_status(status: PodStatus) -> dict[str, object]:
    encoded = _without_empty(
        phase=status.phase,
        qosClass=status.qos_class,
        conditions=[
            _without_empty(type=each.type, status=each.status, reason=each.reason, message=each.message)
            for each in status.conditions
        ],
        **{
            listed.value: [
                _encode_container_status(each) for each in status.container_statuses if each.listed is listed
            ]
            for listed in StatusList
        },
        reason=status.reason,
        message=status.message,
    )
    if status.allocated_resources is not None:
        encoded["allocatedResources"] = encode_resources(status.allocated_resources)
    if status.resources is not None:
        resources = _without_empty(requests=encode_resources(status.resources.requests))
        if status.resources.limits is not None:
            resources["limits"] = encode_resources(status.resources.limits)
        encoded["resources"] = resources
    return encoded


def _encode_container_status(status: ContainerStatus) -> dict[str, object]:
    encoded = _without_empty(
        name=status.name, ready=status.ready, restartCount=status.restart_count, containerID=status.container_id
    )
    if status.allocated_resources is not None:
        encoded["allocatedResources"] = encode_resources(status.allocated_resources)
    if status.resources is not None:
        encoded["resources"] = encode_requirements(status.resources)
    if status.started is not None:
        encoded["started"] = status.started
    if status.state is not ContainerState.UNKNOWN:
        detail = {} if status.exit_code is None else {"exitCode": status.exit_code}
        encoded["state"] = {status.state.value: detail}
    return encoded


def _without_empty(**fields: object) -> dict[str, object]:
    return {key: value for key, value in fields.items() if value}
