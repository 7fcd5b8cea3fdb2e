"""What the status page says: the state of the node, in the order in which people ask.

Is something wrong; what was refused and why; where everything is; who holds which NUMA node; every pod. All numbers are those
of `pinfold status -o json`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from agent.formats.page_machine import render_machine, render_nodes
from agent.formats.page_parts import PageContent, pod_name, why_link
from agent.formats.page_pods import render_pods
from agent.formats.page_text import safe
from agent.formats.topology_tree import format_bytes
from agent.model.cpuset import CPUSet

_LISTED_NODES = 8
_LONGEST = 600  # characters of one sentence; the reasoning has it whole


def render_body(content: PageContent) -> str:
    """The inside of the page's <main>."""
    status = content.status
    parts = [
        _summary(status),
        _problems(status["problems"]),
        _refusals(status),
        _resizes(status["pods"]),
        render_machine(content),
        render_nodes(content),
        render_pods(content),
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
        f'<div class="refusal"><h3 class="wrap">{safe(pod_name(each))} <span class="pill bad">{safe(each["reason"])}</span></h3>'
        f"{paragraphs}{hint}<p>{why_link(each, 'Show the whole reasoning')}</p></div>"
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
        f'<div class="refusal"><h3 class="wrap">{safe(pod_name(pod))} <span class="pill warn">{safe(pod["resize"])}</span></h3>'
        f'<p class="wrap">{safe(pod["resizeMessage"])}</p></div>'
        for pod in waiting
    )
    return f"<section><h2>Resizes under way ({len(waiting)})</h2>{items}</section>"


def _drift(lines: Sequence[str]) -> str:
    if not lines:
        return ""
    items = "".join(f'<li class="wrap">{safe(line)}</li>' for line in reversed(lines))
    return f"<section><h2>Repaired drift, last first</h2><ul>{items}</ul></section>"
