"""What a state must fit on this node: the machine as it is now and the configuration, as one value."""

from __future__ import annotations

from pathlib import Path

from agent.config_schema import Config
from agent.keeper import Rules
from agent.model.machine import Machine
from agent.model.quantity import Quantity
from agent.node.archive import open_sysroot
from agent.node.topology import read_topology
from agent.node_config import manager_config, node_capacity
from agent.policy.managers import policy_in_force, start
from agent.policy.policy_machine import policy_machine


def read_machine(config: Config) -> Machine:
    """The machine below `node.root`, which is the directory that holds sys/ and proc/."""
    return policy_machine(read_topology(Path(config.node.root)))


def rules_here(config: Config, captured: Path | None) -> Rules:
    """The rules on this machine, or on a captured one (a directory or an archive)."""
    with open_sysroot(captured if captured is not None else Path(config.node.root)) as directory:
        return rules_of(policy_machine(read_topology(directory)), config)


def rules_of(machine: Machine, config: Config) -> Rules:
    """What a state must fit. Raises ConfigError and StartError."""
    settings = manager_config(machine, config)
    managers = start(machine, settings)
    return Rules(
        managers,
        node_capacity(machine, config),
        policy_in_force(managers, settings),
        boot_id(config),
        Quantity.parse(config.state.memoryTolerance).value(),
        config.state.confirmNewCPUs,
    )


def boot_id(config: Config) -> str:
    """The kernel's id of this boot; empty where there is none (a captured tree)."""
    try:
        path = Path(config.node.root) / "proc/sys/kernel/random/boot_id"
        return path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""
