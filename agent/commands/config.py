"""`pinfold config`: is the configuration right for this machine, and where does each value come from."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from agent.commands.options import config_options, parse_flags, socket_option
from agent.config import Loaded, load
from agent.config_schema_values import Section
from agent.errors import AgentError
from agent.model.resources import MEMORY, is_hugepages
from agent.node.archive import open_sysroot
from agent.node.topology import read_topology
from agent.node_config import POD_LEVEL_MANAGERS, manager_config, node_capacity, reserved
from agent.policy.managers import start
from agent.policy.policy_machine import policy_machine
from agent.preflight import faults, oddities
from agent.serve.control_client import ControlClient


@click.group()
def command() -> None:
    """Check, show or reload the configuration.

    \b
    Example:
      pinfold config check --config ./config.yaml
    """


@command.command()
@config_options
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", help="Form of the answer.")
def show(config: Path | None, flags: tuple[str, ...], output: str) -> int:
    """Show the effective configuration, with the origin of every value.

    \b
    Example:
      pinfold config show --config ./config.yaml
    """
    loaded = load(config, parse_flags(flags))
    if output == "json":
        origins = {key: _origin(loaded, key, default=default) for key, _, default in flatten(loaded.config)}
        click.echo(json.dumps({"values": loaded.config.model_dump(), "origins": origins}, indent=2))
        return 0
    for key, value, default in flatten(loaded.config):
        click.echo(f"{key}: {json.dumps(value)}  # {_origin(loaded, key, default=default)}")
    return 0


@command.command()
@config_options
@click.option("--sysroot", "root", type=click.Path(path_type=Path), help="A captured machine: directory or archive.")
def check(config: Path | None, flags: tuple[str, ...], root: Path | None) -> int:
    """Check the configuration against this machine (or a captured one): would the agent start with it.

    Of this machine also the sockets, groups, certificates, cgroups and directories that it names. Nothing is changed, and a
    running agent does not mind.

    \b
    Example:
      pinfold config check --config ./config.yaml
    """
    loaded = load(config, parse_flags(flags))
    found = list(faults(loaded.config)) if root is None else []
    for oddity in oddities(loaded):
        click.echo(f"warning: {oddity}", err=True)
    lines: list[str] = []
    with open_sysroot(root if root is not None else Path(loaded.config.node.root)) as directory:
        try:
            lines += facts(loaded, directory)
        except AgentError as error:
            found.insert(0, error)
    for fault in found[1:]:
        click.echo(f"error: {fault}" + (f"\n hint: {fault.hint}" if fault.hint else ""), err=True)
    if found:
        raise found[0]
    click.echo("\n".join(lines))
    return 0


@command.command()
@socket_option
def reload(socket: Path) -> int:
    """Have the running agent apply the configuration as it is in the files now.

    Fails with what is wrong, and then the configuration before stays in force. What needs a restart is in the agent's log.

    \b
    Example:
      pinfold config reload
    """
    ControlClient(socket).call("reload", {})
    return 0


def facts(loaded: Loaded, directory: Path) -> Iterator[str]:
    """What the configuration means on the machine below `directory`. Raises what the agent would refuse to start with."""
    machine = policy_machine(read_topology(directory))
    managers = start(machine, manager_config(machine, loaded.config))
    capacity = node_capacity(machine, loaded.config)
    yield "the agent starts with this configuration"
    if managers.cpu is not None:
        exclusive = managers.cpu.allocatable or "none"
        yield f"CPUs: online {machine.topology.all}, reserved {managers.cpu.reserved}, exclusive {exclusive}"
        if managers.gates.pod_level_resource_managers:
            origin = loaded.origin(f"featureGates.{POD_LEVEL_MANAGERS}")
            where = "pinfold's default" if origin == "default" else origin
            yield f"pod-level resource managers (KEP-5526): on ({where})"
        else:
            yield "pod-level resource managers: off, pods with .spec.resources get nothing exclusive"
    for resource, amount in sorted(reserved(machine, loaded.config).items()):
        whole = capacity.capacity.get(resource)
        unit = " bytes" if resource == MEMORY or is_hugepages(resource) else ""
        yield f"{resource}: reserved {amount} of {whole if whole is not None else 0}{unit}"


def flatten(section: Section, prefix: str = "") -> Iterator[tuple[str, Any, bool]]:
    """Dotted keys of the sections, their values, and whether each is the default; lists and maps of free keys stay whole."""
    plain = section.model_dump()
    for key, field in type(section).model_fields.items():
        inner = getattr(section, key)
        if isinstance(inner, Section):
            yield from flatten(inner, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", plain[key], inner == field.default


def _origin(loaded: Loaded, key: str, *, default: bool) -> str:
    """What a section leaves out comes from nowhere else, though the section is in a file."""
    return "default" if default and key not in loaded.origins else loaded.origin(key)
