"""`pinfold doctor`: preflight of this node."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from agent.backends import group_path, systemd
from agent.commands.options import config_options, parse_flags
from agent.config import load
from agent.config_schema import Config, EnforcementSection
from agent.errors import AgentError
from agent.log import printable
from agent.model.cpuset import CPUSet
from agent.model.pod import QOSClass
from agent.node import doctor_checks
from agent.node.cgroup import detect
from agent.node.doctor_checks import Finding, Level
from agent.node.topology import read_topology
from agent.node_config import manager_config
from agent.policy.cgroup_names import Driver, qos_cgroup
from agent.policy.managers import start
from agent.policy.policy_machine import policy_machine
from agent.policy.systemd_units import exec_slice
from agent.serve.control_client import ControlClient
from agent.source_config import probe_sources


@click.command()
@config_options
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", help="Form of the answer.")
def command(config: Path | None, flags: tuple[str, ...], output: str) -> int:
    """Look at this node before pinfold runs on it, or when something is odd. Nothing is changed, no agent is needed.

    Exit status 0 where the agent would work (warnings included), 1 where it would not.

    \b
    Examples:
      pinfold doctor
      pinfold doctor --config ./config.yaml -o json
    """
    findings = list(examine(load(config, parse_flags(flags)).config))
    if output == "json":
        shown = [
            {"check": each.check, "level": str(each.level), "text": each.text, "hint": each.hint} for each in findings
        ]
        click.echo(json.dumps({"ok": fit(findings), "findings": shown}, indent=2))
    else:
        click.echo("\n".join(render(findings)))
    return 0 if fit(findings) else 1


def fit(findings: Sequence[Finding]) -> bool:
    """Whether the agent would work here."""
    return all(each.level is not Level.FAILURE for each in findings)


def render(findings: Sequence[Finding]) -> Iterator[str]:
    """The findings as lines for people."""
    for each in findings:
        yield f"{each.level:<8} {each.check:<12} {printable(each.text)}"
        if each.hint and each.level is not Level.OK:
            yield f"{'':<21} -> {printable(each.hint)}"
    failures = sum(each.level is Level.FAILURE for each in findings)
    warnings = sum(each.level is Level.WARNING for each in findings)
    yield f"{failures} failures, {warnings} warnings: " + (
        "this node is fit" if not failures else "this node is not fit"
    )


def examine(config: Config) -> Iterator[Finding]:
    """Every check, in an order in which one would mend what they find."""
    root = Path(config.node.root)
    yield from doctor_checks.kernel(root)
    yield from _machine(config, root)
    section = config.enforcement
    if section.backend != "none":
        yield from doctor_checks.cgroups(Path(section.cgroupRoot), group_path(section.parent))
        yield from _units(section)
        yield from doctor_checks.runtime(section.runtimeEndpoint, root)
        yield from doctor_checks.kubelet(root / config.node.kubeletRoot.lstrip("/"))
    for name, fault in probe_sources(config):
        yield _source(name, fault)
    yield from doctor_checks.services(root)
    yield from _strangers(config, root)
    state = Path(config.state.directory)
    yield from doctor_checks.clock(root, time.time(), [state / "pinfold_state"])
    yield from doctor_checks.directories(
        {
            "state.directory": state,
            "podResources.socket": Path(config.podResources.socket).parent,
            "control.socket": Path(config.control.socket).parent,
        }
    )


def _units(section: EnforcementSection) -> Iterator[Finding]:
    try:
        hierarchy = detect(Path(section.cgroupRoot))
    except AgentError:
        return  # said by the check before
    yield from doctor_checks.units(systemd(section, hierarchy))


def _machine(config: Config, root: Path) -> Iterator[Finding]:
    """The machine as it is read, and the configuration on it."""
    try:
        topology = read_topology(root)
        machine = policy_machine(topology)
        managers = start(machine, manager_config(machine, config))
    except AgentError as error:
        yield Finding("machine", Level.FAILURE, str(error), error.hint)
        return
    nodes = len(machine.numa_memory)
    yield Finding(
        "machine", Level.OK, f"{machine.topology.num_cpus} CPUs, {nodes} NUMA node{'s' if nodes != 1 else ''}"
    )
    for note in topology.notes:
        yield Finding("machine", Level.WARNING, note, "pinfold goes by what it made of it; see pinfold topology")
    if managers.cpu is None:
        text = "cpuManagerPolicy is none: nothing is pinned"
        yield Finding("reserved", Level.WARNING, text, "set cpuManagerPolicy: static and reservedSystemCPUs")
        return
    try:
        command_line = (root / "proc/cmdline").read_text(errors="replace")
    except OSError:
        command_line = ""
    yield from doctor_checks.reserved_cpus(machine.topology, managers.cpu.reserved, command_line)


def _strangers(config: Config, root: Path) -> Iterator[Finding]:
    """Who else may run where the running agent has given CPUs away; nothing where no agent runs."""
    try:
        status = ControlClient(Path(config.control.socket)).call("status", {})
    except AgentError:
        return
    online, shared, reserved = (CPUSet.parse(status["cpus"][name]) for name in ("online", "shared", "reserved"))
    section = config.enforcement
    plain = group_path(section.parent)
    own = (plain, exec_slice(plain))
    kubelets = (qos_cgroup(driver, QOSClass.GUARANTEED, section.kubeletCgroupRoot) for driver in Driver)
    theirs = shared | reserved
    if section.backend != "none" and theirs:
        yield from doctor_checks.strangers(root, Path(section.cgroupRoot), (*own, *kubelets), online - theirs, theirs)


def _source(name: str, fault: AgentError | None) -> Finding:
    if fault is None:
        return Finding("source", Level.OK, f"{name} answers")
    return Finding("source", Level.FAILURE, f"{name}: {fault}", fault.hint)
