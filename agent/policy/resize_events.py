"""The texts of the kubelet's resize events: what happened, and the pod's sizes as JSON (kubelet 1.36)."""

from __future__ import annotations

import json
from collections.abc import Mapping

from agent.model.pod import Container, ContainerKind, Pod, ResourceRequirements
from agent.model.state import ResizeState

STARTED, COMPLETED, ERROR = "ResizeStarted", "ResizeCompleted", "ResizeError"
# reason of the event about a resize that waits
WAITING: Mapping[ResizeState, str] = {
    ResizeState.DEFERRED: "ResizeDeferred",
    ResizeState.INFEASIBLE: "ResizeInfeasible",
}


def started(pod: Pod, generation: int) -> str:
    """The resize of `pod`, which has its allocated sizes, is put in force from now on."""
    return f"Pod resize started: {_summary(pod, generation)}"


def completed(pod: Pod, generation: int) -> str:
    """The allocated sizes of `pod` are in force."""
    return f"Pod resize completed: {_summary(pod, generation)}"


def failed(pod: Pod, generation: int, error: str) -> str:
    """The allocated sizes of `pod` cannot be put in force."""
    return f"Pod resize error: {_summary(pod, generation, error)}"


def waits(desired: Pod, generation: int, state: ResizeState, detail: str, error: str) -> str:
    """The desired sizes are refused. detail: names what a deferred one lacks (`OutOfcpu`)."""
    word = "Infeasible" if state is ResizeState.INFEASIBLE else detail
    return f"Pod resize {word}: {_summary(desired, generation, error)}"


def _summary(pod: Pod, generation: int, error: str = "") -> str:
    summary: dict[str, object] = {}
    if pod.resources is not None:
        summary["resources"] = _resources(pod.resources)
    init = [each for each in pod.containers if each.kind is ContainerKind.SIDECAR]
    apps = [each for each in pod.containers if each.kind is ContainerKind.APP]
    if init:
        summary["initContainers"] = [_container(each) for each in init]
    if apps:
        summary["containers"] = [_container(each) for each in apps]
    summary["generation"] = generation
    if error:
        summary["error"] = error
    return json.dumps(summary, separators=(",", ":"), ensure_ascii=False)


def _container(container: Container) -> dict[str, object]:
    return {"name": container.name, "resources": _resources(container.resources)}


def _resources(resources: ResourceRequirements) -> dict[str, dict[str, str]]:
    lists = {"limits": resources.limits, "requests": resources.requests}
    return {
        key: {name: str(amount) for name, amount in sorted(amounts.items())}
        for key, amounts in lists.items()
        if amounts
    }
