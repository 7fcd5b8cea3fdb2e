"""What the status page says: the state of the node, in the order in which people ask.

Is something wrong; what was refused and why; where everything is; who holds which NUMA node; every pod. All numbers are those
of `pinfold status -o json`. Whatever has CPUs carries them in `data-cpus`, which the page's script highlights.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agent.formats.cpu_owners import RESERVED, SHARED
from agent.formats.page_text import query_value, safe
from agent.formats.topology_svg import OWNER_LOOKS, CPUOwner, render_svg
from agent.formats.topology_tree import format_bytes
from agent.model.cpuset import CPUSet
from agent.model.topology import Topology

_LEGEND_PODS = 24  # more are found in the table
_LISTED_NODES = 8
_LONGEST = 600  # characters of one sentence; the reasoning has it whole
_ISOLATION = {"host": "shared with the node", "pod": "shared within the pod", "container": "its own"}


@dataclass(frozen=True, slots=True)
class PageContent:
    """status: `agent.formats.status`'. topology: None draws no picture. colours: pod UID -> class of its CPUs."""

    status: Mapping[str, Any]
    topology: Topology | None
    owners: Mapping[int, CPUOwner]
    colours: Mapping[str, str]


def render_body(content: PageContent) -> str:
    """The inside of the page's <main>."""
    status = content.status
    parts = [
        _summary(status),
        _problems(status["problems"]),
        _refusals(status),
        _resizes(status["pods"]),
        _machine(content),
        _nodes(content),
        _pods(content),
        _drift(status.get("drift", ())),
    ]
    return "".join(parts)


def _summary(status: Mapping[str, Any]) -> str:
    state = '<span class="pill good">ready</span>' if status["ready"] else '<span class="pill bad">not ready</span>'
    if status.get("paused"):
        state += ' <span class="pill warn">paused: no new exclusive CPUs</span>'
    cpus, policy = status["cpus"], status["policy"]
    held = sum(len(CPUSet.parse(each["cpus"])) for node in status["numa"] for each in node["held"])
    facts = {
        "CPUs": f"{len(CPUSet.parse(cpus['online']))} online, {held} held by pods",
        "Pods": f"{len(status['pods'])} here, {len(status['refused'])} refused",
        "CPU policy": policy["cpuManagerPolicy"],
        "Memory policy": policy["memoryManagerPolicy"],
        "Topology policy": f"{policy['topologyManagerPolicy']}, scope {policy['topologyManagerScope']}",
        "Generation": str(status["generation"]),
    }
    items = "".join(f"<li>{safe(name)}: <b>{safe(value)}</b></li>" for name, value in facts.items())
    return f'<section aria-label="Summary">{state}<ul class="facts">{items}</ul></section>'


def _problems(problems: Sequence[str]) -> str:
    if not problems:
        return ""
    items = "".join(f'<li class="wrap">{safe(problem)}</li>' for problem in problems)
    return f'<section class="trouble"><h2>Not as it should be</h2><ul>{items}</ul></section>'


def _refusals(status: Mapping[str, Any]) -> str:
    refused = status["refused"]
    if not refused:
        return ""
    items = "".join(_refusal(each, status["numa"]) for each in refused)
    return f'<section class="trouble"><h2>Refused pods ({len(refused)})</h2>{items}</section>'


def _refusal(each: Mapping[str, Any], nodes: Sequence[Mapping[str, Any]]) -> str:
    lines = [each["message"], *_asked_and_free(each["asked"], nodes)]
    hint = f'<p class="wrap"><b>What helps:</b> {safe(_short(each["hint"]))}</p>' if each["hint"] else ""
    paragraphs = "".join(f'<p class="wrap">{safe(_short(line))}</p>' for line in lines)
    return (
        f'<div class="refusal"><h3 class="wrap">{safe(_name(each))} <span class="pill bad">{safe(each["reason"])}</span></h3>'
        f"{paragraphs}{hint}<p>{_why(each, 'Show the whole reasoning')}</p></div>"
    )


def _asked_and_free(asked: Mapping[str, int], nodes: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """What the pod asks for itself beside what every NUMA node has free now: most refusals explain themselves by that."""
    for resource, amount in asked.items():
        if not amount:
            continue
        free = {node["node"]: _free(node, resource) for node in nodes}
        every = ", ".join(f"NUMA {node}: {_amount(resource, count)}" for node, count in free.items())
        if len(free) > _LISTED_NODES:
            most = max(free, key=lambda node: free[node])
            every = f"{_amount(resource, sum(free.values()))} on {len(free)} NUMA nodes, most on {most}: "
            every += _amount(resource, free[most])
        name = "exclusive CPUs" if resource == "cpu" else resource
        yield f"Asks for {_amount(resource, amount)} {name}; free now: {every}."


def _free(node: Mapping[str, Any], resource: str) -> int:
    if resource == "cpu":
        return len(CPUSet.parse(node["shared"]))
    return sum(table["free"] for table in node["memory"] if table["type"] == resource)


def _amount(resource: str, amount: int) -> str:
    return str(amount) if resource == "cpu" else format_bytes(amount)


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else text[:_LONGEST] + " …"


def _resizes(pods: Sequence[Mapping[str, Any]]) -> str:
    """Only where a resize is on its way."""
    waiting = [pod for pod in pods if pod["resize"] != "none"]
    if not waiting:
        return ""
    items = "".join(
        f'<div class="refusal"><h3 class="wrap">{safe(_name(pod))} <span class="pill warn">{safe(pod["resize"])}</span></h3>'
        f'<p class="wrap">{safe(pod["resizeMessage"])}</p></div>'
        for pod in waiting
    )
    return f"<section><h2>Resizes under way ({len(waiting)})</h2>{items}</section>"


def _machine(content: PageContent) -> str:
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
    items += [_legend_item(content.colours[pod["uid"]], _name(pod), _pod_cpus(pod)) for pod in holders[:_LEGEND_PODS]]
    if len(holders) > _LEGEND_PODS:
        repeat = "; looks repeat" if len(holders) > OWNER_LOOKS else ""
        items.append(f'<li class="soft">and {len(holders) - _LEGEND_PODS} more pods, see below{repeat}</li>')
    if any(owner.pooled for owner in cpus):
        items.append(f"<li>{_swatch('owner-0 pooled')}pale with a dashed edge: shared within one pod</li>")
    return f'<ul class="legend" aria-label="Colours">{"".join(items)}</ul>'


def _legend_item(classes: str, text: str, cpus: CPUSet) -> str:
    return f"<li {_holder('legend ' + text, cpus)}>{_swatch(classes)}<span>{safe(text)} ({len(cpus)})</span></li>"


def _swatch(classes: str) -> str:
    return (
        '<svg class="swatch" viewBox="0 0 13 13" aria-hidden="true">'
        f'<rect class="{safe(classes)}" x=".5" y=".5" width="12" height="12" rx="2"/></svg>'
    )


def _holder(key: str, cpus: CPUSet) -> str:
    """The attributes that let the script highlight CPUs, by pointer and by keyboard."""
    return f'data-cpus="{cpus}" data-key="{safe(key)}" tabindex="0"' if cpus else ""


def _drift(lines: Sequence[str]) -> str:
    if not lines:
        return ""
    items = "".join(f'<li class="wrap">{safe(line)}</li>' for line in reversed(lines))
    return f"<section><h2>Repaired drift, last first</h2><ul>{items}</ul></section>"


# --- NUMA nodes --------------------------------------------------------------------------------------------------------


def _nodes(content: PageContent) -> str:
    colours = {_name(pod): content.colours.get(pod["uid"], "") for pod in content.status["pods"]}
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
            f'<div class="soft">{len(every)} CPUs <span class="cpus">{_listed(every)}</span></div>{_bar(bars)}<ul>'
        )
        for pod, cpus in held:
            parts.append(_line(f"node {number} {pod}", _swatch(colours.get(pod, "")) + " " + safe(pod), cpus))
        parts.append(_line(f"node {number} shared", f"{_swatch('shared')} free, shared", shared))
        parts.append(_line(f"node {number} reserved", f"{_swatch('reserved')} reserved", reserved) if reserved else "")
        parts.append("</ul>")
    else:
        parts.append('<div class="soft">no CPUs</div>')
    parts += [_memory(table) for table in node["memory"] if table["allocatable"]]
    return "".join([*parts, "</div>"])


def _line(key: str, what: str, cpus: CPUSet) -> str:
    listed = f'<span class="cpus">{_listed(cpus)}</span>' if cpus else '<span class="soft">none</span>'
    return f'<li {_holder(key, cpus)}><span class="wrap">{what}</span><span>{listed}</span></li>'


def _listed(cpus: CPUSet) -> str:
    """A CPU list that breaks between ranges only."""
    return str(cpus).replace(",", ",<wbr>")


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


# --- pods --------------------------------------------------------------------------------------------------------------


def _pods(content: PageContent) -> str:
    pods = content.status["pods"]
    if not pods:
        return '<section><h2>Pods</h2><p class="soft">No pod is here.</p></section>'
    rows = "".join(row for pod in pods for row in _pod_rows(pod, content.colours.get(pod["uid"], "")))
    heads = "".join(f'<th scope="col">{name}</th>' for name in ("Pod", "Container", "CPUs", "These are", "Memory"))
    return (
        f'<section><h2>Pods ({len(pods)})</h2><div class="scroll"><table class="pods"><caption>In the order of their '
        f"admission.</caption><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div></section>"
    )


def _pod_rows(pod: Mapping[str, Any], colour: str) -> Iterator[str]:
    name = _name(pod)
    swatch = f"{_swatch(colour)} " if colour else ""
    head = f'<th scope="row">{swatch}{safe(name)}<br><span class="soft">{safe(pod["qos"])}, {safe(pod["phase"])}</span>'
    for mark in ("unplaced", "degraded", "misaligned"):
        if pod[mark]:
            head += f'<br><span class="pill warn">{mark}</span> <span class="wrap">{safe(pod[mark])}</span>'
    head += f"<br>{_why(pod, 'Why here?')}</th>"
    if pod["cpus"] or pod["memory"]:
        bubble = CPUSet.parse(pod["cpus"] or "")
        yield _row("", head, f"{name} pod", "the whole pod", bubble, "the pod's own" if bubble else "", pod["memory"])
        head = "<td></td>"
    for container in pod["containers"]:
        cpus = CPUSet.parse(container["cpus"])
        how = _ISOLATION.get(container["isolation"], "")
        css_class = "" if head.startswith("<th") else "more"
        yield _row(css_class, head, f"{name} {container['name']}", container["name"], cpus, how, container["memory"])
        head = "<td></td>"


def _row(
    css_class: str, head: str, key: str, what: str, cpus: CPUSet, how: str, memory: Sequence[Mapping[str, Any]]
) -> str:
    blocks = "<br>".join(
        f"{safe(block['type'])} {format_bytes(block['size'])} on {','.join(map(str, block['numa']))}"
        for block in memory
    )
    return (
        f'<tr class="{css_class}" {_holder(f"row {key}", cpus)}>{head}<td data-name="Container">{safe(what)}</td>'
        f'<td data-name="CPUs" class="cpus">{_listed(cpus) or "-"}</td><td data-name="These are">{safe(how)}</td>'
        f'<td data-name="Memory">{blocks}</td></tr>'
    )


def _pod_cpus(pod: Mapping[str, Any]) -> CPUSet:
    if pod["cpus"]:
        return CPUSet.parse(pod["cpus"])
    mask = 0
    for container in pod["containers"]:
        mask |= CPUSet.parse(container["cpus"]).mask if container["isolation"] != "host" else 0
    return CPUSet(mask)


def _name(pod: Mapping[str, Any]) -> str:
    return f"{pod['namespace']}/{pod['name']}"


def _why(pod: Mapping[str, Any], text: str) -> str:
    return f'<a href="explain?{safe("pod=" + query_value(_name(pod)))}">{text}</a>'
