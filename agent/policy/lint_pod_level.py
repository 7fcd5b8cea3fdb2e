"""Mistakes in pods with pod-level resources: budgets that leave nothing, and containers that get less than meant (KEP-5526)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from agent.model.pod import Container, ContainerKind, Pod, QOSClass, ResourceRequirements
from agent.model.quantity import ZERO
from agent.model.resources import CPU, MEMORY
from agent.policy.cpu_static import exclusive_cpus
from agent.policy.eligibility import Claims, claims
from agent.policy.feature_gates import FeatureGates
from agent.policy.lint_finding import Finding, Severity
from agent.policy.pod_pool import check_shared_pool
from agent.policy.pod_resources import pod_level_resources_set
from agent.policy.qos import container_equivalent_guaranteed, qos_class
from agent.policy.refusal import EmptyPodSharedPoolError
from agent.policy.topology_options import TopologyScope


def lint_pod_level(pod: Pod, gates: FeatureGates, scope: TopologyScope | None) -> list[Finding]:
    """What is noticed about a pod with a `.spec.resources` object. The gate PodLevelResources is on."""
    if pod.resources is None:
        return []
    if not pod_level_resources_set(pod):
        return list(_empty_object(pod))
    qos = qos_class(pod, pod_level_resources=True)
    if qos is not QOSClass.GUARANTEED:
        return list(_not_guaranteed(pod, pod.resources, qos))
    asked = claims(pod, replace(gates, pod_level_resource_managers=True))
    if not gates.pod_level_resource_managers:
        return list(_managers_off(asked))
    findings = list(_half_exclusive(pod))
    if scope is not TopologyScope.CONTAINER:
        findings += _bubble(pod, asked, "" if scope else "with topology manager scope pod, ")
    return findings


def wants_exclusive(container: Container) -> bool:
    """Whether a container looks as if it were meant to have CPUs of its own: a whole CPU request that equals the limit."""
    return exclusive_cpus(container) > 0 and container.resources.requests[CPU] == container.resources.limits.get(CPU)


def _empty_object(pod: Pod) -> Iterator[Finding]:
    if any(container.resources != ResourceRequirements() for container in pod.containers):
        yield Finding(
            "empty-pod-level",
            Severity.WARNING,
            "spec.resources",
            "names no cpu, memory or hugepages, but makes the pod BestEffort whatever its containers ask for",
            "remove the object, or set cpu and memory in it",
        )


def _not_guaranteed(pod: Pod, budget: ResourceRequirements, qos: QOSClass) -> Iterator[Finding]:
    """Why the pod-level values give no Guaranteed pod, if some container would then own something."""
    if qos is QOSClass.BEST_EFFORT:
        message = "has hugepages alone, which makes the pod BestEffort"
        yield Finding("hugepages-alone", Severity.WARNING, "spec.resources", message, "set cpu and memory too")
        return
    wanting = ", ".join(each.name for each in pod.containers if wants_exclusive(each))
    if not wanting:
        return
    for name in (CPU, MEMORY):
        request, limit = budget.requests.get(name, ZERO), budget.limits.get(name, ZERO)
        if not limit or request != limit:
            yield Finding(
                "not-guaranteed",
                Severity.WARNING,
                f"spec.resources.{'requests' if limit else 'limits'}[{name}]",
                f"the pod's {name} request ({request}) and limit ({limit}) are not equal and set, so it is {qos} and {wanting} "
                "gets nothing exclusive; the containers' own values do not count for that",
                f"set both to {limit or request}" if limit or request else f"set {name} requests and limits of the pod",
            )


def _managers_off(asked: Claims) -> Iterator[Finding]:
    if asked.cpus or asked.pod_cpus:
        yield Finding(
            "managers-gate-off",
            Severity.WARNING,
            "spec.resources",
            "a pod with pod-level resources gets nothing exclusive while the feature gate PodLevelResourceManagers is off",
            "turn the gate on, or remove the pod-level resources",
        )


def _half_exclusive(pod: Pod) -> Iterator[Finding]:
    """Containers whose CPUs look exclusive while their memory does not, and sidecars that share."""
    for path, container in pod.spec_paths():
        if container_equivalent_guaranteed(container):
            request = container.resources.requests[CPU]
            if not exclusive_cpus(container):
                yield Finding(
                    "fractional-cpu",
                    Severity.NOTE,
                    f"{path}.resources.requests[{CPU}]",
                    f"{request} is not a whole number: {container.name} has memory of its own, but shares its CPUs",
                    f"ask for {request.value()} CPUs if they are to be exclusive",
                )
        elif wants_exclusive(container):
            yield Finding(
                "memory-not-equal",
                Severity.WARNING,
                f"{path}.resources.requests[{MEMORY}]",
                f"memory requests and limits of {container.name} are not set and equal, so its "
                f"{exclusive_cpus(container)} CPUs are not exclusive either",
                "set memory requests and limits to the same amount",
            )
        elif container.kind is ContainerKind.SIDECAR:
            yield Finding(
                "sidecar-shares",
                Severity.NOTE,
                f"{path}.resources",
                f"the restartable init container {container.name} has no CPUs of its own: it shares with all containers that "
                "have none",
                "set cpu and memory requests equal to limits, cpu whole, if it is to have its own",
            )


def _bubble(pod: Pod, asked: Claims, when: str) -> Iterator[Finding]:
    """The pod's CPUs and memory as one bubble, in scope pod."""
    if not asked.pod_cpus:
        request = pod.resources.requests[CPU] if pod.resources is not None else ZERO
        yield Finding(
            "fractional-budget",
            Severity.WARNING,
            f"spec.resources.requests[{CPU}]",
            f"{when}{request} is not a whole number, so the pod gets no CPUs of its own and no container in it does",
            f"ask for {request.value()} CPUs",
        )
    else:
        yield from _shared_pool(pod, CPU, asked.cpus, asked.pod_cpus, when)
        yield from _idle(pod, asked, when)
    for resource, size in (asked.pod_memory or {}).items():
        slices = {name: request.get(resource, 0) for name, request in asked.memory.items()}
        yield from _shared_pool(pod, resource, slices, size, f"{when}with memory manager policy Static, ")


def _shared_pool(pod: Pod, resource: str, slices: Mapping[str, int], budget: int, when: str) -> Iterator[Finding]:
    try:
        check_shared_pool(resource, pod.containers, slices, budget)
    except EmptyPodSharedPoolError as error:
        yield Finding(
            "empty-shared-pool", Severity.ERROR, f"spec.resources.requests[{resource}]", f"{when}{error}", error.hint
        )


def _idle(pod: Pod, asked: Claims, when: str) -> Iterator[Finding]:
    staying = [each for each in pod.containers if each.kind is not ContainerKind.INIT]
    left = asked.pod_cpus - sum(asked.cpus.get(each.name, 0) for each in staying)
    if left > 0 and all(each.name in asked.cpus for each in staying):
        yield Finding(
            "idle-cpus",
            Severity.NOTE,
            f"spec.resources.requests[{CPU}]",
            f"{when}{left} of the pod's {asked.pod_cpus} CPUs belong to no container once it runs, and nobody else gets them",
            f"ask for {asked.pod_cpus - left} CPUs, or give them to a container",
        )
