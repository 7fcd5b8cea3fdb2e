"""`pinfold checkpoint`: state files, ours and the kubelet's. The parts that change something: agent.commands.checkpoint_*."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import click

from agent.commands.checkpoint_export import export_command
from agent.commands.checkpoint_import import import_command
from agent.commands.checkpoint_repair import repair_command
from agent.commands.state_files import read_file
from agent.errors import BadInputError
from agent.formats.checkpoint import CheckpointError
from agent.formats.checkpoint_view import FILE_NAMES, MANAGERS, View, guess_manager, render, verdict_line, view
from agent.formats.kubelet_export import CPU_FILE, MEMORY_FILE
from agent.formats.kubelet_import import read_files

_OUTPUT = click.option(
    "-o", "--output", type=click.Choice(["text", "json"]), default="text", help="Form of the answer."
)
_MANAGER = click.option(
    "--manager", type=click.Choice(MANAGERS), help="Whose file it is [by its name, else its content]."
)


@click.group()
def command() -> None:
    """Look into state files, ours and the kubelet's, and move a node between the two.

    A file's verdict: valid (its checksum matches), unverified (it carries none), damaged, unreadable.

    \b
    Example:
      pinfold checkpoint verify /var/lib/kubelet/cpu_manager_state
    """


@command.command()
@click.argument("paths", nargs=-1, required=True, metavar="FILE|DIR...", type=click.Path(exists=True, path_type=Path))
@_MANAGER
@_OUTPUT
def show(paths: tuple[Path, ...], manager: str | None, output: str) -> int:
    """Show what state files say. DIR: every state file in it.

    \b
    Examples:
      pinfold checkpoint show /var/lib/kubelet
      pinfold checkpoint show -o json checkpoints/cpu_manager/v4/cpu_manager_state
    """
    found = [(path, _view(path, manager)) for path in _files(paths)]
    if output == "json":
        click.echo(json.dumps([{"file": str(path), **each.as_json()} for path, each in found], indent=2))
    else:
        click.echo("\n\n".join(render(str(path), each) for path, each in found))
    return 0 if all(each.usable for _, each in found) else 1


@command.command()
@click.argument("paths", nargs=-1, required=True, metavar="FILE|DIR...", type=click.Path(exists=True, path_type=Path))
@_MANAGER
@_OUTPUT
def verify(paths: tuple[Path, ...], manager: str | None, output: str) -> int:
    """Say how far state files can be trusted; exit status 1 where one is damaged or unreadable.

    DIR: every state file in it, and whether the kubelet's CPU and memory file belong together.

    \b
    Examples:
      pinfold checkpoint verify /var/lib/kubelet
      pinfold checkpoint verify cpu_manager_state.bak --manager cpu
    """
    found = [(path, _view(path, manager)) for path in _files(paths)]
    notes = [note for path in paths if path.is_dir() for note in _pair(path)]
    if output == "json":
        files = [{"file": str(path), **each.as_json(), "state": None} for path, each in found]
        click.echo(json.dumps({"files": files, "notes": notes}, indent=2))
    else:
        for path, each in found:
            click.echo(verdict_line(str(path), each))
        for note in notes:
            click.echo(f"note: {note}")
    return 0 if all(each.usable for _, each in found) else 1


def _files(paths: tuple[Path, ...]) -> Iterator[Path]:
    for path in paths:
        if not path.is_dir():
            yield path
            continue
        inside = [path / name for name in FILE_NAMES if (path / name).is_file()]
        if not inside:
            raise BadInputError(f"{path}: no state file in it", hint=f"known names: {', '.join(FILE_NAMES)}")
        yield from inside


def _view(path: Path, manager: str | None) -> View:
    data = read_file(path)
    return view(manager or guess_manager(path.name, data), data)


def _pair(directory: Path) -> tuple[str, ...]:
    files = {name: read_file(directory / name) for name in (CPU_FILE, MEMORY_FILE) if (directory / name).is_file()}
    try:
        return read_files(files, accept_unverified=True).notes
    except CheckpointError:
        return ()  # the verdict of the file itself says it


command.add_command(import_command)
command.add_command(export_command)
command.add_command(repair_command)
