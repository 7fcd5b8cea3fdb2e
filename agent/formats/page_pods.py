"""The status page's table of pods: where each of their containers runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from agent.formats.page_parts import PageContent, holder, listed, pod_name, swatch, why_link
from agent.formats.page_text import safe
from agent.formats.topology_tree import format_bytes
from agent.model.cpuset import CPUSet

_ISOLATION = {"host": "shared with the node", "pod": "shared within the pod", "container": "its own"}


def render_pods(content: PageContent) -> str:
    """The table of pods, a row for each of their containers."""
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
    name = pod_name(pod)
    mark_of_colour = f"{swatch(colour)} " if colour else ""
    head = f'<th scope="row">{mark_of_colour}{safe(name)}<br><span class="soft">{safe(pod["qos"])}, {safe(pod["phase"])}</span>'
    for mark in ("unplaced", "degraded", "misaligned"):
        if pod[mark]:
            head += f'<br><span class="pill warn">{mark}</span> <span class="wrap">{safe(pod[mark])}</span>'
    head += f"<br>{why_link(pod, 'Why here?')}</th>"
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
        f'<tr class="{css_class}" {holder(f"row {key}", cpus)}>{head}<td data-name="Container">{safe(what)}</td>'
        f'<td data-name="CPUs" class="cpus">{listed(cpus) or "-"}</td><td data-name="These are">{safe(how)}</td>'
        f'<td data-name="Memory">{blocks}</td></tr>'
    )
