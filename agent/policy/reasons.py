"""Why a pod is admitted or refused, in numbers: who asked what, what every NUMA node has, who holds it, what would fit.

Derived after the fact from the same values the decision read, so that decisions cost nothing extra.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from agent.model.numa import NodeMask, node_ids
from agent.model.pod import Container, Pod
from agent.model.quantity import Quantity
from agent.model.resources import most_at_once
from agent.model.state import Grants
from agent.policy.cpu_static import CPUManager
from agent.policy.eligibility import Claims, claims
from agent.policy.managers import Managers
from agent.policy.memory_count import charged_blocks
from agent.policy.memory_static import pod_request
from agent.policy.removal import holds, remove
from agent.policy.verdict import MergeStep, Verdict

Judge = Callable[[Grants, Pod], Verdict]
_STEP = 2**20  # bytes: smaller differences of memory do not help anybody
MAX_CANDIDATES = 100  # pods tried one by one as "what would have to go": bounds the cost of explaining on a full node


@dataclass(frozen=True, slots=True)
class NUMAReport:
    """One resource on one NUMA node. capacity, free: CPUs or bytes that pods can have exclusively; held: owner -> amount."""

    node: int
    capacity: int
    free: int
    held: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class ResourceReport:
    """One resource of the pod. asked: the most it holds at one time, CPUs or bytes."""

    resource: str
    asked: int
    nodes: tuple[NUMAReport, ...]

    @property
    def free(self) -> int:
        return sum(node.free for node in self.nodes)


@dataclass(frozen=True, slots=True)
class Nearest:
    """A smaller request that would be admitted now: container ("" = the pod's own), resource, amount instead of asked."""

    container: str
    resource: str
    asked: int
    fits: int


@dataclass(frozen=True, slots=True)
class Derivation:
    """Everything behind one verdict. rule: what decided, in words.

    pods_in_the_way: pods of which the end of any one would let this pod in. all_in_the_way: where no single one is enough, pods
    that have to end together.
    """

    pod: Pod
    claims: Claims
    admitted: bool
    reason: str
    message: str
    hint: str
    resources: tuple[ResourceReport, ...]
    merges: tuple[MergeStep, ...]
    exact: bool
    nearest: Nearest | None = None
    pods_in_the_way: tuple[str, ...] = ()
    all_in_the_way: tuple[str, ...] = ()
    rule: str = ""


def derive(
    managers: Managers, grants: Grants, pod: Pod, verdict: Verdict, owners: Mapping[str, str], judge: Judge
) -> Derivation:
    """Explain a verdict about `pod` on a node with these grants.

    owners: pod UID -> name for people. judge: the whole admission, to try smaller requests and emptier nodes with.
    """
    asked = claims(pod, managers.gates)
    derivation = Derivation(
        pod,
        asked,
        verdict.admitted,
        verdict.reason,
        verdict.message,
        verdict.hint,
        tuple(_resources(managers, grants, pod, owners)),
        verdict.merges,
        verdict.exact,
        rule=verdict.rule or _admitted_rule(managers, grants, pod, verdict),
    )
    if verdict.admitted:
        return derivation
    anyone = pods_in_the_way(managers, grants, pod, owners, judge)
    return replace(
        derivation,
        nearest=nearest_fit(grants, pod, asked, judge),
        pods_in_the_way=anyone,
        all_in_the_way=() if anyone else all_in_the_way(managers, grants, pod, owners, judge),
    )


def _admitted_rule(managers: Managers, grants: Grants, pod: Pod, verdict: Verdict) -> str:
    """Why there was nothing to refuse."""
    policy = managers.topology.name
    if holds(grants, pod.uid):
        return "a pod that holds its grants keeps them, before anything is checked"
    if not managers.aligned:
        return "topologyManagerPolicy none asks for no alignment; what was asked for is free"
    if all(step.merged.best.preferred for step in verdict.merges):
        return f"topologyManagerPolicy {policy} found a preferred place"
    return f"topologyManagerPolicy {policy} found no preferred place and takes the best of the others"


# --- what every NUMA node has ------------------------------------------------------------------------------------------


def asked_amounts(managers: Managers, pod: Pod) -> Mapping[str, int]:
    """What the pod asks of the resource managers in force: the most it holds at one time, CPUs or bytes by resource."""
    asked = claims(pod, managers.gates)
    amounts: dict[str, int] = {}
    if managers.cpu is not None:
        counts = [(c.kind, asked.cpus.get(c.name, 0)) for c in pod.containers]
        amounts["cpu"] = asked.pod_cpus or most_at_once(counts)
    if managers.memory is not None:
        request = asked.pod_memory or (pod_request(pod) if asked.memory else {})
        amounts.update({resource: request[resource] for resource in sorted(request)})
    return amounts


def _resources(managers: Managers, grants: Grants, pod: Pod, owners: Mapping[str, str]) -> Iterator[ResourceReport]:
    for resource, amount in asked_amounts(managers, pod).items():
        if resource == "cpu":
            assert managers.cpu is not None
            yield ResourceReport(resource, amount, tuple(_cpu_nodes(managers.cpu, grants, owners)))
        else:
            yield ResourceReport(resource, amount, tuple(_memory_nodes(grants, resource, owners)))


def _cpu_nodes(manager: CPUManager, grants: Grants, owners: Mapping[str, str]) -> Iterator[NUMAReport]:
    cpu = grants.cpu
    for node, mask in manager.topology.numa_masks.items():
        held: dict[str, int] = {}
        for uid in {**cpu.entries, **cpu.pod_entries}:
            if owned := cpu.held_by(uid).mask & mask:
                held[owners.get(uid, uid)] = owned.bit_count()
        free = (cpu.default - manager.reserved).mask & mask
        yield NUMAReport(node, (manager.allocatable.mask & mask).bit_count(), free.bit_count(), held)


def _memory_nodes(grants: Grants, resource: str, owners: Mapping[str, str]) -> Iterator[NUMAReport]:
    """A block over several nodes is shown whole on each of them: its split is not what the policy decides by."""
    memory = grants.memory
    for node, state in sorted(memory.machine.items()):
        table = state.memory.get(resource)
        if table is None:
            continue
        held: dict[str, int] = {}
        for uid in {**memory.entries, **memory.pod_entries}:
            blocks = charged_blocks(memory, uid)
            size = sum(block.size for block in blocks if block.type == resource and block.nodes >> node & 1)
            if size:
                held[owners.get(uid, uid)] = size
        yield NUMAReport(node, table.allocatable, table.free, held)


def aligned_nodes(mask: NodeMask | None) -> str:
    """A hint's nodes for people."""
    if mask is None:
        return "any NUMA node"
    return "no NUMA node" if mask == 0 else "NUMA " + ",".join(map(str, node_ids(mask)))


# --- what would fit ----------------------------------------------------------------------------------------------------


def nearest_fit(grants: Grants, pod: Pod, asked: Claims, judge: Judge) -> Nearest | None:
    """The largest smaller amount of one container's (or the pod's) CPUs, else memory, that would be admitted; None if none."""
    if asked.pod_cpus:
        counts = {"": asked.pod_cpus}
    else:
        counts = {name: asked.cpus[name] for name in sorted(asked.cpus, key=lambda name: -asked.cpus[name])}
    for name, count in counts.items():
        fits = _largest(count - 1, _Trial(grants, pod, name, "cpu", 1, judge).fits)
        if fits is not None:
            return Nearest(name, "cpu", count, fits)
    sizes = {"": asked.pod_memory} if asked.pod_memory else dict(asked.memory)
    for name, request in sizes.items():
        for resource, size in sorted(request.items()):
            fits = _largest(size // _STEP - 1, _Trial(grants, pod, name, resource, _STEP, judge).fits)
            if fits is not None:
                return Nearest(name, resource, size, fits * _STEP)
    return None


@dataclass(frozen=True, slots=True)
class _Trial:
    """The pod with another amount of one resource in one container. unit: what one step of the amount stands for."""

    grants: Grants
    pod: Pod
    container: str
    resource: str
    unit: int
    judge: Judge

    def fits(self, amount: int) -> bool:
        changed = _resized(self.pod, self.container, self.resource, amount * self.unit)
        return self.judge(self.grants, changed).admitted


def _largest(top: int, fits: Callable[[int], bool]) -> int | None:
    """The largest amount of 1..top that fits, by bisection: near enough where fitting is not monotonous."""
    low, high, best = 1, top, None
    while low <= high:
        middle = (low + high + 1) // 2
        if fits(middle):
            best, low = middle, middle + 1
        else:
            high = middle - 1
    return best


def _resized(pod: Pod, name: str, resource: str, amount: int) -> Pod:
    """The pod with another amount as request and limit of one container ("" = the pod's own resources)."""
    quantity = Quantity.of(amount)
    if name == "" and pod.resources is not None:
        return replace(
            pod, uid="", resources=_with(Container("", resources=pod.resources), resource, quantity).resources
        )
    containers = tuple(_with(c, resource, quantity) if c.name == name else c for c in pod.containers)
    return replace(pod, uid="", containers=containers)


def _with(container: Container, resource: str, quantity: Quantity) -> Container:
    resources = replace(
        container.resources,
        requests={**container.resources.requests, resource: quantity},
        limits={**container.resources.limits, resource: quantity},
    )
    return replace(container, resources=resources)


def pods_in_the_way(
    managers: Managers, grants: Grants, pod: Pod, owners: Mapping[str, str], judge: Judge
) -> tuple[str, ...]:
    """Pods that hold something, of which the end of any one alone would let this pod in; the first MAX_CANDIDATES are tried."""
    candidates = [uid for uid in owners if holds(grants, uid)][:MAX_CANDIDATES]
    return tuple(owners[uid] for uid in candidates if judge(remove(managers, grants, uid), pod).admitted)


def all_in_the_way(
    managers: Managers, grants: Grants, pod: Pod, owners: Mapping[str, str], judge: Judge
) -> tuple[str, ...]:
    """Pods that have to end together to let this pod in, none of them in vain; the newest are asked to go first.

    () where even an empty node would not do, or where more than MAX_CANDIDATES would have to be tried.
    """
    newest = [uid for uid in reversed(list(owners)) if holds(grants, uid)]

    def fits_without(uids: Sequence[str]) -> bool:
        left = grants
        for uid in uids:
            left = remove(managers, left, uid)
        return judge(left, pod).admitted

    low, high = 1, len(newest)
    if not newest or not fits_without(newest):
        return ()
    while low < high:  # more room is not always enough (a hint may move), so this finds some prefix, near the shortest
        middle = (low + high) // 2
        low, high = (low, middle) if fits_without(newest[:middle]) else (middle + 1, high)
    going = newest[:high]
    if high > MAX_CANDIDATES:
        return ()
    for uid in newest[:high]:
        fewer = [other for other in going if other != uid]
        if fits_without(fewer):
            going = fewer
    return tuple(owners[uid] for uid in going)
