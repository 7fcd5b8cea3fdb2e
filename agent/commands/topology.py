"""`pinfold topology`: the machine as pinfold reads it, for people and for programs."""

from __future__ import annotations

from pathlib import Path

import click

from agent.formats.topology_json import render_json
from agent.formats.topology_svg import render_svg
from agent.formats.topology_text import render_text
from agent.node.archive import open_sysroot
from agent.node.topology import read_topology

_RENDER = {"text": render_text, "json": render_json, "svg": render_svg}

_EPILOG = """\b
Examples:
  pinfold topology
  pinfold topology -o svg > machine.svg
  pinfold topology --sysroot capture.tar.xz -o json
"""


@click.command("topology", epilog=_EPILOG)
@click.option(
    "--sysroot",
    type=click.Path(exists=True, path_type=Path),
    default=Path("/"),
    metavar="DIR|ARCHIVE",
    help="Read a captured machine: a directory or tar archive that holds sys/ and proc/.  [default: this machine]",
)
@click.option(
    "-o",
    "--output",
    type=click.Choice(sorted(_RENDER)),
    default="text",
    show_default=True,
    help="A readable tree, JSON with all facts, or a picture.",
)
def command(sysroot: Path, output: str) -> None:
    """Show the machine as read from sysfs.

    Sockets, NUMA nodes, last-level caches, cores and CPUs, memory and huge pages per node, distances, and notes about odd
    facts that were found and what was made of them.
    """
    with open_sysroot(sysroot) as root:
        topology = read_topology(root)
    click.echo(_RENDER[output](topology), nl=False)
