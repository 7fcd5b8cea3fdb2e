"""`pinfold exec`: a command inside a container's grant."""

from __future__ import annotations

import os
import resource
import signal
import time
from collections.abc import Sequence
from pathlib import Path

import click

from agent.commands.options import socket_option
from agent.errors import AgentError
from agent.node.exec_process import Ended, run_in_cgroups
from agent.node.tasks import Process
from agent.serve.control_client import AgentNotRunningError, ControlClient, ControlSocketError
from agent.serve.exec_grant import FINISHED, PREPARE, ExecFinished, ExecGrant, ExecRequest

REPORT_SECONDS = 60.0  # how long the end of an init container is told again while the agent restarts
RETRY_SECONDS = 0.5


@click.command(context_settings={"allow_interspersed_args": False})
@click.argument("pod")
@click.argument("container")
@click.argument("cmd", nargs=-1, required=True, type=click.UNPROCESSED)
@socket_option
@click.option("-v", "--verbose", is_flag=True, help="Say on standard error which CPUs the command gets.")
def command(pod: str, container: str, cmd: tuple[str, ...], socket: Path, verbose: bool) -> int:
    """Run CMD as a container of a manifest pod: on its CPUs and memory nodes, within its limits.

    POD is a name, or NAMESPACE/NAME. Exit code and signals are the command's own. It goes on when the agent stops or
    restarts. An init container is done when its command exits 0.

    \b
    Examples:
      pinfold exec web app -- ./server --port 8080
      pinfold exec -v batch/job main -- sh -c 'grep allowed_list /proc/self/status'
    """
    argv = cmd[1:] if cmd[0] == "--" else cmd  # click leaves it in, because our options end at POD
    if not argv:
        raise click.UsageError("no command given after --")
    client = ControlClient(socket)
    granted: list[ExecGrant] = []

    def prepare(pid: int) -> Sequence[Path]:
        request = ExecRequest(pod, container, pid, Process.of(pid).started)
        granted.append(ExecGrant.decode(client.call(PREPARE, request.encode())))
        if verbose:
            _say(request, granted[0])
        return granted[0].cgroups

    ended = run_in_cgroups(prepare, argv)
    _report(client, granted[0], ended)
    return _exit_code(ended)


def _say(asked: ExecRequest, grant: ExecGrant) -> None:
    kind = "exclusive" if grant.exclusive else "shared"
    cpus, memory = grant.cpus or "as the parent", grant.mems or "any"
    click.echo(f"pinfold: {asked.pod} {asked.container}: {kind} CPUs {cpus}, memory {memory}", err=True)


def _report(client: ControlClient, grant: ExecGrant, ended: Ended) -> None:
    """Tell the agent. A pod that waits for this end waits for ever if it is not told, so that one is tried again."""
    finished = ExecFinished(grant.uid, grant.container, ended.exit_code, ended.signal).encode()
    give_up = time.monotonic() + (REPORT_SECONDS if grant.must_report else 0.0)
    while True:
        try:
            client.call(FINISHED, finished)
            return
        except (AgentNotRunningError, ControlSocketError) as error:
            if time.monotonic() < give_up:
                time.sleep(RETRY_SECONDS)
                continue
            if grant.must_report:
                click.echo(f"pinfold: error: the end of {grant.container} is not known to the agent: {error}", err=True)
                click.echo("         hint:  run the command of this init container again when the agent runs", err=True)
            return
        except AgentError as error:
            click.echo(f"pinfold: error: {error}", err=True)
            return


def _exit_code(ended: Ended) -> int:
    if ended.signal is None:
        return ended.exit_code or 0
    # Die as the command did, so that a waiting shell or service manager sees the same; without a core file of our own.
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if ended.signal != signal.SIGKILL:  # it has no handler to reset
        signal.signal(ended.signal, signal.SIG_DFL)
    os.kill(os.getpid(), ended.signal)
    return 128 + ended.signal
