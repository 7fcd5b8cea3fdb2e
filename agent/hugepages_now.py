"""The hugepages that are really free at this moment, as far as `node.freeHugepages` wants to know."""

from __future__ import annotations

from pathlib import Path

from agent.config_schema import Config
from agent.node.sysfs import Sysfs
from agent.node.sysfs_numa import read_hugepages
from agent.policy.free_hugepages import FreeHugepages, FreeHugepagesRule
from agent.policy.policy_machine import free_hugepages


def free_hugepages_now(config: Config, root: Path | None = None) -> FreeHugepages | None:
    """How many are free, and what follows from too few. None where that is not to be looked at. root: None for `node.root`."""
    rule = FreeHugepagesRule(config.node.freeHugepages)
    if rule is FreeHugepagesRule.IGNORE:
        return None
    return FreeHugepages(rule, free_hugepages(read_hugepages(Sysfs(root or Path(config.node.root)))))
