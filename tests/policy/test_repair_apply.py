"""From a repair plan to the next state: what waits is marked, and first-admission sets follow what was exchanged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from agent.model.cpuset import CPUSet
from agent.model.state import (
    Blocks,
    CPUState,
    Epoch,
    FirstGrant,
    Grants,
    Mark,
    MemoryBlock,
    MemoryState,
    PodRecord,
    PolicyInForce,
    State,
)
from agent.policy.managers import Managers
from agent.policy.repair import plan_repair
from agent.policy.repair_apply import with_all_steps, with_safe_steps
from agent.policy.repair_plan import Change, RepairPlan
from tests.policy.nodes import GIB, cpus, grants, machine, managers, pod, policy, records

EIGHT = managers(machine({0: "0-7"}))


def state(cpu: CPUState, on: Managers, *uids: str) -> State:
    """A state written under these managers; every pod holds what it was first given."""
    held = grants(cpu)
    pods = {uid: replace(record, first=FirstGrant.of(held, uid)) for uid, record in records(*uids).items()}
    return State(Epoch(1, "0" * 16), generation=5, policy=policy(on), grants=held, pods=pods)


def planned(before: State, now: Managers) -> tuple[RepairPlan, Change]:
    change = Change(before.policy, policy(now))
    return plan_repair(now, before.grants, before.pods, change), change


def only_without(online: str) -> Managers:
    return managers(machine({0: online}))


def test_a_state_that_fits_is_the_same_object() -> None:
    before = state(cpus("0,3-7", a={"app": "1-2"}), EIGHT, "a")
    plan, change = planned(before, EIGHT)
    assert with_safe_steps(before, plan, change) is before
    assert with_all_steps(before, plan, change) is before


def test_a_safe_step_is_one_new_generation_and_touches_no_record() -> None:
    before = state(cpus("0-7", a={"app": "1-2"}), EIGHT, "a")
    after = with_safe_steps(before, *planned(before, EIGHT))
    assert (str(after.grants.cpu.default), after.generation) == ("0,3-7", 6)
    assert after.pods["a"] is before.pods["a"]


def test_while_a_step_waits_the_pod_is_marked_and_keeps_what_it_holds() -> None:
    before = state(cpus("0,3-7", a={"app": "1-2"}, b={"app": "3"}), EIGHT, "a", "b")
    after = with_safe_steps(before, *planned(before, only_without("0-1,3-7")))
    mark = after.pods["a"].degraded
    assert mark is not None
    assert mark.reason == "CPUsOffline"
    assert after.pods["a"].first == before.pods["a"].first
    assert after.pods["b"].degraded is None


def test_once_applied_the_first_set_has_the_new_cpu_in_place_of_the_lost_one() -> None:
    """Else a later shrink would look for a CPU that the machine no longer has."""
    before = state(cpus("0,3-7", a={"app": "1-2"}), EIGHT, "a")
    now = only_without("0-1,3-7")
    plan, change = planned(before, now)
    after = with_all_steps(with_safe_steps(before, plan, change), plan, change)
    held = after.grants.cpu.entries["a"]["app"]
    assert (len(held), CPUSet.parse("1") <= held, CPUSet.parse("2") <= held) == (2, True, False)
    assert after.pods["a"].first.cpus == {"app": held}
    assert after.pods["a"].degraded is None
    assert after.policy == policy(now)


def test_cpus_that_a_pod_grew_by_do_not_enter_its_first_set() -> None:
    before = state(cpus("0,5-7", a={"app": "1-4"}), EIGHT, "a")
    grown = replace(before.pods["a"], first=FirstGrant({"app": CPUSet.parse("1-2")}))
    before = replace(before, pods={"a": grown})
    plan, change = planned(before, only_without("0-1,3-7"))
    after = with_all_steps(before, plan, change)
    first = after.pods["a"].first.cpus["app"]
    assert len(after.grants.cpu.entries["a"]["app"]) == 4
    assert (len(first), CPUSet.parse("1") <= first, CPUSet.parse("2") <= first) == (2, True, False)


def test_the_first_set_of_a_bubble_follows_too() -> None:
    before = state(cpus("0,4-7", {"a": "1-3"}, a={"app": "1-3"}), EIGHT, "a")
    plan, change = planned(before, only_without("0,2-7"))
    after = with_all_steps(before, plan, change)
    assert after.pods["a"].first.pod_cpus == after.grants.cpu.pod_entries["a"]
    assert CPUSet.parse("1").mask & after.grants.cpu.pod_entries["a"].mask == 0


@pytest.mark.parametrize(
    ("old", "stays"),
    [
        (Mark("CPUsOffline", "waits"), False),
        (Mark("MemoryMissing", "waits"), False),
        (Mark("CPUsMissing", "for good"), True),
        (Mark("ResizeDoesNotFit", "not ours"), True),
    ],
)
def test_marks_that_say_what_waits_go_when_nothing_waits(old: Mark, *, stays: bool) -> None:
    before = state(cpus("0,3-7", a={"app": "1-2"}), EIGHT, "a")
    before = replace(before, pods={"a": replace(before.pods["a"], degraded=old)})
    after = with_safe_steps(before, *planned(before, EIGHT))
    assert after.pods["a"].degraded == (old if stays else None)


def blocks(size_gib: int, nodes: int, kind: str = "memory") -> Blocks:
    return (MemoryBlock(kind, size_gib * GIB, nodes),)


def shortened(first: Mapping[str, Blocks], left: Mapping[str, Blocks], bubble: Blocks | None = None) -> FirstGrant:
    """What becomes of a first grant where the whole plan leaves these blocks of it."""
    record = PodRecord(pod("a"), first=FirstGrant(memory=first, pod_memory=bubble))
    before = State(Epoch(1, "0" * 16), pods={"a": record})
    full, change = planned(state(cpus("0,3-7", a={"app": "1-2"}), EIGHT, "a"), only_without("0-1,3-7"))
    memory = replace(full.whole.memory, entries={"a": left}, pod_entries={} if bubble is None else {"a": left["app"]})
    plan = replace(full, whole=replace(full.whole, memory=memory))
    return with_all_steps(before, plan, change).pods["a"].first


@pytest.mark.parametrize(
    ("first", "left", "then"),
    [
        pytest.param(blocks(3, 0b01), blocks(3, 0b01), blocks(3, 0b01), id="what is left whole"),
        pytest.param(blocks(3, 0b01), blocks(2, 0b01), blocks(2, 0b01), id="cut down to what is left"),
        pytest.param(blocks(2, 0b01), blocks(5, 0b01), blocks(2, 0b01), id="never more than at first"),
        pytest.param(blocks(3, 0b11), blocks(3, 0b10), blocks(3, 0b10), id="on the nodes that are left"),
        pytest.param(blocks(3, 0b01), blocks(3, 0b10), (), id="elsewhere is not the first block"),
        pytest.param(blocks(3, 0b01), blocks(3, 0b01, "hugepages-2Mi"), (), id="nor another kind"),
        pytest.param(
            blocks(3, 0b11) + blocks(1, 0b11), blocks(2, 0b11) + blocks(1, 0b11), blocks(2, 0b11) + blocks(1, 0b11),
            id="each block once",
        ),
    ],
)  # fmt: skip
def test_first_memory_is_what_the_grant_still_has_of_it(first: Blocks, left: Blocks, then: Blocks) -> None:
    found = shortened({"app": first}, {"app": left}, first)
    assert found.memory == ({"app": then} if then else {})
    assert found.pod_memory == then


def test_a_policy_that_is_switched_off_over_pods_that_hold_something_is_still_remembered_while_it_waits() -> None:
    before = state(cpus("0,3-7", a={"app": "1-2"}), EIGHT, "a")
    off = managers(machine({0: "0-7"}), cpu_policy="none")
    plan, change = planned(before, off)
    waiting = with_safe_steps(before, plan, change)
    assert (waiting.policy.cpu_policy, waiting.policy.reserved_cpus) == ("static", CPUSet.parse("0"))
    assert with_all_steps(before, plan, change).policy == policy(off)


def test_a_memory_policy_that_is_switched_off_is_remembered_too() -> None:
    on = managers(machine({0: "0-7"}), memory_policy="Static")
    off = managers(machine({0: "0-7"}), cpu_policy="none")
    held = Grants(memory=MemoryState({}, {"a": {"app": blocks(1, 0b01)}}))
    before = State(Epoch(1, "0" * 16), policy=policy(on), grants=held, pods=records("a"))
    plan, change = planned(before, off)
    waiting = with_safe_steps(before, plan, change).policy
    assert (waiting.cpu_policy, waiting.memory_policy, waiting.reserved_memory) == (
        "none",
        "Static",
        {0: {"memory": GIB}},
    )


@pytest.mark.parametrize(("value", "strict"), [("true", True), ("1", True), ("false", False), ("perhaps", False)])
def test_a_state_says_whether_the_reservation_was_strict(value: str, *, strict: bool) -> None:
    was = PolicyInForce(cpu_options={"strict-cpu-reservation": value})
    assert Change(was, PolicyInForce()).was_strict is strict
    assert not Change(None, PolicyInForce()).was_strict
    assert not Change(PolicyInForce(), PolicyInForce()).was_strict
