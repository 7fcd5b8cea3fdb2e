"""What the sections of the status page share: what they are made from, and the marks that link pods, CPUs and colours.

Whatever has CPUs carries them in `data-cpus`, which the page's script highlights.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agent.formats.page_text import query_value, safe
from agent.formats.topology_svg import CPUOwner
from agent.model.cpuset import CPUSet
from agent.model.topology import Topology


@dataclass(frozen=True, slots=True)
class PageContent:
    """status: `agent.formats.status`'. topology: None draws no picture. colours: pod UID -> class of its CPUs."""

    status: Mapping[str, Any]
    topology: Topology | None
    owners: Mapping[int, CPUOwner]
    colours: Mapping[str, str]


def swatch(classes: str) -> str:
    """A little square in the colours of these classes."""
    return (
        '<svg class="swatch" viewBox="0 0 13 13" aria-hidden="true">'
        f'<rect class="{safe(classes)}" x=".5" y=".5" width="12" height="12" rx="2"/></svg>'
    )


def holder(key: str, cpus: CPUSet) -> str:
    """The attributes that let the script highlight CPUs, by pointer and by keyboard."""
    return f'data-cpus="{cpus}" data-key="{safe(key)}" tabindex="0"' if cpus else ""


def listed(cpus: CPUSet) -> str:
    """A CPU list that breaks between ranges only."""
    return str(cpus).replace(",", ",<wbr>")


def pod_name(pod: Mapping[str, Any]) -> str:
    """namespace/name."""
    return f"{pod['namespace']}/{pod['name']}"


def why_link(pod: Mapping[str, Any], text: str) -> str:
    """A link to the whole reasoning about a pod."""
    return f'<a href="explain?{safe("pod=" + query_value(pod_name(pod)))}">{text}</a>'


def pod_cpus(pod: Mapping[str, Any]) -> CPUSet:
    """The CPUs that a pod and its containers have for themselves."""
    if pod["cpus"]:
        return CPUSet.parse(pod["cpus"])
    mask = 0
    for container in pod["containers"]:
        mask |= CPUSet.parse(container["cpus"]).mask if container["isolation"] != "host" else 0
    return CPUSet(mask)
