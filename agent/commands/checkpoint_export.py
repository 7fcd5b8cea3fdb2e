"""`pinfold checkpoint export`: hand a node back to the kubelet."""

from __future__ import annotations

from pathlib import Path

import click

from agent.commands.state_files import read_state
from agent.errors import AgentError, BadInputError
from agent.formats.kubelet_export import export
from agent.formats.kubelet_forms import forms_for
from agent.node.file_ops import FileOps, write_durably


@click.command("export")
@click.option("--kubelet-version", required=True, metavar="1.N", help="The kubelet that is to read the files.")
@click.option(
    "--pod-level-managers",
    is_flag=True,
    help="PodLevelResourceManagers is on there; only 1.36 needs to be told.",
)
@click.option(
    "--state",
    "state_path",
    type=click.Path(exists=True, path_type=Path),
    default=Path("/var/lib/pinfold"),
    show_default=True,
    metavar="FILE|DIR",
    help="The state to export.",
)
@click.option(
    "--to",
    "target",
    type=click.Path(file_okay=False, exists=True, path_type=Path),
    help="Directory to write into; without it nothing is written.",
)
@click.option("--force", is_flag=True, help="Replace files that are there, and write what that kubelet would refuse.")
def export_command(
    kubelet_version: str, pod_level_managers: bool, state_path: Path, target: Path | None, force: bool
) -> int:
    """Write the kubelet's state files from ours, in the newest form that its version reads, and say what they cannot hold.

    Stop the agent first, then start the kubelet over the files. Exit status 1 where that kubelet would refuse to start.

    \b
    Examples:
      pinfold checkpoint export --kubelet-version 1.37
      pinfold checkpoint export --kubelet-version 1.36 --pod-level-managers --to /var/lib/kubelet
    """
    made = export(read_state(state_path), forms_for(kubelet_version, pod_level_managers=pod_level_managers))
    for text in made.lost:
        click.echo(f"lost: {text}")
    for text in made.refused:
        click.echo(f"kubelet {kubelet_version} refuses to start: {text}")
    if target is None or (made.refused and not force):
        for name, data in made.files.items():
            click.echo(f"not written: {name}, {len(data)} bytes")
        return 1 if made.refused else 0
    for name in made.files:
        if (target / name).exists() and not force:
            raise BadInputError(f"{target / name} is there already", hint="move it away, or give --force")
    for name, data in made.files.items():
        write_file(target / name, data)
        click.echo(f"written: {target / name}, {len(data)} bytes")
    return 1 if made.refused else 0


def write_file(path: Path, data: bytes) -> None:
    """Put a whole file in place, durably: beside it, fsync, rename. Raises AgentError."""
    files = FileOps()
    new = path.with_name(f".{path.name}.pinfold")
    try:
        write_durably(files, new, data)
        files.rename(new, path)
    except OSError as error:
        raise AgentError(
            f"{path}: cannot write: {error.strerror}", hint="give a directory that root can write"
        ) from error
