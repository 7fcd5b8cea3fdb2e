"""The `pinfold` command: finds the sub-command, loads only that one, and shows errors to people."""

from __future__ import annotations

import importlib
import io
import signal
import sys
from collections.abc import Mapping

import click

from agent.errors import AgentError

# command -> (module that has it as `command`, one line for --help, so that --help loads none of them)
COMMANDS: Mapping[str, tuple[str, str]] = {
    "run": ("agent.commands.run", "Run the agent in the foreground."),
    "demo": ("agent.commands.demo", "See it work on this machine, for half a minute."),
    "status": ("agent.commands.status", "Show what the running agent holds."),
    "explain": ("agent.commands.explain", "Would this pod fit, where, and if not why."),
    "exec": ("agent.commands.exec", "Run a command inside a container's grant."),
    "pause": ("agent.commands.pause", "Give no new exclusive CPUs."),
    "release": ("agent.commands.release", "Widen everything, before the agent is removed."),
    "doctor": ("agent.commands.doctor", "Is this node fit for pinfold, and if not what to do."),
    "host-services": (
        "agent.commands.host_services",
        "Keep services of the host off exclusive CPUs, by systemd drop-ins.",
    ),
    "checkpoint": ("agent.commands.checkpoint", "State files, ours and the kubelet's: show, verify, move, repair."),
    "config": ("agent.commands.config", "Check, show or reload the configuration."),
    "podresources": ("agent.commands.podresources", "See what a monitoring agent sees."),
    "queues": ("agent.commands.queues", "Queue accounting: status, resize check, reclaim, simulation."),
    "replay": ("agent.commands.replay", "Run recorded decisions again; --check compares."),
    "gather": ("agent.commands.gather", "Put machine, configuration, state and decisions into one archive."),
    "topology": ("agent.commands.topology", "Show the machine as read from sysfs."),
}


class LazyGroup(click.Group):
    """A group whose commands are imported when they are called: start-up time is what people and probes feel."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(COMMANDS[cmd_name][0]).command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])


def _version(ctx: click.Context, param: click.Parameter, asked: bool) -> None:
    if asked and not ctx.resilient_parsing:
        from agent.version import version_text

        click.echo(version_text())
        ctx.exit()


@click.command(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_version,
    help="Show the version and commit, and exit.",
)
def cli() -> None:
    """Decide which CPUs and which NUMA memory every container of this node gets, and hold it to that.

    \b
    Examples:
      pinfold demo
      pinfold doctor
      pinfold explain --help
    """


def main(args: list[str] | None = None) -> None:
    """Entry point. Exit status: 0 fine, 1 the answer is no, 2 wrong use or bad input, 3 environment, 141 the reader of
    the output went away."""
    stdout = sys.stdout
    if isinstance(stdout, io.TextIOWrapper):  # what a name or a locale holds must not end a command
        stdout.reconfigure(errors="backslashreplace")
    try:
        result = cli.main(args=args, prog_name="pinfold", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        sys.exit(2)
    except click.Abort:
        sys.exit(130)
    except AgentError as error:
        _show(error)
        sys.exit(error.exit_status)
    except SystemExit:
        if sys.stdout is not stdout:  # click's answer to EPIPE: the reader, `head` say, has what it wanted
            sys.exit(128 + signal.SIGPIPE)
        raise
    sys.exit(result if isinstance(result, int) else 0)


def _show(error: AgentError) -> None:
    from agent.log import ERROR_PREFIX, goes_to_journal

    lines = f"pinfold: error: {error}" + (f"\n         hint:  {error.hint}" if error.hint else "")
    prefix = ERROR_PREFIX if goes_to_journal(sys.stderr) else ""
    for line in lines.splitlines():
        click.echo(prefix + line, err=True)


if __name__ == "__main__":
    main()
