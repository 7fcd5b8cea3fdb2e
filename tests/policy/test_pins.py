"""Pins: the right writes in the right order, checked against a small strict model of the kernel's rules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.model.cpuset import CPUSet, union
from agent.model.pod import QOSClass
from agent.model.state import CPUState, Grants, MemoryBlock, MemoryState
from agent.policy.cgroup_intents import Intents, Rules, intent
from agent.policy.cgroup_names import CgroupKey, ContainerCgroup, PodCgroup, QOSCgroup
from agent.policy.cgroup_settings import NO_LIMIT, Observed
from agent.policy.pins import Pin, PinPlan, Step, pins, pins_of
from tests.pods import app, guaranteed, pod

ALL = CPUSet.parse("0-7")
OURS = Rules(owned=frozenset({"u1"}))
THEIRS = Rules()


def state(default: str, bubbles: Mapping[str, str] | None = None, **entries: str) -> Grants:
    """state("0,3", u_db="1-2"): the keyword is <uid>_<container>."""
    held: dict[str, dict[str, CPUSet]] = {}
    for name, cpus in entries.items():
        uid, container = name.split("_")
        held.setdefault(uid, {})[container] = CPUSet.parse(cpus)
    return Grants(CPUState(CPUSet.parse(default), held, {uid: CPUSet.parse(c) for uid, c in (bubbles or {}).items()}))


def key_of(name: str) -> CgroupKey:
    """ "u" is a pod, "u_db" a container, "burstable" a QoS cgroup."""
    if name == "burstable":
        return QOSCgroup(QOSClass.BURSTABLE)
    uid, _, container = name.partition("_")
    return ContainerCgroup(uid, container) if container else PodCgroup(uid)


def seen(**sets: str) -> dict[CgroupKey, Observed]:
    """seen(u_db="1-2"): what cgroups say, configured as effective; "-:0-7" is effective without being configured."""
    found: dict[CgroupKey, Observed] = {}
    for name, text in sets.items():
        configured, colon, effective = text.partition(":")
        cpus = CPUSet.parse(configured.strip("-") if colon else configured)
        found[key_of(name)] = Observed(cpus, CPUSet.parse(effective) if colon else cpus)
    return found


def short(plan: PinPlan) -> list[str]:
    """ "shrink u_db 1-2" for every write."""
    names = []
    for pin in plan.pins:
        match pin.key:
            case ContainerCgroup(pod=uid, container=container):
                name = f"{uid}_{container}"
            case PodCgroup(uid):
                name = uid
            case QOSCgroup(qos):
                name = qos.lower()
        names.append(f"{pin.step.name.lower()} {name} {pin.settings.cpus}")
    return names


def test_shared_sets_shrink_before_the_exclusive_one_is_given() -> None:
    plan = pins(state("0,3-7", u_db="1-2"), {}, seen(s_web="0-7", t_web="0-7", u_db="0-7"), THEIRS)
    assert short(plan) == ["shrink s_web 0,3-7", "shrink t_web 0,3-7", "shrink u_db 1-2"]
    assert plan.exclusive == CPUSet.parse("1-2")


def test_a_new_container_outside_its_cpus_is_moved_in_after_the_others_left() -> None:
    plan = pins(state("0,3-7", u_db="1-2"), {}, seen(u_db="0", s_web="0-7"), THEIRS)
    assert short(plan) == ["shrink s_web 0,3-7", "grant u_db 1-2"]


def test_shared_sets_widen_after_everything_else() -> None:
    observed = seen(s_web="0,3", u_db="1-2", v_db="4-6")
    plan = pins(state("0,2-3,7", u_db="1", v_db="4-6"), {}, observed, THEIRS)
    assert short(plan) == ["shrink u_db 1", "widen s_web 0,2-3,7"]


def test_the_shared_pool_grows_back_when_a_pinned_pod_is_gone() -> None:
    assert short(pins(state("0-7"), {}, seen(s_web="0-3,5-7"), THEIRS)) == ["widen s_web 0-7"]


def test_a_shared_set_that_moves_first_leaves_then_widens() -> None:
    plan = pins(state("0,3", u_db="1-2"), {}, seen(s_web="0-2", u_db="1-2"), THEIRS)
    assert short(plan) == ["shrink s_web 0", "widen s_web 0,3"]


def test_a_shared_set_of_which_nothing_stays_moves_at_once_and_is_never_empty() -> None:
    plan = pins(state("4-7", u_db="0-3"), {}, seen(s_web="0-3", u_db="4"), THEIRS)
    assert short(plan) == ["shrink s_web 4-7", "grant u_db 0-3"]


def test_parents_shrink_after_their_children_and_grow_before_them() -> None:
    shrink = pins(state("0", u_db="1-7"), {}, seen(burstable="0-7", s="0-7", s_web="0-7", u="0-7", u_db="0"), THEIRS)
    assert short(shrink) == ["shrink s_web 0", "shrink s 0", "shrink burstable 0", "grant u_db 1-7"]
    observed = seen(burstable="0", s="0", s_web="0", u="0", u_db="0")
    assert short(pins(state("0-5", u_db="6-7"), {}, observed, THEIRS)) == [
        "grant u 0,6-7",
        "grant u_db 6-7",
        "widen u 0-7",
        "widen burstable 0-5",
        "widen s 0-5",
        "widen s_web 0-5",
    ]


def test_nothing_is_written_where_all_is_right() -> None:
    observed = seen(burstable="0,3", s_web="0,3", u="0-3", u_db="1-2")
    assert pins(state("0,3", u_db="1-2"), {}, observed, THEIRS).pins == ()


@pytest.mark.parametrize(
    ("configured", "writes"),
    [
        pytest.param("-:0,3", ["shrink s_web 0,3"], id="inherited sets are made explicit"),
        pytest.param("0-7:0,3", ["shrink s_web 0,3"], id="wider than its parent would spread later"),
        pytest.param("0,3:0-7", ["widen s_web 0,3"], id="configured but not in effect is said again"),
    ],
)
def test_a_set_is_right_only_when_configured_and_effective(configured: str, writes: list[str]) -> None:
    assert short(pins(state("0,3", u_db="1-2"), {}, seen(s_web=configured), THEIRS)) == writes


def test_with_an_empty_pool_shared_containers_are_left_alone_and_named() -> None:
    plan = pins(state("", u_db="0-7"), {}, seen(s_web="0-7", u_db="0-7"), THEIRS)
    assert plan.pins == ()
    assert plan.starved == (ContainerCgroup("s", "web"),)


def test_intents_kept_between_two_looks_give_the_same_writes() -> None:
    kept = Intents(state("0,3", u_db="1-2"), {}, THEIRS)
    for observed in (seen(s_web="0-7", u_db="0"), seen(s_web="0,3", u_db="1-2"), seen(t_web="0-7")):
        assert pins_of(kept, observed) == pins(state("0,3", u_db="1-2"), {}, observed, THEIRS)


def test_with_policy_none_nobody_is_pinned_or_starved() -> None:
    assert pins(Grants(), {}, seen(s_web="0-7"), THEIRS) == PinPlan()


def test_a_restarted_container_gets_its_grant_again() -> None:
    held = state("0,3", u_db="1-2")
    new_instance = seen(u_db="-:0-3")
    assert short(pins(held, {}, new_instance, THEIRS)) == ["shrink u_db 1-2"]


def test_quotas_tighten_before_and_loosen_with_the_grant() -> None:
    one = pod(guaranteed("2", name="db"), app("cpu=1", "cpu=1 memory=1Gi", "side"))
    held = state("0,3", u1_db="1-2")
    cpus = {"u1": "0-3", "u1_db": "1-2", "u1_side": "0,3"}
    quotas = {"u1": 300_000, "u1_db": 200_000, "u1_side": NO_LIMIT}
    observed = {
        key: replace(found, quota_us=quotas[name])
        for name, (key, found) in zip(cpus, seen(**cpus).items(), strict=True)
    }
    plan = pins(held, {"u1": one}, observed, OURS)
    assert [(pin.step, str(pin.key), pin.settings.quota_us) for pin in plan.pins] == [
        (Step.SHRINK, "pod u1 container side", 100_000),
        (Step.GRANT, "pod u1", NO_LIMIT),
        (Step.GRANT, "pod u1 container db", NO_LIMIT),
    ]


def test_only_what_differs_is_written() -> None:
    one = pod(app("cpu=1 memory=1Gi", "cpu=1 memory=1Gi", "web"))
    right = Observed(ALL, ALL, 1, 100_000, 1024, None, 1 << 30)
    key = ContainerCgroup("u1", "web")
    assert pins(state("0-7"), {"u1": one}, {key: right}, OURS).pins == ()
    (pin,) = pins(state("0-7"), {"u1": one}, {key: replace(right, memory_bytes=NO_LIMIT)}, OURS).pins
    assert (pin.settings.cpus, pin.settings.shares, pin.settings.memory_bytes) == (None, None, 1 << 30)
    on_v2 = replace(right, shares=None, weight=39)
    assert pins(state("0-7"), {"u1": one}, {key: on_v2}, OURS).pins == ()


def test_a_file_that_is_not_there_is_not_written() -> None:
    one = pod(app("cpu=1 memory=1Gi", "cpu=1 memory=1Gi", "web"))
    assert pins(state("0-7"), {"u1": one}, {ContainerCgroup("u1", "web"): Observed(ALL, ALL)}, OURS).pins == ()


def test_memory_nodes_come_with_the_grant() -> None:
    memory = MemoryState(entries={"u": {"db": (MemoryBlock("memory", 1, 0b10),)}})
    held = Grants(state("0,3", u_db="1-2").cpu, memory)
    (pin,) = pins(held, {}, seen(u_db="1-2"), THEIRS).pins
    assert (pin.step, pin.settings.mems, pin.settings.cpus) == (Step.GRANT, 0b10, None)


@dataclass
class StrictKernel:
    """cgroup v1's rules for CPU sets: children inside parents, nothing empty."""

    sets: dict[CgroupKey, CPUSet]
    parents: Mapping[CgroupKey, CgroupKey]

    def write(self, pin: Pin) -> None:
        cpus = pin.settings.cpus
        assert cpus is not None
        assert cpus, "an empty set was written"
        parent = self.parents.get(pin.key)
        assert parent is None or cpus <= self.sets[parent], f"EACCES: {pin}"
        inside = [key for key, above in self.parents.items() if above == pin.key]
        assert all(self.sets[key] <= cpus for key in inside), f"EBUSY: {pin}"
        self.sets[pin.key] = cpus


@dataclass(frozen=True)
class Change:
    """Grants before and after, of the same pods: a grant is new, gone, grown or shrunk, never moved."""

    before: Grants
    after: Grants
    shared_pods: int


@st.composite
def changes(draw: st.DrawFn) -> Change:
    uids = [f"e{number}" for number in range(draw(st.integers(0, 4)))]
    owners = [draw(st.sampled_from(["", *uids])) for _ in range(8)]
    owners[0] = ""  # something is always shared
    after = list(owners)
    for cpu in range(1, 8):
        if draw(st.booleans()):
            after[cpu] = draw(st.sampled_from(["", *uids]))
    for uid in uids:  # what moves entirely is another pod's business
        kept = [cpu for cpu in range(8) if owners[cpu] == after[cpu] == uid]
        if not kept and uid in owners and uid in after:
            after = ["" if owner == uid else owner for owner in after]
    return Change(_granted(owners), _granted(after), draw(st.integers(0, 3)))


def _granted(owners: list[str]) -> Grants:
    entries: dict[str, dict[str, CPUSet]] = {}
    for uid in {owner for owner in owners if owner}:
        entries[uid] = {"db": CPUSet.of(cpu for cpu, owner in enumerate(owners) if owner == uid)}
    return Grants(CPUState(CPUSet.of(cpu for cpu, owner in enumerate(owners) if not owner), entries))


def _tree(change: Change) -> Mapping[CgroupKey, CgroupKey]:
    """Every Guaranteed pod with a container of its own and a shared one; burstable pods below their QoS cgroup."""
    parents: dict[CgroupKey, CgroupKey] = {}
    for uid in ("e0", "e1", "e2", "e3"):
        parents |= {ContainerCgroup(uid, name): PodCgroup(uid) for name in ("db", "helper")}
    for number in range(change.shared_pods):
        parents |= {ContainerCgroup(f"s{number}", "web"): PodCgroup(f"s{number}")}
        parents |= {PodCgroup(f"s{number}"): QOSCgroup(QOSClass.BURSTABLE)}
    return parents


@given(changes())
def test_every_order_of_writes_is_one_that_the_strictest_kernel_takes(change: Change) -> None:
    parents = _tree(change)
    keys = {*parents, *parents.values()}
    sets = {key: intent(key, change.before, {}, THEIRS).settings.cpus or ALL for key in keys}
    kernel = StrictKernel(sets, parents)
    plan = pins(change.after, {}, {key: Observed(cpus, cpus) for key, cpus in sets.items()}, THEIRS)
    owned = {
        key.pod: change.after.cpu.entries.get(key.pod, {}).get("db", CPUSet())
        for key in keys
        if isinstance(key, ContainerCgroup)
    }
    for pin in plan.pins:
        assert pin.held == kernel.sets[pin.key]
        given = (pin.settings.cpus or CPUSet()) - pin.held
        if isinstance(pin.key, ContainerCgroup):
            others = union(
                cpus for key, cpus in kernel.sets.items() if isinstance(key, ContainerCgroup) and key != pin.key
            )
            foreign = union(cpus for uid, cpus in owned.items() if uid != pin.key.pod)
            assert not given & pin.own & others, "given while somebody else still has it"
            assert not given & foreign, "widened onto CPUs of another pod"
        kernel.write(pin)
    observed = {key: Observed(cpus, cpus) for key, cpus in kernel.sets.items()}
    assert pins(change.after, {}, observed, THEIRS).pins == ()
    assert list(plan.pins) == sorted(plan.pins, key=lambda pin: pin.step)
