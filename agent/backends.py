"""What the section `enforcement` means on this machine: a backend, or none where the kubelet's own policy stands against it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from agent.config import ConfigError
from agent.config_schema import Config, EnforcementSection
from agent.enforcement import Enforcement
from agent.node.cgroup import Hierarchy, detect
from agent.node.cri import CRIClient, RuntimeWriter
from agent.node.enforcer import CgroupEnforcer, ObserveOnly
from agent.node.exec_cgroups import ExecCgroups
from agent.node.kubelet_cgroups import Instances, KubeletCgroups
from agent.node.kubelet_policy import KubeletConflictError, PolicyConflict, kubelet_conflicts
from agent.policy.cgroup_names import CgroupKey, ContainerCgroup


def conflicts(config: Config) -> tuple[PolicyConflict, ...]:
    """The policies of this node's kubelet that pin too; raises KubeletConflictError where the configuration says to refuse."""
    if config.enforcement.backend == "none":
        return ()
    found = kubelet_conflicts(Path(config.node.root) / config.node.kubeletRoot.lstrip("/"))
    if found and config.enforcement.onKubeletPolicy == "refuse":
        raise KubeletConflictError("; ".join(map(str, found)))
    return found


def backend(config: Config) -> Enforcement:
    """The enforcement backend. Raises CgroupError where it cannot work here, ConfigError."""
    section = config.enforcement
    strict = section.podQuota == "strict"
    if section.backend == "none":
        return Enforcement(ObserveOnly(), None, strict)
    hierarchy = detect(Path(section.cgroupRoot))
    runtime = CRIClient(section.runtimeEndpoint) if section.runtimeEndpoint else None
    kubelet = _kubelet_cgroups(config, hierarchy, runtime)
    if section.backend == "cri":
        return _through_the_runtime(hierarchy, kubelet, runtime, section)
    cgroups = ExecCgroups(hierarchy, group_path(section.parent))
    cgroups.open()

    def find() -> Mapping[CgroupKey, PurePosixPath]:
        return {**cgroups.find(), **(kubelet.find() if kubelet is not None else {})}

    return Enforcement(
        CgroupEnforcer(hierarchy, find, time.monotonic), cgroups, strict, hierarchy, kubelet, section.kubeletCgroupRoot
    )


def _kubelet_cgroups(config: Config, hierarchy: Hierarchy, runtime: CRIClient | None) -> KubeletCgroups | None:
    if not config.sources.of_kubelet:
        return None
    ask = runtime.instances if runtime is not None else _nobody
    return KubeletCgroups(hierarchy, config.enforcement.kubeletCgroupRoot, ask)


def _nobody() -> Instances:
    return {}


def _through_the_runtime(
    hierarchy: Hierarchy, kubelet: KubeletCgroups | None, runtime: CRIClient | None, section: EnforcementSection
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
    enforcer = CgroupEnforcer(RuntimeWriter(hierarchy, runtime), find, time.monotonic, name="cri")
    strict = section.podQuota == "strict"
    return Enforcement(enforcer, None, strict, hierarchy, kubelet, section.kubeletCgroupRoot)


def group_path(text: str) -> PurePosixPath:
    """`enforcement.parent` as a path below the hierarchy. Raises ConfigError for one that leaves it."""
    path = PurePosixPath(text)
    if path.is_absolute() or ".." in path.parts or not path.parts:
        raise ConfigError(f"enforcement.parent: {text!r} is not a relative path below the cgroup root")
    return path
