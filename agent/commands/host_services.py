"""`pinfold host-services`: systemd drop-ins that keep host services off exclusive CPUs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath

import click

from agent.backends import group_path
from agent.commands.options import config_options, parse_flags
from agent.config import ConfigError, load
from agent.config_schema import Config
from agent.formats.host_services import HOST_UNITS, MARK, drop_ins, every_path, host_unit_of
from agent.log import printable
from agent.model.cpuset import CPUSet
from agent.node import drop_in_files
from agent.node.cgroup import detect
from agent.node.drop_in_files import FileChange, Verb
from agent.node.topology import read_topology
from agent.node_config import manager_config
from agent.policy.managers import start
from agent.policy.policy_machine import policy_machine
from agent.serve.control_client import ControlClient

_V2 = "next; `pinfold doctor` then says who is left:"
_V2_REMOVED = "next; systemd leaves a unit narrow while processes run in it:"
_V1 = "next, then restart the services or the node, since an affinity is for what starts then:"


@click.command()
@config_options
@click.option("--plan", "mode", flag_value="plan", default="plan", help="Only show the files (default).")
@click.option("--apply", "mode", flag_value="apply", help="Write them.")
@click.option("--remove", "mode", flag_value="remove", help="Take them back.")
@click.option("--shared", is_flag=True, help="Let host services use the pool that is shared now, too; asks the agent.")
@click.option(
    "--directory",
    type=click.Path(path_type=Path),
    default=Path("/etc/systemd"),
    help="Where systemd's configuration is [/etc/systemd].",
)
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", help="Form of the answer.")
def command(config: Path | None, flags: tuple[str, ...], mode: str, shared: bool, directory: Path, output: str) -> int:
    """Keep services, sessions and virtual machines of this host on the reserved CPUs, by systemd drop-ins.

    With cgroup v2 AllowedCPUs= of system.slice, user.slice, machine.slice and init.scope, with v1 CPUAffinity= of PID 1. Pods,
    containers of `pinfold exec` and their cgroups are left alone. Running it again changes nothing.

    \b
    Examples:
      pinfold host-services
      pinfold host-services --apply && systemctl daemon-reload
      pinfold host-services --remove
    """
    loaded = load(config, parse_flags(flags)).config
    notes: list[str] = []
    wanted: Mapping[PurePosixPath, str] = {}
    if mode != "remove":
        _refuse_containers_inside(loaded)
        cpus, notes = host_cpus(loaded, shared=shared)
        wanted = drop_ins(cpus, detect(Path(loaded.enforcement.cgroupRoot)).version)
    changes = drop_in_files.plan(directory, wanted, every_path(), MARK)
    done = mode != "plan"
    if done:
        drop_in_files.apply(changes)
    after = next_commands(changes, loaded) if done else []
    if output == "json":
        files = [{"path": str(each.path), "change": str(each.verb), "content": each.content} for each in changes]
        click.echo(json.dumps({"applied": done, "files": files, "next": after, "warnings": notes}, indent=2))
        return 0
    for note in notes:
        click.echo(f"warning: {note}", err=True)
    click.echo("\n".join(render(changes, after, done=done)))
    return 0


def host_cpus(config: Config, *, shared: bool) -> tuple[CPUSet, list[str]]:
    """The CPUs that host services may use, and what there is to say about them. Raises ConfigError where there are none."""
    machine = policy_machine(read_topology(Path(config.node.root)))
    managers = start(machine, manager_config(machine, config))
    cpus = managers.cpu.reserved if managers.cpu is not None else CPUSet.parse(config.reservedSystemCPUs)
    notes: list[str] = []
    if not config.reservedSystemCPUs and cpus:
        notes.append(
            f"reservedSystemCPUs is empty: CPUs {cpus} were chosen by the amount that is reserved. "
            f"Fix them: reservedSystemCPUs: {str(cpus)!r}"
        )
    if shared:
        status = ControlClient(Path(config.control.socket)).call("status", {})
        cpus |= CPUSet.parse(status["cpus"]["shared"])
        notes.append("grants that come later may take shared CPUs: run this again then")
    if not cpus:
        raise ConfigError(
            "no CPUs are reserved, so there are none to keep host services on",
            hint="set reservedSystemCPUs, whole cores best, and see: pinfold config check",
        )
    return cpus, notes


def next_commands(changes: Sequence[FileChange], config: Config) -> list[str]:
    """What makes these changes count, as root.

    A unit that lost its drop-in is widened by hand: systemd then asks for an empty cpuset, which the kernel refuses as long as
    there are processes in it.
    """
    if all(each.verb is Verb.KEEP for each in changes):
        return []
    if any(map(_is_of_v1, changes)):
        return ["systemctl daemon-reexec"]
    freed = [each.path.parent.name.removesuffix(".d") for each in changes if each.verb is Verb.REMOVE]
    groups = [Path(config.enforcement.cgroupRoot) / unit / "cpuset.cpus" for unit in freed if unit in HOST_UNITS]
    narrowed = [group for group in groups if group.exists()]
    if not narrowed:
        return ["systemctl daemon-reload"]
    online = read_topology(Path(config.node.root)).lists.online
    return ["systemctl daemon-reload", *(f"echo {online} > {group}" for group in narrowed)]


def _is_of_v1(change: FileChange) -> bool:
    return change.path.parent.name == "system.conf.d"


def render(changes: Sequence[FileChange], after: Sequence[str], *, done: bool) -> Iterator[str]:
    """The changes as lines for people, each file with what it says. after: `next_commands`."""
    count = sum(change.verb is not Verb.KEEP for change in changes)
    for change in changes:
        yield f"{change.verb:<8} {printable(str(change.path))}"
        yield from (f"         | {line}" for line in change.content.splitlines() if not line.startswith("#"))
    if not count:
        yield "nothing to change"
    elif done:
        yield f"{count} files changed"
        yield _V1 if any(map(_is_of_v1, changes)) else _V2_REMOVED if len(after) > 1 else _V2
        yield from (f"  {each}" for each in after)
    else:
        yield f"{count} files to change; nothing was done (--apply does it)"


def _refuse_containers_inside(config: Config) -> None:
    """Containers below one of the narrowed units would be kept on the reserved CPUs with it."""
    groups = {
        "enforcement.parent": group_path(config.enforcement.parent),
        "enforcement.kubeletCgroupRoot": PurePosixPath(config.enforcement.kubeletCgroupRoot.lstrip("/")),
    }
    for key, group in groups.items():
        if unit := host_unit_of(group):
            raise ConfigError(
                f"{key}: {group} is inside {unit}, whose CPUs would be narrowed with its containers",
                hint="put it beside, such as `pinfold` and `/`, or keep host services away by other means",
            )
