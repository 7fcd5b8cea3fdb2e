"""Pods for tests: builders that keep a case on one line, and a strategy for any pod."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from hypothesis import strategies as st

from agent.model.pod import (
    Container,
    ContainerKind,
    ContainerState,
    ContainerStatus,
    Pod,
    PodCondition,
    PodStatus,
    PodStatusResources,
    ResourceRequirements,
    StatusList,
)
from agent.model.quantity import Quantity, QuantityFormat


def amounts(text: str) -> dict[str, Quantity]:
    """ "cpu=2 memory=1Gi" as a resource list."""
    return {name: Quantity.parse(amount) for name, amount in (each.split("=") for each in text.split())}


def spelt(resources: Mapping[str, Quantity] | None) -> str:
    """A resource list as `amounts` reads it, names in order."""
    return " ".join(f"{name}={amount}" for name, amount in sorted((resources or {}).items()))


def sized(requests: str = "", limits: str = "") -> ResourceRequirements:
    return ResourceRequirements(amounts(requests), amounts(limits))


def app(requests: str = "", limits: str = "", name: str = "app") -> Container:
    return Container(name, ContainerKind.APP, sized(requests, limits))


def init(requests: str = "", limits: str = "", name: str = "init") -> Container:
    return Container(name, ContainerKind.INIT, sized(requests, limits))


def sidecar(requests: str = "", limits: str = "", name: str = "sidecar") -> Container:
    return Container(name, ContainerKind.SIDECAR, sized(requests, limits))


def pod(
    *containers: Container,
    resources: ResourceRequirements | None = None,
    overhead: str = "",
    status: PodStatus | None = None,
) -> Pod:
    """A pod web of these containers; init ones are to be given first."""
    return Pod(
        "u1",
        "web",
        containers=containers,
        resources=resources,
        overhead=amounts(overhead),
        status=PodStatus() if status is None else status,
    )


def guaranteed(cpus: str, memory: str = "1Gi", name: str = "app") -> Container:
    """An app container whose requests equal its limits."""
    return app(f"cpu={cpus} memory={memory}", f"cpu={cpus} memory={memory}", name)


labels = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,8}[a-z0-9])?", fullmatch=True)
_resource_names = st.sampled_from(["cpu", "memory", "hugepages-2Mi", "ephemeral-storage", "example.com/device"])
quantities = st.builds(
    Quantity,
    st.builds(Fraction, st.integers(0, 2**70), st.sampled_from([1, 1000, 10**9])),
    st.sampled_from(list(QuantityFormat)),
)
resource_lists = st.dictionaries(_resource_names, quantities, max_size=3)
requirements = st.builds(ResourceRequirements, resource_lists, resource_lists)
texts = st.text(max_size=8)
_statuses = st.builds(
    ContainerStatus,
    name=labels,
    allocated_resources=st.none() | resource_lists,
    resources=st.none() | requirements,
    state=st.sampled_from(list(ContainerState)),
    started=st.none() | st.booleans(),
    ready=st.booleans(),
    restart_count=st.integers(0, 1000),
    container_id=texts,
    listed=st.sampled_from(list(StatusList)),
)


def _in_list_order(statuses: list[ContainerStatus]) -> tuple[ContainerStatus, ...]:
    return tuple(sorted(statuses, key=lambda status: list(StatusList).index(status.listed)))


_pod_statuses = st.builds(
    PodStatus,
    phase=st.sampled_from(["", "Pending", "Running", "Succeeded", "Failed"]),
    qos_class=st.sampled_from(["", "Guaranteed", "Burstable", "BestEffort"]),
    conditions=st.lists(st.builds(PodCondition, texts, texts, texts, texts), max_size=2).map(tuple),
    container_statuses=st.lists(_statuses, max_size=3).map(_in_list_order),
    allocated_resources=st.none() | resource_lists,
    resources=st.none() | st.builds(PodStatusResources, resource_lists, st.none() | resource_lists),
    reason=texts,
    message=texts,
)


def _spec_order(containers: list[Container]) -> tuple[Container, ...]:
    return tuple(sorted(containers, key=lambda container: container.kind is ContainerKind.APP))


containers = st.lists(
    st.builds(Container, labels, st.sampled_from(list(ContainerKind)), requirements),
    max_size=4,
    unique_by=lambda container: container.name,
).map(_spec_order)

pods = st.builds(
    Pod,
    uid=st.just("") | labels,
    name=labels,
    namespace=labels,
    containers=containers,
    resources=st.none() | requirements,
    overhead=resource_lists,
    priority=st.none() | st.integers(-(2**31), 2**31 - 1),
    labels=st.dictionaries(texts, texts, max_size=2),
    annotations=st.dictionaries(texts, texts, max_size=2),
    status=_pod_statuses,
    priority_class_name=texts,
    node_name=texts,
    scheduler_name=texts,
    restart_policy=texts,
    creation_timestamp=texts,
    deletion_timestamp=texts,
)
