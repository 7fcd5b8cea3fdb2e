"""Memory over a restart: drift, resize, nodes that come and go, tables that do not add up. docs/state.md in tests."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.model.state import Blocks, MemoryBlock, MemoryState, MemoryTable, NUMANodeState, PolicyInForce
from agent.policy.hint_family import Hint
from agent.policy.managers import Managers
from agent.policy.memory_count import charged_blocks, count
from agent.policy.memory_placement import allocate_memory
from agent.policy.memory_static import fresh_machine_state
from agent.policy.removal import remove
from agent.policy.repair import plan_repair
from agent.policy.repair_plan import Change, RepairPlan, Rule
from agent.policy.restore import refit
from tests.policy.nodes import GIB, grants, machine, managers, policy, records

MIB = 1 << 20
HUGE = "hugepages-2Mi"
CPUS = {0: "0-3", 1: "4-7"}


def node(
    memory: Mapping[int, Mapping[str, int]] | None = None, *, reserved: int = GIB, memory_policy: str = "Static"
) -> Managers:
    return managers(
        machine({n: text for n, text in CPUS.items() if memory is None or n in memory}, memory),
        cpu_policy="none",
        memory_policy=memory_policy,
        reserved_memory={0: {"memory": reserved}},
    )


def holding(
    on: Managers, pods: Mapping[str, Mapping[str, Blocks]], bubbles: Mapping[str, Blocks] | None = None
) -> MemoryState:
    """A consistent state in which these pods hold these blocks."""
    assert on.memory is not None
    memory = MemoryState({}, pods, bubbles or {})
    return MemoryState(count(fresh_machine_state(on.memory), memory).machine, pods, bubbles or {})


def blocks(size: int, nodes: int, kind: str = "memory") -> Blocks:
    return (MemoryBlock(kind, size, nodes),)


def plan(now: Managers, memory: MemoryState, was: Managers | PolicyInForce | None = None) -> RepairPlan:
    before = policy(was) if isinstance(was, Managers) else was
    uids = {**memory.entries, **memory.pod_entries}
    return plan_repair(now, grants(memory=memory), records(*uids), Change(before, policy(now)))


def told(found: RepairPlan) -> list[tuple[Rule, bool]]:
    return [(step.rule, step.safe) for step in found.steps]


def table(memory: MemoryState, n: int, kind: str = "memory") -> MemoryTable:
    return memory.machine[n].memory[kind]


def test_what_fits_is_left_alone() -> None:
    memory = holding(node(), {"a": {"app": blocks(2 * GIB, 1)}, "b": {"app": blocks(9 * GIB, 3)}})
    found = plan(node(), memory, node())
    assert not found.steps
    assert found.safe.memory == found.whole.memory == memory


def test_a_small_drift_after_a_boot_is_taken_as_the_new_base() -> None:
    memory = holding(node(), {"a": {"app": blocks(2 * GIB, 1)}})
    now = node({0: {"memory": 8 * GIB - 42 * MIB}, 1: {"memory": 8 * GIB + 42 * MIB}})
    found = plan(now, memory, node())
    assert told(found) == [(Rule.MEMORY_DRIFT, True), (Rule.MEMORY_DRIFT, True)]
    assert f"NUMA node 0 has {8 * GIB - 42 * MIB} bytes of memory, {42 * MIB} less than before" == found.steps[0].text
    zero = table(found.safe.memory, 0)
    assert (zero.total, zero.reserved) == (8 * GIB - 42 * MIB, 2 * GIB)
    assert zero.free == zero.allocatable - zero.reserved
    assert found.whole.memory == found.safe.memory


def test_a_drift_that_bites_into_what_is_promised_is_borne_within_the_tolerance() -> None:
    memory = holding(node(), {"a": {"app": blocks(7 * GIB, 1)}})
    now = node({0: {"memory": 8 * GIB - 42 * MIB}, 1: {"memory": 8 * GIB}})
    found = plan(now, memory, node())
    assert told(found) == [(Rule.MEMORY_DRIFT, True)]
    assert not found.marks
    assert table(found.safe.memory, 0).free == 0
    assert found.safe.memory.entries == memory.entries


def test_a_node_too_small_for_its_pod_degrades_the_pod_and_waits() -> None:
    was = node({0: {"memory": 64 * GIB}, 1: {"memory": 64 * GIB}})
    memory = holding(was, {"a": {"app": blocks(10 * GIB, 1)}})
    now = node({0: {"memory": 8 * GIB}, 1: {"memory": 64 * GIB}})
    found = plan(now, memory, was)
    assert told(found) == [(Rule.MEMORY_CHANGED, True), (Rule.MEMORY_SHORT, False)]
    step = found.waiting[0]
    assert step.pods == ("a",)
    assert f"test/pod-a holds {3 * GIB} bytes of memory on NUMA node 0" in step.text
    assert found.marks["a"].reason == "MemoryMissing"
    assert found.safe.memory.entries == memory.entries
    assert table(found.safe.memory, 0).free == 0
    assert found.whole.memory.entries == {"a": {"app": blocks(7 * GIB, 1)}}
    assert not plan(now, found.whole.memory, now).waiting


def test_the_pods_admitted_last_give_way_first() -> None:
    memory = holding(
        node(), {"a": {"app": blocks(3 * GIB, 1)}, "b": {"app": blocks(GIB, 1)}, "c": {"app": blocks(3 * GIB, 1)}}
    )
    found = plan(node({0: {"memory": 4 * GIB}, 1: {"memory": 8 * GIB}}), memory, node())
    assert [step.pods for step in found.waiting] == [("c",), ("b",)]
    sizes = {uid: sum(block.size for block in charged_blocks(found.whole.memory, uid)) for uid in "abc"}
    assert sizes == {"a": 3 * GIB, "b": 0, "c": 0}


@pytest.mark.parametrize(("reserved", "waits"), [(2 * GIB, False), (7 * GIB, True), (GIB // 2, False)])
def test_a_changed_reservation_is_safe_where_all_pods_still_fit(reserved: int, waits: bool) -> None:
    memory = holding(node(), {"a": {"app": blocks(2 * GIB, 1)}})
    found = plan(node(reserved=reserved), memory, node())
    assert told(found)[0] == (Rule.MEMORY_CHANGED, True)
    assert bool(found.waiting) == waits
    assert table(found.safe.memory, 0).system_reserved == reserved


def test_hugepages_resized_take_from_the_memory_of_their_node() -> None:
    was = node({n: {"memory": 8 * GIB, HUGE: GIB} for n in (0, 1)})
    memory = holding(was, {"a": {"app": blocks(GIB // 2, 1, HUGE)}})
    grown = plan(node({0: {"memory": 8 * GIB, HUGE: 2 * GIB}, 1: {"memory": 8 * GIB, HUGE: GIB}}), memory, was)
    assert told(grown) == [(Rule.MEMORY_CHANGED, True)]
    assert table(grown.safe.memory, 0).allocatable == 5 * GIB
    assert table(grown.safe.memory, 0, HUGE).free == 2 * GIB - GIB // 2
    gone = plan(node({n: {"memory": 8 * GIB} for n in (0, 1)}), memory, was)
    assert [step.rule for step in gone.waiting] == [Rule.MEMORY_SHORT]
    assert "of hugepages-2Mi on NUMA node 0" in gone.waiting[0].text
    assert charged_blocks(gone.whole.memory, "a") == blocks(0, 1, HUGE)


def test_a_numa_node_that_appears_can_be_granted() -> None:
    memory = holding(node({0: {"memory": 8 * GIB}}), {"a": {"app": blocks(GIB, 1)}})
    found = plan(node(), memory, node({0: {"memory": 8 * GIB}}))
    assert told(found) == [(Rule.NUMA_NODE_ADDED, True)]
    assert table(found.safe.memory, 1).free == 8 * GIB


def test_an_idle_numa_node_that_vanished_is_dropped() -> None:
    memory = holding(node(), {"a": {"app": blocks(GIB, 1)}})
    found = plan(node({0: {"memory": 8 * GIB}}), memory, node())
    assert told(found) == [(Rule.NUMA_NODE_GONE, True)]
    assert set(found.safe.memory.machine) == {0}


def test_a_numa_node_that_vanished_under_pods_degrades_them_and_waits() -> None:
    memory = holding(node(), {"a": {"app": blocks(GIB, 2)}, "b": {"app": blocks(9 * GIB, 3)}})
    now = node({0: {"memory": 8 * GIB}})
    found = plan(now, memory, node())
    assert {step.pods for step in found.waiting} >= {("a",), ("b",)}
    assert {mark.reason for mark in found.marks.values()} == {"NUMANodeGone"}
    assert found.safe.memory.entries == memory.entries
    assert charged_blocks(found.whole.memory, "a") == ()
    assert charged_blocks(found.whole.memory, "b") == blocks(7 * GIB, 1)
    assert found.whole.memory.machine[0].cells == 1


def test_tables_that_do_not_add_up_are_counted_anew() -> None:
    right = holding(node(), {"a": {"app": blocks(GIB, 1)}})
    zero = right.machine[0]
    for wrong in (
        NUMANodeState(5, zero.cells, zero.memory),
        NUMANodeState(1, 0b11, zero.memory),
        NUMANodeState(1, 1, {"memory": MemoryTable(8 * GIB, GIB, 7 * GIB, 2 * GIB, 5 * GIB)}),
        NUMANodeState(1, 1, {"memory": MemoryTable(8 * GIB, GIB, 7 * GIB, GIB, 7 * GIB)}),
    ):
        found = plan(node(), MemoryState({**right.machine, 0: wrong}, right.entries), node())
        assert told(found) == [(Rule.MEMORY_RECOUNTED, True)]
        assert found.safe.memory == right


def test_the_split_of_a_block_over_nodes_survives_a_restart() -> None:
    # 24 GiB over both nodes, then 2, the first 2 end, 1 more: per-node numbers depend on the order of events
    on = node({n: {"memory": 22 * GIB} for n in (0, 1)}, reserved=MIB)
    assert on.memory is not None
    memory = MemoryState(
        {
            0: NUMANodeState(2, 3, {"memory": MemoryTable(22 * GIB, MIB, 22 * GIB - MIB, 20 * GIB, 2 * GIB - MIB)}),
            1: NUMANodeState(2, 3, {"memory": MemoryTable(22 * GIB, 0, 22 * GIB, 5 * GIB, 17 * GIB)}),
        },
        {"a": {"app": blocks(24 * GIB, 3)}, "b": {"app": blocks(GIB, 3)}},
    )
    found = plan(on, memory, on)
    assert not found.steps
    assert found.safe.memory == memory


def test_policy_none_over_pods_that_hold_memory_waits() -> None:
    memory = holding(node(), {"a": {"app": blocks(GIB, 1)}})
    found = plan(node(memory_policy="None"), memory, node())
    assert told(found) == [(Rule.POLICY_CHANGED, False)]
    assert (found.safe.memory, found.whole.memory) == (memory, MemoryState())


def test_static_policy_switched_on_begins_with_empty_tables() -> None:
    found = plan(node(), MemoryState(), node(memory_policy="None"))
    assert told(found) == [(Rule.POLICY_CHANGED, True)]
    assert table(found.safe.memory, 1).free == 8 * GIB


def test_memory_that_went_away_is_not_free_when_a_pod_ends() -> None:
    memory = holding(node(), {"a": {"app": blocks(4 * GIB, 1)}, "b": {"app": blocks(3 * GIB, 1)}})
    now = node({0: {"memory": 4 * GIB}, 1: {"memory": 8 * GIB}})
    safe = plan(now, memory, node()).safe
    after = remove(now, safe, "b").memory.machine[0].memory["memory"]
    assert (after.reserved, after.free) == (4 * GIB, 0)
    after = remove(now, safe, "a").memory.machine[0].memory["memory"]
    assert (after.reserved, after.free) == (3 * GIB, 0)


sizes = st.integers(0, 4096).map(lambda mib: mib * MIB)


@given(
    pods=st.dictionaries(st.sampled_from("abcd"), st.tuples(sizes, st.sampled_from([1, 2, 3])), max_size=4),
    totals=st.tuples(sizes, sizes),
)
def test_whatever_the_machine_has_become_the_outcome_adds_up(
    pods: dict[str, tuple[int, int]], totals: tuple[int, int]
) -> None:
    memory = holding(node(), {uid: {"app": blocks(size, nodes)} for uid, (size, nodes) in pods.items()})
    now = node({0: {"memory": totals[0] + GIB}, 1: {"memory": totals[1]}})
    found = plan(now, memory, node())
    assert found.safe.memory.entries == memory.entries
    for n, state in found.whole.memory.machine.items():
        for held in state.memory.values():
            assert held.reserved - held.allocatable <= 64 * MIB, n
            assert held.free == max(held.allocatable - held.reserved, 0)
    again = plan(now, found.safe.memory, now)
    assert [step for step in again.steps if step.safe] == []
    assert again.safe == found.safe
    assert refit(now, found.safe) == found.safe
    assert not plan(now, found.whole.memory, now).steps


def test_the_kubelets_own_placements_need_no_repair() -> None:
    on = node()
    assert on.memory is not None
    machine_state = fresh_machine_state(on.memory)
    entries: dict[str, Mapping[str, Blocks]] = {}
    for uid, (size, mask) in {"a": (9 * GIB, 3), "b": (2 * GIB, 3), "c": (GIB, 3)}.items():
        held, machine_state = allocate_memory(machine_state, {"memory": size}, Hint(mask, True), {})
        entries[uid] = {"app": held}
    gone = remove(on, grants(memory=MemoryState(machine_state, entries)), "a")
    assert not plan(on, gone.memory, on).steps
