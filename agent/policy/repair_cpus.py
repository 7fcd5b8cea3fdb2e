"""The CPU part of a repair: every CPU is in the shared pool, with one pod, or reserved; in one of these and no other.

The shared pool follows from the rest: all managed CPUs that no pod holds. What remains to be decided is which changes of it,
and of what pods hold, may happen by themselves.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from agent.model.cpuset import CPUSet, union
from agent.model.numa import NodeMask
from agent.model.state import CPUState, Mark
from agent.policy.cpu_assignment import NotEnoughCPUs
from agent.policy.cpu_static import CPUManager, allocate, numa_nodes_of
from agent.policy.refusal import Refusal
from agent.policy.repair_plan import Change, Holders, Rule, Step


@dataclass(frozen=True, slots=True)
class CPURepair:
    """Like `RepairPlan`, for CPUs alone."""

    steps: tuple[Step, ...]
    safe: CPUState
    whole: CPUState
    marks: Mapping[str, Mark] = field(default_factory=dict)
    marks_after: Mapping[str, Mark] = field(default_factory=dict)


def repair_cpus(
    manager: CPUManager | None, cpu: CPUState, change: Change, holders: Holders, min_shared_cpus: int
) -> CPURepair:
    """manager: the static policy as it is now, None with policy none. min_shared_cpus: what replacements must leave shared."""
    held = {uid: cpu.held_by(uid) for uid in holders.order if cpu.held_by(uid)}
    if manager is None:
        return _policy_off(cpu, change, holders, held)
    steps = _policy_on(manager, cpu, change, held)
    steps += _pool_steps(manager, cpu, change, holders, held)
    lost, marks, lost_steps = _losses(manager, holders, held)
    steps += lost_steps
    pool = manager.managed - union(held.values())
    unconfirmed = union(step.cpus for step in steps if step.rule is Rule.CPUS_ADDED and not step.safe)
    safe = CPUState(pool - unconfirmed, cpu.entries, cpu.pod_entries)
    if not safe.default:
        steps.append(
            Step(
                Rule.SHARED_POOL_EMPTY,
                False,
                "no CPU is left to share: containers without CPUs of their own stay where they are",
            )
        )
    whole, marks_after = _replace(manager, replace(safe, default=pool), lost, holders, min_shared_cpus)
    return CPURepair(tuple(steps), safe, whole, marks, marks_after)


def _policy_off(cpu: CPUState, change: Change, holders: Holders, held: Mapping[str, CPUSet]) -> CPURepair:
    # where there was a pool all CPUs are in it from now on, so that containers are let out of a narrower one
    widened = CPUState(change.now.online)
    if held:
        pods = ", ".join(f"{holders.name(uid)} ({cpus})" for uid, cpus in held.items())
        text = f"cpuManagerPolicy is none now, but pods hold CPUs of their own and keep them until they end: {pods}"
        return CPURepair((Step(Rule.POLICY_CHANGED, False, text, tuple(held)),), cpu, widened)
    if change.was is not None and change.was.cpu_policy != "none" and cpu.default:
        text = "cpuManagerPolicy is none now; no pod holds CPUs of its own"
        return CPURepair((Step(Rule.POLICY_CHANGED, True, text),), widened, widened)
    left = widened if cpu.default else CPUState()
    return CPURepair((), left, left)


def _policy_on(manager: CPUManager, cpu: CPUState, change: Change, held: Mapping[str, CPUSet]) -> list[Step]:
    """What differs in the configuration, told before what follows from it."""
    was, now = change.was, change.now
    steps = []
    if was is not None and was.cpu_policy == "none":
        text = f"cpuManagerPolicy is static now: the shared pool begins as {manager.managed}; running pods stay in it"
        steps.append(Step(Rule.POLICY_CHANGED, True, text))
    elif was is not None:
        options = {
            name: (was.cpu_options.get(name, "false"), now.cpu_options.get(name, "false"))
            for name in sorted({*was.cpu_options, *now.cpu_options})
        }
        texts = [f"{name} from {old} to {new}" for name, (old, new) in options.items() if old != new]
        if texts:
            text = f"cpuManagerPolicyOptions: {', '.join(texts)}; what pods hold stays"
            steps.append(Step(Rule.OPTIONS_CHANGED, True, text, tuple(held)))
        if was.reserved_cpus != manager.reserved:
            text = f"reserved CPUs were {was.reserved_cpus or 'none'} and are {manager.reserved} now"
            steps.append(Step(Rule.RESERVATION_CHANGED, True, text, cpus=manager.reserved))
    return steps


def _pool_steps(
    manager: CPUManager, cpu: CPUState, change: Change, holders: Holders, held: Mapping[str, CPUSet]
) -> list[Step]:
    """Every difference between the shared pool as written and as it must be; each has one reason."""
    online, taken = manager.topology.all, union(held.values())
    steps = [
        Step(
            Rule.OWNER_KEEPS,
            True,
            f"CPUs {both} are in the shared pool and with pod {holders.name(uid)}: the pod keeps them",
            (uid,),
            both,
        )
        for uid, cpus in held.items()
        if (both := cpus & cpu.default & online)
    ]
    gone = cpu.default - online - taken
    if gone:
        steps.append(Step(Rule.CPUS_GONE, True, f"CPUs {gone} are offline: out of the shared pool", cpus=gone))
    leaving = (cpu.default & online) - taken - manager.managed
    if leaving:
        text = f"CPUs {leaving} are strictly reserved: out of the shared pool"
        steps.append(Step(Rule.RESERVATION_CHANGED, True, text, cpus=leaving))
    fresh_start = (not cpu.default and not taken) or (change.was is not None and change.was.cpu_policy == "none")
    joining = CPUSet() if fresh_start else manager.managed - taken - cpu.default
    for rule, cpus, text in _joining(joining, cpu.default | taken, change):
        if cpus:
            safe = not (rule is Rule.CPUS_ADDED and change.confirm_added)
            steps.append(Step(rule, safe, f"CPUs {cpus} {text}", cpus=cpus))
    return steps


def _joining(joining: CPUSet, written: CPUSet, change: Change) -> list[tuple[Rule, CPUSet, str]]:
    """Why CPUs join the shared pool: no longer reserved, new, or lost between two writes of whoever wrote the file."""
    was = change.was
    unreserved = joining & was.reserved_cpus if was is not None and change.was_strict else CPUSet()
    # a kubelet's file does not say what was online: what lies beyond the highest CPU in it is new
    known = was.online if was is not None and was.online else CPUSet((1 << written.mask.bit_length()) - 1)
    rest = joining - unreserved
    return [
        (Rule.RESERVATION_CHANGED, unreserved, "are not strictly reserved any more: into the shared pool"),
        (Rule.ORPHANS_RETURN, rest & known, "belonged to nobody: back to the shared pool"),
        (Rule.CPUS_ADDED, rest - known, "are new: into the shared pool"),
    ]


def _losses(
    manager: CPUManager, holders: Holders, held: Mapping[str, CPUSet]
) -> tuple[dict[str, CPUSet], dict[str, Mark], list[Step]]:
    """CPUs that pods cannot keep for good: offline, with another pod too, reserved now. UID -> CPUs, marks, steps."""
    lost: dict[str, CPUSet] = {}
    marks: dict[str, Mark] = {}
    steps = []
    before = CPUSet()
    for uid, cpus in held.items():
        name = holders.name(uid)
        offline, twice, reserved = (
            cpus - manager.topology.all,
            cpus & before & manager.topology.all,
            (cpus & manager.reserved) - before,
        )
        before |= cpus
        for rule, part, reason, text in (
            (Rule.CPUS_LOST, offline, "CPUsOffline", f"CPUs {offline} of pod {name} are offline"),
            (Rule.TWO_OWNERS, twice, "CPUsShared", f"CPUs {twice} of pod {name} belong to a pod admitted before it"),
            (Rule.RESERVED_HELD, reserved, "CPUsReserved", f"CPUs {reserved} of pod {name} are reserved now"),
        ):
            if part:
                lost[uid] = lost.get(uid, CPUSet()) | part
                marks.setdefault(uid, Mark(reason, text))
                steps.append(Step(rule, False, f"{text}; it keeps them until others are given to it", (uid,), part))
    return lost, marks, steps


def _replace(
    manager: CPUManager, safe: CPUState, lost: Mapping[str, CPUSet], holders: Holders, min_shared_cpus: int
) -> tuple[CPUState, dict[str, Mark]]:
    """Other CPUs for the lost ones, from the same NUMA nodes where possible, as many as the shared pool can spare."""
    state, marks = safe, {}
    for uid, cpus in lost.items():
        spare = max(min(len(cpus), len(state.default - manager.reserved), len(state.default) - min_shared_cpus), 0)
        gained = _pick(manager, state.default, spare, numa_nodes_of(manager.topology, state.held_by(uid)))
        swap = dict(zip(cpus, [*gained, *[None] * len(cpus)], strict=False))
        state = _swap(state, uid, swap)
        others = union(state.held_by(other) for other in holders.order)
        state = replace(state, default=manager.managed - others)
        missing = len(cpus) - len(gained)
        if missing:
            text = f"pod {holders.name(uid)} holds {missing} CPUs fewer than it was granted: no others are free"
            marks[uid] = Mark("CPUsMissing", text)
    return state, marks


def _pick(manager: CPUManager, shared: CPUSet, count: int, nodes: NodeMask | None) -> CPUSet:
    if not count:
        return CPUSet()
    try:
        return allocate(manager, shared, count, nodes, CPUSet())
    except (NotEnoughCPUs, Refusal):
        return CPUSet()


def _swap(state: CPUState, uid: str, swap: Mapping[int, int | None]) -> CPUState:
    """Every set of the pod with its lost CPUs exchanged; a set of which nothing is left is gone."""

    def changed(cpus: CPUSet) -> CPUSet:
        return CPUSet.of(new for cpu in cpus if (new := swap.get(cpu, cpu)) is not None)

    entries = {name: new for name, cpus in state.entries.get(uid, {}).items() if (new := changed(cpus))}
    bubble = changed(state.pod_entries.get(uid, CPUSet()))
    others = {other: sets for other, sets in state.entries.items() if other != uid}
    bubbles = {other: cpus for other, cpus in state.pod_entries.items() if other != uid}
    return CPUState(
        state.default,
        {**others, uid: entries} if entries else others,
        {**bubbles, uid: bubble} if bubble else bubbles,
    )
