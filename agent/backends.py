"""What the section `enforcement` means on this machine: a backend, or none where the kubelet's own policy stands against it.

The client of a container runtime is imported where one is configured: its messages are much of a start otherwise.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from agent.config import ConfigError
from agent.config_schema import Config, EnforcementSection
from agent.enforcement import Enforcement
from agent.log import say
from agent.node.cgroup import Hierarchy, detect
from agent.node.enforcer import CgroupEnforcer, ObserveOnly
from agent.node.exec_cgroups import ExecCgroups
from agent.node.exec_units import ExecUnits
from agent.node.kubelet_cgroups import Instances, KubeletCgroups
from agent.node.kubelet_policy import KubeletConflictError, PolicyConflict, kubelet_conflicts
from agent.node.systemd_bus import SystemdBus
from agent.node.systemd_detect import Manager, find_manager
from agent.node.unit_writer import UnitWriter
from agent.policy.cgroup_names import CgroupKey, ContainerCgroup
from agent.policy.cgroup_settings import Settings

if TYPE_CHECKING:
    from agent.node.cri import CRIClient

_log = logging.getLogger("pinfold")


def conflicts(config: Config) -> tuple[PolicyConflict, ...]:
    """The policies of this node's kubelet that pin too; raises KubeletConflictError where the configuration says to refuse."""
    if config.enforcement.backend == "none":
        return ()
    found = kubelet_conflicts(Path(config.node.root) / config.node.kubeletRoot.lstrip("/"))
    if found and config.enforcement.onKubeletPolicy == "refuse":
        raise KubeletConflictError("; ".join(map(str, found)))
    return found


def backend(config: Config) -> Enforcement:
    """The enforcement backend, ready for use. Raises CgroupError where it cannot work here, ConfigError."""
    enforcement = assemble(config, _say)
    enforcement.open()
    return enforcement


def assemble(config: Config, tell: Callable[[Manager], None] = lambda manager: None) -> Enforcement:
    """The same before anything is written. tell: hears what was found of systemd.

    Raises CgroupError where there are no cgroups that it needs, ConfigError.
    """
    section = config.enforcement
    strict = section.podQuota == "strict"
    if section.backend == "none":
        return Enforcement(ObserveOnly(), None, strict)
    hierarchy = detect(Path(section.cgroupRoot))
    runtime = _runtime(section)
    kubelet = _kubelet_cgroups(config, hierarchy, runtime)
    if section.backend == "cri":
        return _through_the_runtime(hierarchy, kubelet, runtime, section, tell)
    units, of_exec = _units(section, hierarchy, tell)
    cgroups = ExecCgroups(hierarchy, group_path(section.parent), of_exec)

    def find() -> Mapping[CgroupKey, PurePosixPath]:
        return {**cgroups.find(), **(kubelet.find() if kubelet is not None else {})}

    hold = units.hold if units is not None else _nothing
    enforcer = CgroupEnforcer(units or hierarchy, find, time.monotonic, hold=hold)
    return Enforcement(enforcer, cgroups, strict, hierarchy, kubelet, section.kubeletCgroupRoot, units=units)


def systemd(section: EnforcementSection, hierarchy: Hierarchy) -> Manager:
    """Whether systemd holds the cgroups' settings here. It is asked, nothing is changed."""
    if section.systemd == "none":
        return Manager(None, "enforcement.systemd is none")
    return find_manager(hierarchy, Path(section.cgroupRoot), SystemdBus())


def _say(manager: Manager) -> None:
    level = logging.WARNING if manager.odd else logging.INFO
    if manager.bus is None:
        say(_log, level, "cgroups are written directly", why=manager.text)
    else:
        say(_log, level, "cgroups are written through unit properties", by=manager.text)


def _units(
    section: EnforcementSection, hierarchy: Hierarchy, tell: Callable[[Manager], None]
) -> tuple[UnitWriter, ExecUnits] | tuple[None, None]:
    """Who writes what systemd manages, and makes units for `pinfold exec`."""
    manager = systemd(section, hierarchy)
    tell(manager)
    if manager.bus is None:
        return None, None
    writer = UnitWriter(hierarchy, manager.bus)
    return writer, ExecUnits(hierarchy, manager.bus, writer)


def _runtime(section: EnforcementSection) -> CRIClient | None:
    if not section.runtimeEndpoint:
        return None
    from agent.node.cri import CRIClient

    return CRIClient(section.runtimeEndpoint)


def _nothing(settings: Mapping[PurePosixPath, Settings]) -> None:
    return


def _kubelet_cgroups(config: Config, hierarchy: Hierarchy, runtime: CRIClient | None) -> KubeletCgroups | None:
    if not config.sources.of_kubelet:
        return None
    ask = runtime.instances if runtime is not None else _nobody
    return KubeletCgroups(hierarchy, config.enforcement.kubeletCgroupRoot, ask)


def _nobody() -> Instances:
    return {}


def _through_the_runtime(
    hierarchy: Hierarchy,
    kubelet: KubeletCgroups | None,
    runtime: CRIClient | None,
    section: EnforcementSection,
    tell: Callable[[Manager], None],
) -> Enforcement:
    """Backend cri: the runtime writes the containers' cgroups; what is in force is read from the files all the same."""
    if kubelet is None or runtime is None:
        raise ConfigError(
            "enforcement.backend cri needs enforcement.runtimeEndpoint, and sources.pods, kubelet or apiserver",
            hint="for manifest pods use backend cgroup",
        )

    def containers() -> Mapping[CgroupKey, PurePosixPath]:
        return {key: group for key, group in kubelet.find().items() if isinstance(key, ContainerCgroup)}

    find = containers if section.containersOnly else kubelet.find
    units, _ = _units(section, hierarchy, tell)

    def hold(settings: Mapping[PurePosixPath, Settings]) -> None:
        if units is not None:  # the scopes of containers are the runtime's to write
            units.hold({group: each for group, each in settings.items() if group.suffix == ".slice"})

    from agent.node.cri import RuntimeWriter

    writer = RuntimeWriter(hierarchy, runtime, units)
    enforcer = CgroupEnforcer(writer, find, time.monotonic, name="cri", hold=hold)
    strict = section.podQuota == "strict"
    return Enforcement(enforcer, None, strict, hierarchy, kubelet, section.kubeletCgroupRoot, units=units)


def group_path(text: str) -> PurePosixPath:
    """`enforcement.parent` as a path below the hierarchy. Raises ConfigError for one that leaves it."""
    path = PurePosixPath(text)
    if path.is_absolute() or ".." in path.parts or not path.parts:
        raise ConfigError(f"enforcement.parent: {text!r} is not a relative path below the cgroup root")
    return path
