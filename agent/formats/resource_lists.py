"""core/v1 ResourceList and ResourceRequirements as JSON objects <-> values: of pods, of their statuses, of nodes and reports."""

from __future__ import annotations

import re

from agent.formats.kube_object import KubeField
from agent.model.pod import ResourceList, ResourceRequirements
from agent.model.quantity import Quantity, QuantityError

MAX_RESOURCES = 64  # names in one resource list
_RESOURCE = re.compile(r"([A-Za-z0-9][-A-Za-z0-9.]{0,252}/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")


def decode_requirements(field: KubeField) -> ResourceRequirements:
    """Read core/v1 ResourceRequirements; claims (DRA) are passed over."""
    return ResourceRequirements(decode_resources(field.get("requests")), decode_resources(field.get("limits")))


def decode_resources(field: KubeField) -> ResourceList:
    """Read a core/v1 ResourceList. Raises KubeFieldError naming the entry."""
    resources: dict[str, Quantity] = {}
    for name, amount in field.entries(MAX_RESOURCES):
        if not _RESOURCE.fullmatch(name):
            raise amount.error(
                "is not a resource name", hint="cpu, memory, hugepages-2Mi or a name such as example.com/device"
            )
        try:
            resources[name] = Quantity.parse(amount.value)
        except QuantityError as error:
            raise amount.error(str(error), hint=error.hint) from error
    return resources


def decode_optional(field: KubeField) -> ResourceList | None:
    """A list that may be absent, which means something else than an empty one: None then."""
    return decode_resources(field) if field.present else None


def encode_resources(resources: ResourceList) -> dict[str, str]:
    """A core/v1 ResourceList, amounts in canonical form."""
    return {name: str(amount) for name, amount in resources.items()}


def encode_requirements(resources: ResourceRequirements) -> dict[str, object]:
    """Core/v1 ResourceRequirements, without a list that is empty."""
    lists = {"requests": encode_resources(resources.requests), "limits": encode_resources(resources.limits)}
    return {name: amounts for name, amounts in lists.items() if amounts}
