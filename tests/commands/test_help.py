"""`--help` of every command and sub-command has an example (design section 12)."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest

from agent.cli import cli


def commands(group: click.Group, *path: str) -> Iterator[tuple[str, ...]]:
    """Every command below a group, by its words."""
    context = click.Context(group)
    for name in group.list_commands(context):
        yield (*path, name)
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from commands(command, *path, name)


@pytest.mark.parametrize("words", list(commands(cli)), ids=" ".join)
def test_help_has_an_example_of_the_command_itself(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    cli.main([*words, "--help"], prog_name="pinfold", standalone_mode=False)
    told = capsys.readouterr().out
    assert f"pinfold {' '.join(words)}" in told.partition("Example")[2]
