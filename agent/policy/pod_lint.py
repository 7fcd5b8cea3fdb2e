"""Mistakes in a pod file that show without any machine: refused fields, and asking for exclusive CPUs in a way that gets none.

Pods with pod-level resources have rules of their own: `agent.policy.lint_pod_level`.
"""

from __future__ import annotations

from collections.abc import Iterator

from agent.model.pod import Container, ContainerKind, Pod, QOSClass
from agent.model.quantity import ZERO
from agent.model.resources import CPU, MEMORY
from agent.policy.cpu_static import exclusive_cpus
from agent.policy.feature_gates import FeatureGates
from agent.policy.lint_finding import Finding, Severity
from agent.policy.lint_pod_level import lint_pod_level, wants_exclusive
from agent.policy.pod_resources import pod_level_resources_set
from agent.policy.pod_validation import validate_pod
from agent.policy.qos import container_equivalent_guaranteed, qos_class
from agent.policy.topology_options import TopologyScope

_MANY_CPUS = 1024  # above the largest machines in use: the "m" of millicores is missing
_LITTLE_MEMORY = 1 << 20  # bytes; no process runs in less: a suffix is missing
_ORDER = (Severity.ERROR, Severity.WARNING, Severity.NOTE)


def lint_pod(pod: Pod, gates: FeatureGates, scope: TopologyScope | None = None) -> tuple[Finding, ...]:
    """Everything noticed about a pod that has its defaults, the worst first.

    scope: the topology manager's, None where it is not known; then both are considered and the message says which is meant.
    """
    findings = [*_refused(pod, gates), *_odd_amounts(pod)]
    if gates.pod_level_resources and pod.resources is not None:
        findings += lint_pod_level(pod, gates, scope)
    elif qos_class(pod, pod_level_resources=False) is QOSClass.GUARANTEED:
        findings += [*_fractions(pod), *_cancelled_out(pod)]
    else:
        findings += _almost_guaranteed(pod)
    if pod_level_resources_set(pod) and not gates.pod_level_resources:
        findings.append(_passed_over())
    return tuple(sorted(findings, key=lambda finding: _ORDER.index(finding.severity)))


def _passed_over() -> Finding:
    return Finding(
        "pod-level-gate-off",
        Severity.WARNING,
        "spec.resources",
        "is passed over, as the feature gate PodLevelResources is off",
        "turn the gate on, or give the containers what they need",
    )


def _refused(pod: Pod, gates: FeatureGates) -> Iterator[Finding]:
    for violation in validate_pod(pod, pod_level_resources=gates.pod_level_resources):
        rule = f"Invalid value: {violation.value}: {violation.rule}" if violation.value else violation.rule
        yield Finding(
            "invalid", Severity.ERROR, violation.path, rule, "correct the field; an API server refuses it too"
        )


def _odd_amounts(pod: Pod) -> Iterator[Finding]:
    holders = [(f"{path}.resources", container.resources) for path, container in pod.spec_paths()]
    if pod.resources is not None:
        holders.append(("spec.resources", pod.resources))
    for path, resources in holders:
        # a request that is only the limit's default is said once
        requests = {name: amount for name, amount in resources.requests.items() if resources.limits.get(name) != amount}
        for listed, amounts in (("limits", resources.limits), ("requests", requests)):
            cpus, memory = amounts.get(CPU, ZERO), amounts.get(MEMORY, ZERO)
            if cpus.number > _MANY_CPUS:
                message, advice = (
                    f"{cpus} CPUs are more than any machine has",
                    f"write {cpus.value()}m if millicores are meant",
                )
                yield Finding("too-many-cpus", Severity.WARNING, f"{path}.{listed}[{CPU}]", message, advice)
            if 0 < memory.number < _LITTLE_MEMORY:
                message, advice = (
                    f"{memory} is less than any process needs",
                    "write Mi or Gi behind it; m is a thousandth",
                )
                yield Finding("too-few-bytes", Severity.WARNING, f"{path}.{listed}[{MEMORY}]", message, advice)


def _fractions(pod: Pod) -> Iterator[Finding]:
    for path, container in pod.spec_paths():
        request = container.resources.requests.get(CPU, ZERO)
        if request and not exclusive_cpus(container):
            yield Finding(
                "fractional-cpu",
                Severity.WARNING if request.number > 1 else Severity.NOTE,
                f"{path}.resources.requests[{CPU}]",
                f"{request} is not a whole number, so {_called(container)} gets no exclusive CPUs and runs in the shared pool, "
                "although the pod is Guaranteed",
                f"ask for {request.value()} CPUs if they are to be exclusive",
            )


def _cancelled_out(pod: Pod) -> Iterator[Finding]:
    for path, container in pod.spec_paths():
        if not container_equivalent_guaranteed(container):
            yield Finding(
                "unequal-but-guaranteed",
                Severity.WARNING,
                f"{path}.resources",
                f"requests and limits of {_called(container)} differ; the pod is Guaranteed only as the sums over all its "
                "containers happen to be equal",
                "make requests and limits equal in every container",
            )


def _almost_guaranteed(pod: Pod) -> Iterator[Finding]:
    """Why a pod is not Guaranteed, if some container looks as if it were meant to have CPUs of its own."""
    wanting = [container for container in pod.containers if wants_exclusive(container)]
    if not wanting:
        return
    cpus = sum(exclusive_cpus(container) for container in wanting)
    names = ", ".join(map(_called, wanting))
    lost = f"so the pod is not Guaranteed and {names} gets none of {cpus} exclusive CPU{'s' if cpus > 1 else ''}"
    for path, container in pod.spec_paths():
        for name in (CPU, MEMORY):
            request, limit = (
                each.get(name, ZERO) for each in (container.resources.requests, container.resources.limits)
            )
            if not limit:
                where, why = f"limits[{name}]", f"{_called(container)} has no {name} limit"
                advice = f"set it to the request{f', {request}' if request else ''}"
            elif request != limit:
                where, why = (
                    f"requests[{name}]",
                    f"{_called(container)} requests {request} {name} of its limit of {limit}",
                )
                advice = f"make them equal: {limit}"
            else:
                continue
            yield Finding("not-guaranteed", Severity.WARNING, f"{path}.resources.{where}", f"{why}, {lost}", advice)


def _called(container: Container) -> str:
    kind = {
        ContainerKind.INIT: "init container",
        ContainerKind.SIDECAR: "restartable init container",
        ContainerKind.APP: "container",
    }
    return f"{kind[container.kind]} {container.name}"
