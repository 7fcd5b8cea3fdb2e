"""`pinfold podresources`: what a monitoring agent sees."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from agent.proto import podresources_v1_pb2 as v1
from agent.serve.podresources_client import (
    PODRESOURCES_SOCKET,
    Seen,
    block_nodes,
    cpu_set,
    look,
    why_no_cpus,
    why_no_memory,
)


@click.group()
def command() -> None:
    """What monitoring agents see on the PodResources socket.

    \b
    Example:
      pinfold podresources check
    """


@command.command()
@click.argument("pod", required=False)
@click.option(
    "--socket",
    "path",
    type=click.Path(path_type=Path, readable=False),
    default=PODRESOURCES_SOCKET,
    show_default=True,
    help="The socket to ask; a kubelet's works as well.",
)
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option(
    "--timeout", type=click.FloatRange(min=0.1), default=5.0, show_default=True, help="Seconds for each call."
)
def check(pod: str | None, path: Path, output: str, timeout: float) -> None:
    """Connect as a monitoring agent does, and show what it sees and why something is empty.

    POD is a name in namespace default, or NAMESPACE/NAME; without it every pod is shown. Exit code 1: no such active pod.

    \b
    Examples:
      pinfold podresources check
      pinfold podresources check team-a/trainer
      pinfold podresources check --socket /var/lib/kubelet/pod-resources/kubelet.sock -o json
    """
    namespace, _, name = (pod or "").rpartition("/")
    seen = look(path, (namespace or "default", name) if pod else None, timeout)
    if output == "json":
        click.echo(json.dumps({"socket": str(path), **_json(seen)}, indent=2))
    else:
        click.echo("\n".join(_text(path, seen)))


def _text(path: Path, seen: Seen) -> Iterator[str]:
    allocatable = seen.allocatable
    yield f"{path}: answers"
    yield f"allocatable  cpus {cpu_set(allocatable.cpu_ids) or 'none (CPU policy none)'}"
    for memory in allocatable.memory:
        yield f"allocatable  {_memory_text(memory)}"
    if not seen.found:
        yield "no active pods"
    for pod in seen.found:
        held = f"  pod level: {_holdings(pod.cpu_ids, pod.memory)}" if pod.cpu_ids or pod.memory else ""
        yield f"{_plain(pod.namespace)}/{_plain(pod.name)}{held}"
        for container in pod.containers:
            yield f"  {_plain(container.name)}  {_holdings(container.cpu_ids, container.memory)}"
            for device in container.devices:
                yield f"    {_plain(device.resource_name)}: {' '.join(map(_plain, device.device_ids))}"
            reasons = (why_no_cpus(pod, container, allocatable), why_no_memory(pod, container, allocatable))
            yield from (f"    {reason}" for reason in reasons if reason)


def _holdings(cpu_ids: Iterable[int], memory: Iterable[v1.ContainerMemory]) -> str:
    return "  ".join([f"cpus {cpu_set(cpu_ids) or '-'}", *map(_memory_text, memory)])


def _memory_text(memory: v1.ContainerMemory) -> str:
    return f"{_plain(memory.memory_type)} {_size(memory.size)} numa {block_nodes(memory)}"


def _size(size: int) -> str:
    for unit, factor in (("Gi", 1 << 30), ("Mi", 1 << 20), ("Ki", 1 << 10)):
        if size and size % factor == 0:
            return f"{size // factor}{unit}"
    return str(size)


def _plain(text: str) -> str:
    """What another program sent, safe on a terminal: no control characters, no spaces that would look like columns."""
    return "".join(one if one.isprintable() and one != " " else f"\\u{ord(one):04x}" for one in text) or '""'


def _json(seen: Seen) -> Mapping[str, Any]:
    return {
        "allocatable": {
            "cpus": str(cpu_set(seen.allocatable.cpu_ids)),
            "memory": list(map(_memory_json, seen.allocatable.memory)),
            "devices": list(map(_device_json, seen.allocatable.devices)),
        },
        "pods": [
            {
                "namespace": pod.namespace,
                "name": pod.name,
                "cpus": str(cpu_set(pod.cpu_ids)),
                "memory": list(map(_memory_json, pod.memory)),
                "containers": [_container_json(pod, container, seen) for container in pod.containers],
            }
            for pod in seen.found
        ],
    }


def _container_json(pod: v1.PodResources, container: v1.ContainerResources, seen: Seen) -> Mapping[str, Any]:
    return {
        "name": container.name,
        "cpus": str(cpu_set(container.cpu_ids)),
        "why_no_cpus": why_no_cpus(pod, container, seen.allocatable),
        "memory": list(map(_memory_json, container.memory)),
        "why_no_memory": why_no_memory(pod, container, seen.allocatable),
        "devices": list(map(_device_json, container.devices)),
    }


def _memory_json(memory: v1.ContainerMemory) -> Mapping[str, Any]:
    return {"type": memory.memory_type, "bytes": memory.size, "numa": str(block_nodes(memory))}


def _device_json(device: v1.ContainerDevices) -> Mapping[str, Any]:
    return {"resource": device.resource_name, "ids": list(device.device_ids)}
