"""What every cgroup of the node shall say, from the grants and the pods alone (design section 7).

CPUs: a container runs on what it was granted, else on the shared pool; its pod's cgroup spans both; the QoS cgroups hold the
shared pool, so that a container starts outside exclusive CPUs. Quotas: none on an exclusive slice, because CFS would throttle
what nobody else may use anyway (kubernetes/kubernetes#70585); a container in a pod's shared pool keeps its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import assert_never

from agent.model.cpuset import CPUSet, union
from agent.model.pod import Container, ContainerKind, Pod
from agent.model.state import CPUState, Grants, nodes_of
from agent.policy import cpu_static
from agent.policy.cgroup_names import CgroupKey, ContainerCgroup, PodCgroup, QOSCgroup
from agent.policy.cgroup_settings import NO_LIMIT, Settings, quota_of, shares_of
from agent.policy.pod_bounds import PodBounds, pod_bounds
from agent.policy.qos import container_equivalent_guaranteed


@dataclass(frozen=True, slots=True)
class Rules:
    """owned: UIDs of pods whose every setting is ours (manifest pods); of the others only CPU sets, memory nodes and the
    quotas that follow from a grant are. strict_pod_quota: `enforcement.podQuota: strict`. page_bytes: the kernel rounds
    memory bounds down to pages.
    """

    owned: frozenset[str] = frozenset()
    strict_pod_quota: bool = False
    page_bytes: int = 4096


@dataclass(frozen=True, slots=True)
class Intent:
    """settings: what the cgroup shall say. own: the part of its CPUs that nobody outside may use; empty for shared ones."""

    settings: Settings
    own: CPUSet = field(default_factory=CPUSet)


def intent(key: CgroupKey, grants: Grants, pods: Mapping[str, Pod], rules: Rules) -> Intent:
    """What the cgroup `key` shall say.

    pods: by UID, with their allocated resources; of a pod that is not among them the CPUs are known and nothing else.
    settings.cpus is None where there is nothing to give: with CPU policy `none`, or when the shared pool is empty. An empty
    set is never wanted: the runtimes and cgroup v2 take it for "no bound" (BL-35).
    """
    match key:
        case QOSCgroup():
            return Intent(Settings(cpus=grants.cpu.default or None))
        case PodCgroup(uid):
            return _pod_intent(uid, grants.cpu, pods.get(uid), rules)
        case ContainerCgroup(pod=uid, container=name):
            return _container_intent(uid, name, grants, pods.get(uid), rules)
    assert_never(key)


class Intents:
    """The intents of one state, each worked out once: keep it for as long as grants and pods stay the same."""

    def __init__(self, grants: Grants, pods: Mapping[str, Pod], rules: Rules) -> None:
        self._grants = grants
        self._pods = pods
        self._rules = rules
        self._known: dict[CgroupKey, Intent] = {}
        self.exclusive = grants.cpu.held

    def of(self, key: CgroupKey) -> Intent:
        """What the cgroup `key` shall say."""
        if key not in self._known:
            self._known[key] = intent(key, self._grants, self._pods, self._rules)
        return self._known[key]


def has_slice(cpu: CPUState, pod: Pod, container: Container) -> bool:
    """Whether the container's CPUs are its alone. Without a bubble every entry is a slice; in a bubble only a container
    whose CPU and memory requests equal its limits, with a whole number of CPUs, has one (KEP-5526)."""
    if not cpu.entries.get(pod.uid, {}).get(container.name):
        return False
    if pod.uid not in cpu.pod_entries:
        return True
    return container_equivalent_guaranteed(container) and cpu_static.exclusive_cpus(container) > 0


def _pod_intent(uid: str, cpu: CPUState, pod: Pod | None, rules: Rules) -> Intent:
    bubble = cpu.pod_entries.get(uid, CPUSet())
    own = bubble or union(cpu.entries.get(uid, {}).values())
    cpus = bubble or cpu.default | own
    if pod is None:
        return Intent(Settings(cpus=cpus or None), own)
    bounds = pod_bounds(pod)
    lifted = _quota_is_lifted(cpu, pod, rules)
    if uid not in rules.owned:
        quota = _pod_quota(bounds, lifted=lifted) if own else None
        return Intent(Settings(cpus=cpus or None, quota_us=quota), own)
    settings = Settings(
        cpus=cpus or None,
        quota_us=_pod_quota(bounds, lifted=lifted),
        shares=shares_of(bounds.cpu_request_millis),
        memory_bytes=_pages(bounds.memory_limit_bytes, rules.page_bytes),
    )
    return Intent(settings, own)


def _quota_is_lifted(cpu: CPUState, pod: Pod, rules: Rules) -> bool:
    """The bubble is the bound in scope pod; in scope container a slice would be throttled by its neighbours' use."""
    if rules.strict_pod_quota:
        return False
    return pod.uid in cpu.pod_entries or any(has_slice(cpu, pod, container) for container in pod.containers)


def _pod_quota(bounds: PodBounds, *, lifted: bool) -> int:
    return NO_LIMIT if lifted or bounds.cpu_limit_millis is None else quota_of(bounds.cpu_limit_millis)


def _container_intent(uid: str, name: str, grants: Grants, pod: Pod | None, rules: Rules) -> Intent:
    own = grants.cpu.entries.get(uid, {}).get(name, CPUSet())
    cpus = own or _bubble_rest(grants.cpu, uid) or grants.cpu.default or None
    mems = nodes_of(grants.memory.entries.get(uid, {}).get(name, ()))
    base = Settings(cpus=cpus, mems=mems or None)
    container = next((one for one in pod.containers if one.name == name), None) if pod else None
    if pod is None or container is None:
        return Intent(base, own)
    quota = _container_quota(grants.cpu, pod, container, rules)
    if uid not in rules.owned:
        return Intent(Settings(base.cpus, base.mems, quota_us=quota), own)
    limits, requests = container.resources.limits, container.resources.requests
    request, memory = requests.get("cpu"), limits.get("memory")
    settings = Settings(
        cpus=base.cpus,
        mems=base.mems,
        quota_us=quota if quota is not None else _limit_quota(container),
        shares=shares_of(request.milli_value() if request else 0),
        memory_bytes=_pages(memory.value() if memory else None, rules.page_bytes),
    )
    return Intent(settings, own)


def _bubble_rest(cpu: CPUState, uid: str) -> CPUSet:
    """Where a container without a grant runs in a pod that has a bubble (a debug container, say): outside the bubble it cannot
    be, because its pod's cgroup ends there."""
    bubble = cpu.pod_entries.get(uid, CPUSet())
    return (bubble - union(cpu.entries.get(uid, {}).values())) or bubble


def _container_quota(cpu: CPUState, pod: Pod, container: Container, rules: Rules) -> int | None:
    """The quota that follows from the grant; None where the grant says nothing about it."""
    if has_slice(cpu, pod, container):
        return NO_LIMIT
    if cpu.entries.get(pod.uid, {}).get(container.name):
        return _limit_quota(container)  # a member of the pod's shared pool
    if not _quota_is_lifted(cpu, pod, rules):
        return None
    total = pod_bounds(pod).cpu_limit_millis
    if total is None:
        return _limit_quota(container)
    rest = total - 1000 * len(_slices_beside(cpu, pod, container))
    limit = container.resources.limits.get("cpu")
    return quota_of(min(limit.milli_value(), rest) if limit else rest)


def _slices_beside(cpu: CPUState, pod: Pod, container: Container) -> CPUSet:
    """The slices that are in use while `container` runs: sidecars', and apps' unless it runs before them."""
    kinds = (
        {ContainerKind.SIDECAR, ContainerKind.APP}
        if container.kind is not ContainerKind.INIT
        else {ContainerKind.SIDECAR}
    )
    entries = cpu.entries.get(pod.uid, {})
    return union(entries[one.name] for one in pod.containers if one.kind in kinds and has_slice(cpu, pod, one))


def _limit_quota(container: Container) -> int:
    limit = container.resources.limits.get("cpu")
    return quota_of(limit.milli_value()) if limit else NO_LIMIT


def _pages(limit_bytes: int | None, page_bytes: int) -> int:
    return NO_LIMIT if limit_bytes is None else limit_bytes // page_bytes * page_bytes
