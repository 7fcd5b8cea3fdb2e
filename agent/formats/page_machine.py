"""The status page's picture of the machine, and who holds which of its NUMA nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agent.formats.cpu_owners import RESERVED, SHARED
from agent.formats.page_parts import PageContent, holder, listed, pod_cpus, pod_name, swatch
from agent.formats.page_text import safe
from agent.formats.topology_svg import OWNER_LOOKS, CPUOwner, render_svg
from agent.formats.topology_tree import format_bytes
from agent.model.cpuset import CPUSet

_LEGEND_PODS = 24  # more are found in the table


def render_machine(content: PageContent) -> str:
    """The picture with its colours explained; nothing where it is not known."""
    if content.topology is None:
        return ""
    picture = render_svg(content.topology, content.owners, legend=False)
    return (
        f'<section><h2>The machine</h2>{_legend(content)}<div class="machine" tabindex="0" role="group" '
        f'aria-label="CPUs by owner; scrolls sideways">{picture}</div>'
        '<p class="soft">Point at a pod, a container or a CPU to see what belongs together; click to keep it, Esc to let go.'
        "</p></section>"
    )


def _legend(content: PageContent) -> str:
    cpus: dict[CPUOwner, int] = {}
    for cpu, owner in content.owners.items():
        cpus[owner] = cpus.get(owner, 0) | 1 << cpu
    items = [
        _legend_item(owner.classes, owner.label, CPUSet(cpus[owner])) for owner in (RESERVED, SHARED) if owner in cpus
    ]
    holders = [pod for pod in content.status["pods"] if pod["uid"] in content.colours]
    items += [_legend_item(content.colours[pod["uid"]], pod_name(pod), pod_cpus(pod)) for pod in holders[:_LEGEND_PODS]]
    if len(holders) > _LEGEND_PODS:
        repeat = "; looks repeat" if len(holders) > OWNER_LOOKS else ""
        items.append(f'<li class="soft">and {len(holders) - _LEGEND_PODS} more pods, see below{repeat}</li>')
    if any(owner.pooled for owner in cpus):
        items.append(f"<li>{swatch('owner-0 pooled')}pale with a dashed edge: shared within one pod</li>")
    return f'<ul class="legend" aria-label="Colours">{"".join(items)}</ul>'


def _legend_item(classes: str, text: str, cpus: CPUSet) -> str:
    return f"<li {holder('legend ' + text, cpus)}>{swatch(classes)}<span>{safe(text)} ({len(cpus)})</span></li>"


def render_nodes(content: PageContent) -> str:
    """One card for every NUMA node: its CPUs and memory by holder."""
    colours = {pod_name(pod): content.colours.get(pod["uid"], "") for pod in content.status["pods"]}
    cards = "".join(_node(node, colours) for node in content.status["numa"])
    return f'<section><h2>Who holds which NUMA node</h2><div class="nodes">{cards}</div></section>'


def _node(node: Mapping[str, Any], colours: Mapping[str, str]) -> str:
    every, reserved, shared = (CPUSet.parse(node[key]) for key in ("cpus", "reserved", "shared"))
    held = [(each["pod"], CPUSet.parse(each["cpus"])) for each in node["held"]]
    number = node["node"]
    parts = [f'<div class="node-card"><h3>NUMA node {number}</h3>']
    if every:
        bars = [(colours.get(pod, ""), len(cpus)) for pod, cpus in held]
        bars += [("shared", len(shared)), ("reserved", len(reserved))]
        parts.append(
            f'<div class="soft">{len(every)} CPUs <span class="cpus">{listed(every)}</span></div>{_bar(bars)}<ul>'
        )
        for pod, cpus in held:
            parts.append(_line(f"node {number} {pod}", swatch(colours.get(pod, "")) + " " + safe(pod), cpus))
        parts.append(_line(f"node {number} shared", f"{swatch('shared')} free, shared", shared))
        parts.append(_line(f"node {number} reserved", f"{swatch('reserved')} reserved", reserved) if reserved else "")
        parts.append("</ul>")
    else:
        parts.append('<div class="soft">no CPUs</div>')
    parts += [_memory(table) for table in node["memory"] if table["allocatable"]]
    return "".join([*parts, "</div>"])


def _line(key: str, what: str, cpus: CPUSet) -> str:
    shown = f'<span class="cpus">{listed(cpus)}</span>' if cpus else '<span class="soft">none</span>'
    return f'<li {holder(key, cpus)}><span class="wrap">{what}</span><span>{shown}</span></li>'


def _bar(parts: Sequence[tuple[str, int]]) -> str:
    """A bar whose parts are as wide as their amounts."""
    total = sum(amount for _, amount in parts) or 1
    x, rects = 0.0, []
    for classes, amount in parts:
        width = 100 * amount / total
        rects.append(f'<rect class="{safe(classes)}" x="{x:.2f}" width="{width:.2f}" height="12"/>' if amount else "")
        x += width
    return f'<svg class="bar" viewBox="0 0 100 12" preserveAspectRatio="none" aria-hidden="true">{"".join(rects)}</svg>'


def _memory(table: Mapping[str, Any]) -> str:
    taken = table["allocatable"] - table["free"]
    lines = "".join(
        f'<li><span class="wrap">{safe(each["pod"])}</span><span>{format_bytes(each["size"])}{_span(each["numa"])}</span></li>'
        for each in table["held"]
    )
    return (
        f'<div class="soft">{safe(table["type"])}: {format_bytes(table["free"])} free of {format_bytes(table["allocatable"])}'
        f"</div>{_bar([('taken', taken), ('rest', table['free'])])}<ul>{lines}</ul>"
    )


def _span(numa: Sequence[int]) -> str:
    return f" on nodes {','.join(map(str, numa))} together" if len(numa) > 1 else ""
