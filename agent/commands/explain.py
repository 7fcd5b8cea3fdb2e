"""`pinfold explain`: would this pod fit, where, and if not why."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click

from agent.commands.explain_lint import NoPodError, lint_files
from agent.commands.options import config_options, parse_flags, socket_option
from agent.commands.state_files import read_state
from agent.config import load
from agent.config_schema import Config
from agent.errors import BadInputError
from agent.formats.documents import MAX_BYTES
from agent.formats.explanation import explain_each
from agent.formats.manifests import decode_manifests
from agent.hugepages_now import free_hugepages_now
from agent.kube.manifest_directory import SUFFIXES
from agent.model.pod import Pod
from agent.model.state import Epoch, State
from agent.node.archive import open_sysroot
from agent.node.topology import read_topology
from agent.node_config import manager_config, node_capacity
from agent.policy.free_hugepages import FreeHugepages
from agent.policy.managers import Managers, start
from agent.policy.node_fit import NodeCapacity
from agent.policy.policy_machine import policy_machine
from agent.policy.restore import refit
from agent.serve.control_client import ControlClient


@dataclass(frozen=True, slots=True)
class _Node:
    managers: Managers
    capacity: NodeCapacity
    state: State
    hugepages: FreeHugepages | None = None


@click.command()
@click.argument("pods", nargs=-1, required=True, metavar="POD...")
@click.option("--lint", is_flag=True, help="Only look for mistakes in the files; needs neither an agent nor a machine.")
@click.option("--offline", is_flag=True, help="Do not ask the running agent; implied by the options below.")
@click.option("--sysroot", "root", type=click.Path(path_type=Path), help="A captured machine: directory or archive.")
@config_options
@click.option("--state", "state_path", type=click.Path(path_type=Path), help="State file [none].")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", help="Form of the answer.")
@socket_option
def command(
    pods: tuple[str, ...],
    lint: bool,
    offline: bool,
    root: Path | None,
    config: Path | None,
    flags: tuple[str, ...],
    state_path: Path | None,
    output: str,
    socket: Path,
) -> int:
    """Say whether pods fit, one after the other, where they would run, and if not why.

    POD is a manifest file, or the name of a pod that the running agent holds or refused. Files are judged against the running
    agent, or offline against this or a captured machine, a configuration and a state file. Nothing is changed. Exit status
    1 where a pod does not fit, with --lint where it would be refused anywhere.

    \b
    Examples:
      pinfold explain web.yaml
      pinfold explain default/web
      pinfold explain --lint web.yaml
      pinfold explain --sysroot fixtures/sysfs/two-socket-smt --set cpuManagerPolicy=static \\
          --set reservedSystemCPUs=0 web.yaml
    """
    if lint:
        return lint_files({pod: _read(Path(pod)) for pod in pods}, _config(config, flags), output)
    if offline or root is not None or config is not None or flags or state_path is not None:
        answers = list(_offline(pods, _node(root, config, flags, state_path)))
    else:
        client = ControlClient(socket)
        answers = [each for pod in pods for each in _asked(client, pod)]
    if output == "json":
        click.echo(json.dumps([answer["json"] for answer in answers], indent=2))
    else:
        click.echo("\n\n".join(answer["text"] for answer in answers))
    return 0 if all(answer["json"]["admitted"] for answer in answers) else 1


def _asked(client: ControlClient, pod: str) -> Sequence[Mapping[str, Any]]:
    answers: Sequence[Mapping[str, Any]] = client.call("explain", _subject(pod))["pods"]
    if not answers:
        raise NoPodError(pod)
    return answers


def _subject(pod: str) -> Mapping[str, Any]:
    """What the agent is asked about: a file's text where there is such a file, else a name."""
    path = Path(pod)
    if not path.exists() and path.suffix not in SUFFIXES and pod.count("/") < 2:
        return {"pod": pod}
    return {"file": pod, "manifest": _read(path).decode("utf-8", "surrogateescape")}


def _offline(files: tuple[str, ...], node: _Node) -> Iterator[Mapping[str, Any]]:
    pods = _pods(files, pod_level_resources=node.managers.gates.pod_level_resources)
    for answer in explain_each(node.managers, node.capacity, node.state, pods, node.hugepages):
        yield {"text": answer.text, "json": answer.encoded}


def _pods(files: tuple[str, ...], *, pod_level_resources: bool) -> Iterator[Pod]:
    for file in files:
        found = decode_manifests(_read(Path(file)), file, pod_level_resources=pod_level_resources)
        if found.problems:
            raise found.problems[0]
        if not found.pods:
            raise NoPodError(file)
        yield from (each.pod for each in found.pods)


def _config(path: Path | None, flags: tuple[str, ...]) -> Config:
    """The configuration, where one is named; a machine's own does not say where a file will run."""
    return load(path, parse_flags(flags)).config if path is not None or flags else Config()


def _node(root: Path | None, config_path: Path | None, flags: tuple[str, ...], state_path: Path | None) -> _Node:
    config = load(config_path, parse_flags(flags)).config
    with open_sysroot(root if root is not None else Path(config.node.root)) as directory:
        machine = policy_machine(read_topology(directory))
        hugepages = free_hugepages_now(config, directory)
    managers = start(machine, manager_config(machine, config))
    state = State(Epoch(0, "0" * 16))
    if state_path is not None:
        state = read_state(state_path)
    fitted = replace(state, grants=refit(managers, state.grants))
    return _Node(managers, node_capacity(machine, config), fitted, hugepages)


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as stream:
            return stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise BadInputError(f"{path}: {error.strerror}", hint="check the path and its permissions") from error
