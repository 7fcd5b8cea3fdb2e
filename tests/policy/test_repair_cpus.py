"""CPUs over a restart: in two places, in none, added, gone, reserved, policies changed. docs/state.md in tests."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.model.cpuset import CPUSet, union
from agent.model.state import CPUState, PodRecord, PolicyInForce
from agent.policy.managers import Managers
from agent.policy.repair import plan_repair
from agent.policy.repair_plan import Change, RepairPlan, Rule
from agent.policy.restore import refit
from tests.policy.nodes import cpus, grants, machine, managers, policy, records

T8 = machine({0: "0-7"})
T8N2 = machine({0: "0-3", 1: "4-7"})
STRICT = {"strict-cpu-reservation": "true"}


def plan(
    now: Managers,
    cpu: CPUState,
    *uids: str,
    was: PolicyInForce | None = None,
    pods: dict[str, PodRecord] | None = None,
    confirm_added: bool = False,
) -> RepairPlan:
    change = Change(was, policy(now), confirm_added=confirm_added)
    return plan_repair(now, grants(cpu), pods if pods is not None else records(*uids), change)


def told(found: RepairPlan) -> list[tuple[Rule, bool, str]]:
    return [(step.rule, step.safe, str(step.cpus)) for step in found.steps]


def written(online: str, reserved: str = "0", *, strict: bool = False, cpu_policy: str = "static") -> PolicyInForce:
    options = STRICT if strict else {}
    return PolicyInForce(cpu_policy, options, CPUSet.parse(online), CPUSet.parse(reserved))


@pytest.mark.parametrize(
    ("now", "before", "was", "steps", "after"),
    [
        pytest.param(
            managers(T8), cpus("0,3-7", a={"app": "1-2"}), written("0-7"), [], "0,3-7", id="what fits is left alone"
        ),
        pytest.param(
            managers(T8),
            cpus("0-7", a={"app": "1-2"}),
            written("0-7"),
            [(Rule.OWNER_KEEPS, True, "1-2")],
            "0,3-7",
            id="in the pool and with a pod: the pod keeps them (cut off between two writes)",
        ),
        pytest.param(
            managers(T8),
            cpus("0-7", {"a": "1-3"}, a={"app": "1-2"}),
            written("0-7"),
            [(Rule.OWNER_KEEPS, True, "1-3")],
            "0,4-7",
            id="the same for a bubble",
        ),
        pytest.param(
            managers(T8),
            cpus("0,3-7"),
            written("0-7"),
            [(Rule.ORPHANS_RETURN, True, "1-2")],
            "0-7",
            id="with nobody: back to the pool",
        ),
        pytest.param(
            managers(T8),
            cpus("0,3-7"),
            None,
            [(Rule.ORPHANS_RETURN, True, "1-2")],
            "0-7",
            id="the same from a kubelet's file",
        ),
        pytest.param(
            managers(T8),
            cpus("0-3"),
            written("0-3"),
            [(Rule.CPUS_ADDED, True, "4-7")],
            "0-7",
            id="more CPUs after a reboot",
        ),
        pytest.param(
            managers(T8),
            cpus("0-1", a={"app": "2-3"}),
            None,
            [(Rule.CPUS_ADDED, True, "4-7")],
            "0-1,4-7",
            id="the same in a kubelet's file with a pod",
        ),
        pytest.param(
            managers(machine({0: "0-5"})),
            cpus("0,3-7", a={"app": "1-2"}),
            written("0-7"),
            [(Rule.CPUS_GONE, True, "6-7")],
            "0,3-5",
            id="shared CPUs gone: dropped",
        ),
        pytest.param(
            managers(T8, reserved="0-1"),
            cpus("0,3-7", a={"app": "2"}),
            written("0-7"),
            [(Rule.RESERVATION_CHANGED, True, "0-1"), (Rule.ORPHANS_RETURN, True, "1")],
            "0-1,3-7",
            id="reservation grown: reserved CPUs stay shared",
        ),
        pytest.param(
            managers(T8, reserved="0-1", options=STRICT),
            cpus("1-7"),
            written("0-7", strict=True),
            [(Rule.RESERVATION_CHANGED, True, "0-1"), (Rule.RESERVATION_CHANGED, True, "1")],
            "2-7",
            id="strict reservation grown: out of the pool",
        ),
        pytest.param(
            managers(T8, options=STRICT),
            cpus("2-7"),
            written("0-7", "0-1", strict=True),
            [(Rule.RESERVATION_CHANGED, True, "0"), (Rule.RESERVATION_CHANGED, True, "1")],
            "1-7",
            id="strict reservation shrunk: into the pool",
        ),
        pytest.param(
            managers(T8, options=STRICT),
            cpus("0,3-7", a={"app": "1-2"}),
            written("0-7"),
            [(Rule.OPTIONS_CHANGED, True, ""), (Rule.RESERVATION_CHANGED, True, "0")],
            "3-7",
            id="strict switched on over an old state",
        ),
        pytest.param(
            managers(T8),
            cpus("3-7", a={"app": "1-2"}),
            written("0-7", strict=True),
            [(Rule.OPTIONS_CHANGED, True, ""), (Rule.RESERVATION_CHANGED, True, "0")],
            "0,3-7",
            id="strict switched off",
        ),
        pytest.param(
            managers(T8),
            CPUState(),
            written("0-7", cpu_policy="none"),
            [(Rule.POLICY_CHANGED, True, "")],
            "0-7",
            id="static policy switched on",
        ),
    ],
)
def test_safe_steps(
    now: Managers,
    before: CPUState,
    was: PolicyInForce | None,
    steps: list[tuple[Rule, bool, str]],
    after: str,
) -> None:
    found = plan(now, before, "a", was=was)
    assert told(found) == steps
    assert str(found.safe.cpu.default) == after
    assert (found.safe.cpu.entries, found.safe.cpu.pod_entries) == (before.entries, before.pod_entries)
    assert found.whole == found.safe
    assert not found.waiting
    assert not found.marks


def test_new_cpus_wait_where_they_must_be_confirmed() -> None:
    found = plan(managers(T8), cpus("0-3"), was=written("0-3"), confirm_added=True)
    assert told(found) == [(Rule.CPUS_ADDED, False, "4-7")]
    assert (str(found.safe.cpu.default), str(found.whole.cpu.default)) == ("0-3", "0-7")


def test_exclusive_cpus_gone_leave_the_pod_degraded_until_it_gets_others_from_its_node() -> None:
    now = managers(machine({0: "0-3", 1: "4-6"}))
    before = cpus("0-4,6", a={"app": "5,7"})
    found = plan(now, before, "a", was=written("0-7"))
    assert told(found) == [(Rule.CPUS_LOST, False, "7")]
    assert "test/pod-a" in found.steps[0].text
    assert found.safe.cpu.entries == before.entries
    assert found.marks["a"].reason == "CPUsOffline"
    assert found.whole.cpu == cpus("0-3,6", a={"app": "4-5"})
    assert not found.marks_after


def test_a_bubble_that_lost_a_cpu_gets_another_everywhere_in_the_pod() -> None:
    now = managers(machine({0: "0-5"}))
    found = plan(
        now, cpus("0,4", {"a": "1-3,7"}, a={"app": "1-2", "log": "3,7", "tail": "3,7"}), "a", was=written("0-5,7")
    )
    assert found.whole.cpu == cpus("0,5", {"a": "1-4"}, a={"app": "1-2", "log": "3-4", "tail": "3-4"})


def test_where_no_others_are_free_the_pod_stays_degraded_with_what_is_left() -> None:
    now = managers(machine({0: "0-3"}))
    found = plan(now, cpus("0", a={"app": "1,6", "log": "7"}, b={"app": "2-3"}), "a", "b", was=written("0-7"))
    assert found.whole.cpu == cpus("0", a={"app": "1"}, b={"app": "2-3"})
    assert "2 CPUs fewer" in found.marks_after["a"].message


def test_two_pods_with_one_cpu_the_one_admitted_first_keeps_it() -> None:
    before = cpus("0,4-7", a={"app": "1-2"}, b={"app": "2-3"})
    found = plan(managers(T8), before, "b", "a", was=written("0-7"))
    assert told(found) == [(Rule.TWO_OWNERS, False, "2")]
    assert found.steps[0].pods == ("a",)
    assert found.safe.cpu.entries == before.entries
    assert found.whole.cpu == cpus("0,5-7", b={"app": "2-3"}, a={"app": "1,4"})


def test_containers_of_one_pod_may_share() -> None:
    assert not plan(managers(T8), cpus("0,4-7", a={"init": "1-3", "app": "2-3"}), "a", was=written("0-7")).steps


def test_a_cpu_reserved_now_stays_with_the_pod_until_it_gets_another() -> None:
    found = plan(managers(T8, reserved="0-1"), cpus("0,3-7", a={"app": "1-2"}), "a", was=written("0-7"))
    assert told(found) == [(Rule.RESERVATION_CHANGED, True, "0-1"), (Rule.RESERVED_HELD, False, "1")]
    assert found.safe.cpu == cpus("0,3-7", a={"app": "1-2"})
    assert found.whole.cpu == cpus("0-1,4-7", a={"app": "2-3"})


def test_an_empty_shared_pool_is_told_and_waits() -> None:
    now = managers(machine({0: "0-2"}), options=STRICT)
    found = plan(now, cpus("3", a={"app": "1-2"}), "a", was=written("0-3", strict=True))
    assert told(found) == [(Rule.CPUS_GONE, True, "3"), (Rule.SHARED_POOL_EMPTY, False, "")]


def test_policy_none_over_pods_that_hold_cpus_waits_and_takes_nothing() -> None:
    before = cpus("0,3-7", a={"app": "1-2"})
    found = plan(managers(T8, cpu_policy="none"), before, "a", was=written("0-7"))
    assert told(found) == [(Rule.POLICY_CHANGED, False, "")]
    assert "test/pod-a (1-2)" in found.steps[0].text
    assert found.safe.cpu == before
    assert found.whole.cpu == cpus("0-7"), "all are let out"


def test_policy_none_over_an_empty_state_is_safe() -> None:
    found = plan(managers(T8, cpu_policy="none"), cpus("0-7"), was=written("0-7"))
    assert told(found) == [(Rule.POLICY_CHANGED, True, "")]
    assert found.safe.cpu == cpus("0-7"), "strictly reserved CPUs are for everybody too"


def test_pods_without_a_record_keep_their_grants_and_are_named() -> None:
    found = plan(managers(T8), cpus("0,3-7", x={"app": "1-2"}), was=written("0-7"))
    assert [(step.rule, step.pods) for step in found.steps] == [(Rule.UNKNOWN_POD, ("x",))]
    assert "x" in found.safe.cpu.entries


UIDS = ("a", "b", "c")
sets = st.builds(CPUSet, st.integers(0, (1 << 10) - 1))


@given(
    default=sets,
    entries=st.dictionaries(
        st.sampled_from(UIDS), st.dictionaries(st.sampled_from(["m", "n"]), sets, min_size=1), max_size=3
    ),
    bubbles=st.dictionaries(st.sampled_from(UIDS), sets, max_size=2),
    online=st.integers(2, 9),
    strict=st.booleans(),
    foreign=st.booleans(),
)
def test_whatever_a_file_says_the_outcome_is_sound_and_a_second_look_finds_nothing_new(
    default: CPUSet,
    entries: dict[str, dict[str, CPUSet]],
    bubbles: dict[str, CPUSet],
    online: int,
    strict: bool,
    foreign: bool,
) -> None:
    now = managers(machine({0: f"0-{online}"}), options=STRICT if strict else {})
    assert now.cpu is not None
    was = None if foreign else written(f"0-{online}", strict=strict)
    before = CPUState(default, entries, bubbles)
    found = plan(now, before, *UIDS, was=was)
    safe, whole = found.safe.cpu, found.whole.cpu
    assert (safe.entries, safe.pod_entries) == (entries, bubbles)
    for state in (safe, whole):
        held = union(state.held_by(uid) for uid in UIDS)
        assert not state.default & held
        assert (state.default | held) & now.machine.topology.all >= now.cpu.managed  # nothing is lost
    taken = [whole.held_by(uid) for uid in UIDS]
    assert sum(map(len, taken)) == len(union(taken))
    assert union(taken) <= now.cpu.allocatable
    again = plan(now, safe, *UIDS, was=policy(now))
    assert [step for step in again.steps if step.safe] == []
    assert again.safe.cpu == safe
    assert refit(now, replace(found.safe)).cpu == safe
    assert [
        step for step in plan(now, whole, *UIDS, was=policy(now)).steps if step.rule is not Rule.SHARED_POOL_EMPTY
    ] == []
