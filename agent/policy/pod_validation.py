"""What an API server refuses about a pod's resources, for pods that reach the node without one.

Source: kubernetes 1.36 pkg/apis/core/validation (ValidateResourceRequirements, validatePodResources) and its words. Paths are
more exact than upstream's in two places: they name the resource, and the container that exceeds its pod.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from agent.errors import BadInputError
from agent.model.pod import Pod, ResourceList, ResourceRequirements
from agent.model.quantity import Quantity, QuantityError
from agent.model.resources import CPU, HUGEPAGES_PREFIX, MEMORY, aggregate, is_hugepages, is_pod_level_resource

EPHEMERAL_STORAGE = "ephemeral-storage"
_OVERCOMMITTABLE = (CPU, MEMORY, EPHEMERAL_STORAGE)


@dataclass(frozen=True, slots=True)
class Violation:
    """One thing an API server refuses: the field, its value ("" where there is none to show), and the rule."""

    path: str
    value: str
    rule: str

    def __str__(self) -> str:
        return f'{self.path}: Invalid value: "{self.value}": {self.rule}' if self.value else f"{self.path}: {self.rule}"


class InvalidPodError(BadInputError):
    """A pod that an API server would refuse. `violations` has everything that is wrong with it."""

    hint = "correct these fields; a kube-apiserver refuses them too"

    def __init__(self, pod: Pod, violations: Sequence[Violation]) -> None:
        super().__init__(f"pod {pod.namespaced_name} is invalid: {'; '.join(map(str, violations))}")
        self.violations = tuple(violations)


def require_valid(pod: Pod, *, pod_level_resources: bool) -> None:
    """Raise InvalidPodError if anything is wrong with the pod's resources."""
    if violations := validate_pod(pod, pod_level_resources=pod_level_resources):
        raise InvalidPodError(pod, violations)


def validate_pod(pod: Pod, *, pod_level_resources: bool) -> tuple[Violation, ...]:
    """Everything wrong with the resources of a pod that has its defaults (`agent.formats.pod_defaults`).

    pod_level_resources: the feature gate PodLevelResources; without it `.spec.resources` is passed over.
    """
    return tuple(_violations(pod, pod_level_resources))


def _violations(pod: Pod, pod_level_resources: bool) -> Iterator[Violation]:
    if not any(path.startswith("spec.containers") for path, _ in pod.spec_paths()):
        yield Violation("spec.containers", "", "Required value")
    for path, container in pod.spec_paths():
        yield from _requirements(f"{path}.resources", container.resources, _container_resource_name)
    yield from _amounts("spec.overhead", pod.overhead, _container_resource_name)
    if pod_level_resources and pod.resources is not None:
        yield from _requirements("spec.resources", pod.resources, _pod_resource_name)
        yield from _containers_within_pod(pod, pod.resources)


def _requirements(path: str, resources: ResourceRequirements, check_name: Callable[[str], str]) -> Iterator[Violation]:
    yield from _amounts(f"{path}.limits", resources.limits, check_name)
    yield from _amounts(f"{path}.requests", resources.requests, check_name)
    for name, request in resources.requests.items():
        limit = resources.limits.get(name)
        if limit is None:
            if name not in _OVERCOMMITTABLE:
                yield Violation(f"{path}.limits[{name}]", "", "Limit must be set for non overcommitable resources")
        elif name not in _OVERCOMMITTABLE and request != limit:
            yield Violation(f"{path}.requests[{name}]", str(request), f"must be equal to {name} limit of {limit}")
        elif request > limit:
            rule = f"must be less than or equal to {name} limit of {limit}"
            yield Violation(f"{path}.requests[{name}]", str(request), rule)
    named = {*resources.requests, *resources.limits}
    if any(map(is_hugepages, named)) and not named & {CPU, MEMORY}:
        yield Violation(path, "", "HugePages require cpu or memory")


def _amounts(path: str, resources: ResourceList, check_name: Callable[[str], str]) -> Iterator[Violation]:
    for name, amount in resources.items():
        where = f"{path}[{name}]"
        if why := check_name(name):
            yield Violation(where, name, why)
        if amount.number < 0:
            yield Violation(where, str(amount), "must be greater than or equal to 0")
        if is_hugepages(name):
            if not _divisible(name, amount):
                yield Violation(where, str(amount), f"{amount} is not positive integer multiple of {name}")
        elif name not in _OVERCOMMITTABLE and not amount.is_whole:
            yield Violation(where, str(amount), "must be an integer")


def _divisible(name: str, amount: Quantity) -> bool:
    try:
        page = Quantity.parse(name.removeprefix(HUGEPAGES_PREFIX))
    except QuantityError:
        return False
    return page.is_whole and page.number > 0 and (amount.number / page.number).denominator == 1


def _container_resource_name(name: str) -> str:
    if "/" not in name:
        known = name in _OVERCOMMITTABLE or is_hugepages(name)
        return "" if known else "must be a standard resource for containers"
    extended = "kubernetes.io/" not in name
    return "doesn't follow extended resource name standard" if extended and name.startswith("requests.") else ""


def _pod_resource_name(name: str) -> str:
    return "" if is_pod_level_resource(name) else "must be a standard resource for pods"


def _containers_within_pod(pod: Pod, budget: ResourceRequirements) -> Iterator[Violation]:
    """The containers' requests together within the pod's, each limit within the pod's, hugepages limits together too."""
    for name, total in aggregate((each.kind, each.resources.requests) for each in pod.containers).items():
        if name in budget.requests and total > budget.requests[name]:
            rule = f"must be greater than or equal to aggregate container requests of {total}"
            yield Violation(f"spec.resources.requests[{name}]", str(budget.requests[name]), rule)
    for name, total in aggregate((each.kind, each.resources.limits) for each in pod.containers).items():
        if is_hugepages(name) and name in budget.limits and total > budget.limits[name]:
            rule = f"must be greater than or equal to aggregate container limits of {total}"
            yield Violation(f"spec.resources.limits[{name}]", str(budget.limits[name]), rule)
    for path, container in pod.spec_paths():
        if not path.startswith("spec.containers"):
            continue  # upstream lets an init container's limit exceed the pod's: it is held by the pod's anyway
        for name, limit in container.resources.limits.items():
            if name in budget.limits and limit > budget.limits[name]:
                rule = f"must be less than or equal to pod limits of {budget.limits[name]}"
                yield Violation(f"{path}.resources.limits[{name}]", str(limit), rule)
