"""What a running agent does anew: the configuration on SIGHUP, the machine when the kernel says that it has changed."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from agent.config import load
from agent.config_schema import Config
from agent.daemon import Daemon, Periods
from agent.hugepages_now import free_hugepages_now
from agent.kube.manifest_directory import ManifestDirectory
from agent.log import say
from agent.node_rules import read_machine, rules_of
from agent.policy.second import SECOND_SOURCES

_log = logging.getLogger("pinfold")
RESTART_SECTIONS = ("node", "state", "reports", "podResources", "nodeService", "http", "control", "queues")
_LIVE = {"periodSeconds": 1.0, "podQuota": "kubelet"}  # what of `enforcement` a reload applies


def manifests(config: Config, *, pod_level: bool) -> ManifestDirectory | None:
    """The manifests source, if configured."""
    source = config.sources.manifests
    return None if source is None else ManifestDirectory(Path(source.path), pod_level)


def periods(config: Config) -> Periods:
    """How often the loop looks."""
    source = config.sources.manifests.periodSeconds if config.sources.manifests is not None else 3600.0
    return Periods(source, config.enforcement.periodSeconds)


def rediscover(daemon: Daemon, config: Config) -> None:
    """Go on under the machine as it is now. Raises AgentError; then everything stays as it was."""
    machine = read_machine(config)
    if machine != daemon.keeper.managers.machine:
        daemon.keeper.under(rules_of(machine, config))


def reconfigure(daemon: Daemon, running: Config, path: Path | None, flags: dict[str, Any]) -> None:
    """Apply what can change live, and say what needs a restart. Raises AgentError; then everything stays as it was."""
    config = load(path, flags).config
    rules = rules_of(read_machine(config), config)
    daemon.keeper.under(rules)
    source, current = manifests(config, pod_level=rules.managers.gates.pod_level_resources), daemon.observing.manifests
    if source is None or current is None or source.path != current.path:
        daemon.observing.manifests = source
    daemon.observing.hugepages = lambda: free_hugepages_now(config)
    daemon.periods = periods(config)
    daemon.rediscover = lambda daemon: rediscover(daemon, config)
    daemon.enforcement.strict_pod_quota = config.enforcement.podQuota == "strict"
    for section in _stale(config, running):
        say(_log, logging.WARNING, "needs a restart", section=section)


def _stale(config: Config, running: Config) -> list[str]:
    """Sections that say something else than what runs, and are not read while it runs."""
    stale = [name for name in RESTART_SECTIONS if getattr(config, name) != getattr(running, name)]
    if config.enforcement.model_copy(update=_LIVE) != running.enforcement.model_copy(update=_LIVE):
        stale.append("enforcement")
    if any(getattr(config.sources, name) != getattr(running.sources, name) for name in SECOND_SOURCES):
        stale.append("sources")
    return stale
