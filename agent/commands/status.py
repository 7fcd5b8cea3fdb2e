"""`pinfold status`: what the running agent holds."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from agent.commands.options import socket_option
from agent.log import printable
from agent.model.isolation import Isolation
from agent.serve.control_client import ControlClient

WATCH_SECONDS = 1.0


@click.command()
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", help="Form of the answer.")
@click.option("--watch", is_flag=True, help="Show it again whenever it changes, until interrupted.")
@socket_option
def command(output: str, watch: bool, socket: Path) -> int:
    """Show what the running agent holds: pools, pods with their CPUs and memory, refusals with their reasons.

    Exit status 1 where the agent is not ready.

    \b
    Examples:
      pinfold status
      pinfold status -o json
      pinfold status --watch
    """
    client = ControlClient(socket)
    shown = ""
    while True:
        status = client.call("status", {})
        text = json.dumps(status, indent=2) if output == "json" else "\n".join(render(status))
        if text != shown:
            click.echo(text if not shown else f"\n{text}")
            shown = text
        if not watch:
            return 0 if status["ready"] else 1
        time.sleep(WATCH_SECONDS)


def render(status: Mapping[str, Any]) -> Iterator[str]:
    """The status as lines for people."""
    ready = "ready" if status["ready"] else "NOT READY"
    policy = status["policy"]
    yield (
        f"{ready}  generation {status['generation']}  cpu {policy['cpuManagerPolicy']}, "
        f"memory {policy['memoryManagerPolicy']}, topology {policy['topologyManagerPolicy']}"
    )
    cpus = status["cpus"]
    yield f"CPUs  online {cpus['online']}  reserved {cpus['reserved'] or '-'}  shared {cpus['shared'] or '-'}"
    if status["paused"]:
        yield "paused: no new exclusive CPUs (pinfold pause --off)"
    for problem in status["problems"]:
        yield f"problem  {printable(problem)}"
    for node in status["numa"]:
        yield from _numa(node)
    for pod in status["pods"]:
        bubble = f"  bubble {pod['cpus']}" if pod["cpus"] else ""
        yield f"pod {pod['namespace']}/{pod['name']}  {pod['qos']}, {pod['phase']}{bubble}"
        for container in pod["containers"]:
            blocks = "".join(f"  {amount(block)}" for block in container["memory"])
            where = Isolation(container["isolation"]).words
            yield f"  {container['name']}  cpus {container['cpus'] or '-'} ({where}){blocks}"
        for mark in ("unplaced", "degraded", "misaligned", "resizeMessage"):
            if pod[mark]:
                yield f"  {mark}: {printable(pod[mark])}"
    for each in status["refused"]:
        yield f"refused {each['namespace']}/{each['name']}  {each['reason']}: {printable(each['message'])}"
        if each["hint"]:
            yield f"  hint: {printable(each['hint'])}"


def _numa(node: Mapping[str, Any]) -> Iterator[str]:
    """Who holds one NUMA node."""
    held = ", ".join(f"{each['pod']} {each['cpus']}" for each in node["held"])
    reserved = f"  reserved {node['reserved']}" if node["reserved"] else ""
    yield f"NUMA {node['node']}  free {node['shared'] or '-'}{reserved}  held {held or '-'}"
    for table in node["memory"]:
        if table["allocatable"]:
            sizes = ", ".join(f"{each['pod']} {each['size'] / 2**20:g} MiB" for each in table["held"])
            free, whole = table["free"] / 2**20, table["allocatable"] / 2**20
            yield f"  {table['type']}  free {free:g} of {whole:g} MiB  held {sizes or '-'}"


def amount(block: Mapping[str, Any]) -> str:
    """A memory block for people."""
    nodes = ",".join(map(str, block["numa"]))
    return f"{block['type']} {block['size'] / 2**20:g} MiB on NUMA {nodes}"
