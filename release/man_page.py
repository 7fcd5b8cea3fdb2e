"""Writes man/pinfold.1 and completion/ from the commands themselves: `python -m release.man_page`; tests hold them equal."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from agent import __version__
from agent.cli import cli

CHECKOUT = Path(__file__).resolve().parents[1]
PAGE = CHECKOUT / "man" / "pinfold.1"
COMPLETIONS = {"bash": "pinfold.bash", "zsh": "_pinfold", "fish": "pinfold.fish"}
_FILES = (
    ("/etc/pinfold/config.yaml, /etc/pinfold/config.d/*.yaml", "configuration"),
    ("/etc/pinfold/manifests/", "pods, where the agent plays the kubelet's part"),
    ("/var/lib/pinfold/pinfold_state", "what every container holds; root's alone"),
    ("/run/pinfold/pod-resources/kubelet.sock", "PodResources, for monitoring agents"),
    ("/run/pinfold/control.sock", "what changes anything; root's alone"),
)
_STATUS = (
    ("0", "fine"),
    ("1", "the answer is no: it does not fit, a check failed"),
    ("2", "wrong use or bad input"),
    ("3", "the environment: no permission, no agent, a full disk"),
)


def page() -> str:
    """The manual page, in man(7) macros."""
    context = click.Context(cli, info_name="pinfold")
    lines = [
        f'.TH PINFOLD 1 "" "pinfold {__version__}" "User Commands"',
        ".SH NAME",
        r"pinfold \- CPUs and NUMA memory for the containers of this node",
        ".SH SYNOPSIS",
        r"\fBpinfold\fR [\fIOPTIONS\fR] \fICOMMAND\fR [\fIARGS\fR]...",
        ".SH DESCRIPTION",
        *_paragraphs(cli.help or ""),
        ".SH COMMANDS",
    ]
    for name in cli.list_commands(context):
        command = cli.get_command(context, name)
        assert command is not None
        lines += _command(command, click.Context(command, info_name=name, parent=context))
    lines += [".SH EXIT STATUS", *_table(_STATUS), ".SH FILES", *_table(_FILES)]
    lines += [".SH SEE ALSO", ".BR systemd (1),", ".BR cgroups (7),", ".BR cpuset (7)"]
    return "\n".join(lines) + "\n"


def _command(command: click.Command, context: click.Context) -> Iterator[str]:
    pieces = " ".join(command.collect_usage_pieces(context))
    yield f".SS {context.command_path} {_text(pieces)}"
    yield from _paragraphs(command.help or "")
    records = [each.get_help_record(context) for each in command.get_params(context)]
    for option, text in filter(None, records):
        if text and "--help" not in option:
            yield from (".TP", rf"\fB{_text(option)}\fR", _text(text))
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from _command(below, click.Context(below, info_name=name, parent=context))


def _paragraphs(text: str) -> Iterator[str]:
    """Help text as click reads it: a paragraph that begins with \\b keeps its lines."""
    for paragraph in inspect.cleandoc(text).split("\n\n"):
        if paragraph.startswith("\b\n"):
            yield from (".PP", ".nf", *map(_text, paragraph.removeprefix("\b\n").splitlines()), ".fi")
        else:
            yield from (".PP", _text(" ".join(paragraph.split())))


def _table(rows: tuple[tuple[str, str], ...]) -> Iterator[str]:
    for name, text in rows:
        yield from (".TP", rf"\fB{_text(name)}\fR", _text(text))


def _text(text: str) -> str:
    escaped = text.replace("\\", r"\e").replace("-", r"\-")
    return rf"\&{escaped}" if escaped.startswith((".", "'")) else escaped


def completion(shell: str) -> str:
    """The completion script of a shell; what is completed it asks pinfold for, so that it does not grow old."""
    environment = {**os.environ, "_PINFOLD_COMPLETE": f"{shell}_source"}
    command = [sys.executable, "-c", "from agent.cli import main; main()"]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout


def main() -> None:
    """Write all files."""
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(page(), encoding="utf-8")
    for shell, name in COMPLETIONS.items():
        path = CHECKOUT / "completion" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(completion(shell), encoding="utf-8")


if __name__ == "__main__":
    main()
