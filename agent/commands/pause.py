"""`pinfold pause`: nothing exclusive is given from now on, or again."""

from __future__ import annotations

from pathlib import Path

import click

from agent.commands.options import socket_option
from agent.serve.control_client import ControlClient


@click.command()
@click.option("--off", is_flag=True, help="Go on as usual; after `release --apply` every grant is in force again.")
@socket_option
def command(off: bool, socket: Path) -> int:
    """Give no new exclusive CPUs or memory. Pods that hold some keep them. It holds over restarts of the agent.

    Manifest pods that ask for exclusive CPUs wait; beside a kubelet they run in the shared pool, unplaced.

    \b
    Examples:
      pinfold pause
      pinfold pause --off
    """
    ControlClient(socket).call("pause", {"on": not off})
    click.echo("running: exclusive CPUs are given" if off else "paused: no new exclusive CPUs; see pinfold status")
    return 0
