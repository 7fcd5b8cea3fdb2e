"""What the commands about state files share: reading a file bounded, and the rules that a state is judged by."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from agent.commands.options import parse_flags
from agent.config import load
from agent.config_schema import Config
from agent.errors import BadInputError
from agent.formats.state import MAX_BYTES
from agent.keeper import policy_in_force
from agent.model.state import PolicyInForce
from agent.node.archive import open_sysroot
from agent.node.file_ops import FileOps, read_up_to
from agent.node.topology import read_topology
from agent.node_config import manager_config
from agent.policy.managers import Managers, start
from agent.policy.policy_machine import policy_machine


@dataclass(frozen=True, slots=True)
class Rules:
    """The machine and the configuration as a state must fit them."""

    config: Config
    managers: Managers
    policy: PolicyInForce


def read_file(path: Path) -> bytes:
    """A file of at most the size of the largest state; what is longer is read one byte longer. Raises BadInputError."""
    try:
        return read_up_to(FileOps(), path, MAX_BYTES + 1)
    except OSError as error:
        raise BadInputError(f"{path}: {error.strerror}", hint="state files are readable by root only") from error


def read_rules(config_path: Path | None, flags: tuple[str, ...], root: Path | None) -> Rules:
    """Read the configuration, and the machine below `root` (or where the configuration says it is)."""
    config = load(config_path, parse_flags(flags)).config
    with open_sysroot(root if root is not None else Path(config.node.root)) as directory:
        machine = policy_machine(read_topology(directory))
    settings = manager_config(machine, config)
    managers = start(machine, settings)
    return Rules(config, managers, policy_in_force(managers, settings))
