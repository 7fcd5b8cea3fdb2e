"""What an API server refuses about a resize, for edits that reach the node without one.

Source: kubernetes 1.36 pkg/apis/core/validation, ValidatePodResize, and its words.
"""

from __future__ import annotations

from collections.abc import Iterator

from agent.model.pod import ContainerKind, Pod, ResourceRequirements
from agent.policy.pod_validation import Violation, validate_pod
from agent.policy.qos import pod_qos, qos_class

_RESIZABLE = ("cpu", "memory")


def resize_violations(allocated: Pod, desired: Pod, *, pod_level_resources: bool) -> tuple[Violation, ...]:
    """Everything wrong with this resize; () where an API server would take it."""
    return tuple(_violations(allocated, desired, pod_level_resources))


def _violations(allocated: Pod, desired: Pod, pod_level_resources: bool) -> Iterator[Violation]:
    yield from validate_pod(desired, pod_level_resources=pod_level_resources)
    before = pod_qos(allocated, pod_level_resources=pod_level_resources)
    after = qos_class(desired, pod_level_resources=pod_level_resources)
    if before is not after:
        yield Violation("spec", str(after), "Pod QOS Class may not change as a result of resizing")
    old = {container.name: container for container in allocated.containers}
    for path, container in desired.spec_paths():
        had = old[container.name].resources if container.name in old else ResourceRequirements()
        if container.kind is ContainerKind.INIT and container.resources != had:
            yield Violation(f"{path}.resources", "", "resources for non-sidecar init containers are immutable")
        yield from _removed(f"{path}.resources", had, container.resources)
    if pod_level_resources and allocated.resources is not None:
        yield from _removed("spec.resources", allocated.resources, desired.resources or ResourceRequirements())


def _removed(path: str, before: ResourceRequirements, after: ResourceRequirements) -> Iterator[Violation]:
    for name in _RESIZABLE:
        if name in before.limits and name not in after.limits:
            yield Violation(f"{path}.limits", "", "resource limits cannot be removed")
        if name in before.requests and name not in after.requests:
            yield Violation(f"{path}.requests", "", "resource requests cannot be removed")
