"""What the section `enforcement` means on this machine: a backend, or none where the kubelet's own policy stands against it.

The client of a container runtime is imported where one is configured: its messages are much of a start otherwise.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass
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
from agent.node.kubelet_cgroups import KubeletCgroups
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


@dataclass(frozen=True, slots=True)
class Backend:
    """An enforcement backend as it was put together: nothing is written yet.

    conflicts: what else pins here; then it only observes. manager: what was found of systemd, None where it was not looked for.
    """

    enforcement: Enforcement
    conflicts: tuple[PolicyConflict, ...] = ()
    manager: Manager | None = None

    def open(self) -> Enforcement:
        """Make the backend ready for use: log how cgroups are written, and make our own ones. Raises CgroupError."""
        if self.manager is not None:
            _say(self.manager)
        self.enforcement.open()
        return self.enforcement


def assemble(config: Config, stack: ExitStack) -> Backend:
    """The backend that the configuration asks for. stack: closes what it holds open.

    Raises CgroupError where there are no cgroups that it needs, ConfigError, KubeletConflictError.
    """
    section = config.enforcement
    if found := conflicts(config):
        return Backend(observing(), found)
    if section.backend == "none":
        return Backend(Enforcement(ObserveOnly(), None, section.podQuota == "strict"))
    hierarchy = detect(Path(section.cgroupRoot))
    if section.backend == "cri":
        return _through_the_runtime(config, hierarchy, stack)
    parent = group_path(section.parent)
    kubelet = _kubelet_cgroups(config, hierarchy, _runtime(section, stack))
    manager = systemd(section, hierarchy)
    units, of_exec = _units(manager, hierarchy)
    cgroups = ExecCgroups(hierarchy, parent, of_exec)

    def find() -> Mapping[CgroupKey, PurePosixPath]:
        return {**cgroups.find(), **(kubelet.find() if kubelet is not None else {})}

    hold = units.hold if units is not None else _nothing
    enforcer = CgroupEnforcer(units or hierarchy, find, time.monotonic, hold=hold)
    strict, root = section.podQuota == "strict", section.kubeletCgroupRoot
    return Backend(Enforcement(enforcer, cgroups, strict, hierarchy, kubelet, root, units=units), manager=manager)


def observing() -> Enforcement:
    """Nothing is looked at and nothing written, whatever the configuration asks for."""
    return Enforcement(ObserveOnly(), None)


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


def _units(manager: Manager, hierarchy: Hierarchy) -> tuple[UnitWriter, ExecUnits] | tuple[None, None]:
    """Who writes what systemd manages, and makes units for `pinfold exec`."""
    if manager.bus is None:
        return None, None
    writer = UnitWriter(hierarchy, manager.bus)
    return writer, ExecUnits(hierarchy, manager.bus, writer)


def _runtime(section: EnforcementSection, stack: ExitStack) -> CRIClient | None:
    if not section.runtimeEndpoint:
        return None
    from agent.node.cri import CRIClient

    return stack.enter_context(closing(CRIClient(section.runtimeEndpoint)))


def _nothing(settings: Mapping[PurePosixPath, Settings]) -> None:
    return


def _kubelet_cgroups(config: Config, hierarchy: Hierarchy, runtime: CRIClient | None) -> KubeletCgroups | None:
    if not config.sources.of_kubelet:
        return None
    ask = runtime.instances if runtime is not None else None
    return KubeletCgroups(hierarchy, config.enforcement.kubeletCgroupRoot, ask)


def _through_the_runtime(config: Config, hierarchy: Hierarchy, stack: ExitStack) -> Backend:
    """Backend cri: the runtime writes the containers' cgroups; what is in force is read from the files all the same."""
    section = config.enforcement
    runtime = _runtime(section, stack)
    kubelet = _kubelet_cgroups(config, hierarchy, runtime)
    if kubelet is None or runtime is None:
        raise ConfigError(
            "enforcement.backend cri needs enforcement.runtimeEndpoint, and sources.pods, kubelet or apiserver",
            hint="for manifest pods use backend cgroup",
        )

    def containers() -> Mapping[CgroupKey, PurePosixPath]:
        return {key: group for key, group in kubelet.find().items() if isinstance(key, ContainerCgroup)}

    find = containers if section.containersOnly else kubelet.find
    manager = systemd(section, hierarchy)
    units, _ = _units(manager, hierarchy)

    def hold(settings: Mapping[PurePosixPath, Settings]) -> None:
        if units is not None:  # the scopes of containers are the runtime's to write
            units.hold({group: each for group, each in settings.items() if group.suffix == ".slice"})

    from agent.node.cri import RuntimeWriter

    writer = RuntimeWriter(hierarchy, runtime, units)
    enforcer = CgroupEnforcer(writer, find, time.monotonic, name="cri", hold=hold)
    strict, root = section.podQuota == "strict", section.kubeletCgroupRoot
    return Backend(Enforcement(enforcer, None, strict, hierarchy, kubelet, root, units=units), manager=manager)


def group_path(text: str) -> PurePosixPath:
    """`enforcement.parent` as a path below the hierarchy. Raises ConfigError for one that leaves it."""
    path = PurePosixPath(text)
    if path.is_absolute() or ".." in path.parts or not path.parts:
        raise ConfigError(f"enforcement.parent: {text!r} is not a relative path below the cgroup root")
    return path
