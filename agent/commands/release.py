"""`pinfold release`: widen everything, before the agent is removed from a node."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from agent.commands.options import socket_option
from agent.log import printable
from agent.serve.control_client import ControlClient


@click.command()
@click.option("--plan", "mode", flag_value="plan", default="plan", help="Only show what would be written (default).")
@click.option("--apply", "mode", flag_value="apply", help="Write it, and give nothing exclusive any more.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", help="Form of the answer.")
@socket_option
def command(mode: str, output: str, socket: Path) -> int:
    """Let every container use every CPU and memory node again, with the quotas of its own limits.

    The grants stay in the state, so that `pinfold pause --off` puts them in force again. Exit status 1 where a cgroup could
    not be written.

    \b
    Examples:
      pinfold release --plan
      pinfold release --apply && systemctl disable --now pinfold
    """
    answer = ControlClient(socket).call("release", {"apply": mode == "apply"})
    click.echo(json.dumps(answer, indent=2) if output == "json" else "\n".join(render(answer)))
    return 1 if answer["failed"] else 0


def render(answer: Mapping[str, Any]) -> Iterator[str]:
    """The answer as lines for people."""
    for change in answer["changes"]:
        settings = "  ".join(f"{name} {value}" for name, value in change["settings"].items())
        of = f" of {change['pod']}" if change["pod"] else ""
        yield f"{printable(change['cgroup'])}{of}: {settings}"
    for cgroup, why in answer["failed"].items():
        yield f"FAILED {printable(cgroup)}: {printable(why)}"
    count = len(answer["changes"])
    if answer["applied"]:
        yield f"released: {count} writes; the agent gives nothing exclusive until `pinfold pause --off`"
    else:
        yield f"{count} writes; nothing was done (--apply does it)"
