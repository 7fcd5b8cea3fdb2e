"""A state over another machine or configuration than it was made for: the table of docs/state.md, from start to start.

What each rule finds: tests/policy/test_repair_*.py. Here: what the agent makes of it. Safe steps are made by themselves, nothing
running is touched, the rest waits over restarts, and goes when it is applied or when the pods concerned have ended.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from agent.keeper import Keeper, Rules
from agent.model.pod import Pod
from agent.model.state import Grants
from agent.node.state_store import StateStore
from agent.policy.repair_plan import Rule
from agent.startup import first_state, waiting_text
from tests.keepers import T8, look, rules, started, stored
from tests.policy.nodes import GIB, cpus, machine, managers, pod

A, B = pod("a"), pod("b", cpu="3")  # 1-2 and 3-5 of eight CPUs
STRICT = {"strict-cpu-reservation": "true"}
MIB = 1 << 20


def memory_rules(node0: int, node1: int, *, reserved: int = GIB, policy: str = "Static", **others: object) -> Rules:
    """Two NUMA nodes of four CPUs and so many bytes; the memory policy Static with single NUMA nodes."""
    nodes = machine({0: "0-3", 1: "4-7"}, {0: {"memory": node0}, 1: {"memory": node1}})
    kept = {node: {"memory": reserved} for node in (0, 1)}
    of = managers(nodes, memory_policy=policy, reserved_memory=kept, topology_policy="single-numa-node")
    return rules(of, **others)


def held(keeper: Keeper) -> str:
    cpu = keeper.state.grants.cpu
    sets = [f"{uid}={entries['app']}" for uid, entries in sorted(cpu.entries.items())]
    return " ".join([*sets, f"shared={cpu.default}"])


def begin(directory: Path, *pods: Pod, under: Rules | None = None) -> None:
    with started(directory, under) as keeper:
        look(keeper, *pods)
        assert list(keeper.state.pods) == [each.uid for each in pods]


@dataclass(frozen=True)
class Row:
    """One change under running pods a and b. made: rules of the safe steps. waits: of the others. after: who holds what then;
    applied: and once an operator wants it. marks: UID -> reason."""

    under: Rules
    made: Sequence[Rule] = ()
    waits: Sequence[Rule] = ()
    after: str = "a=1-2 b=3-5 shared=0,6-7"
    applied: str = ""
    marks: Sequence[tuple[str, str]] = ()
    marks_applied: Sequence[tuple[str, str]] = ()
    was: Rules | None = None


ROWS = {
    "nothing changed": Row(rules()),
    "more CPUs": Row(rules(managers(machine({0: "0-15"}))), [Rule.CPUS_ADDED], after="a=1-2 b=3-5 shared=0,6-15"),
    "more CPUs, to be confirmed": Row(
        rules(managers(machine({0: "0-15"})), confirm_added=True),
        waits=[Rule.CPUS_ADDED],
        applied="a=1-2 b=3-5 shared=0,6-15",
    ),
    "a shared CPU gone": Row(rules(managers(machine({0: "0-6"}))), [Rule.CPUS_GONE], after="a=1-2 b=3-5 shared=0,6"),
    "a CPU of a pod gone": Row(
        rules(managers(machine({0: "0-4,6-7"}))),
        waits=[Rule.CPUS_LOST],
        applied="a=1-2 b=3-4,6 shared=0,7",
        marks=[("b", "CPUsOffline")],
    ),
    "a CPU of a pod gone and no other free": Row(
        rules(managers(machine({0: "0-4"}))),
        made=[Rule.CPUS_GONE],
        waits=[Rule.CPUS_LOST],
        after="a=1-2 b=3-5 shared=0",
        applied="a=1-2 b=3-4 shared=0",
        marks=[("b", "CPUsOffline")],
        marks_applied=[("b", "CPUsMissing")],
    ),
    "reservation grown into the pool": Row(
        rules(managers(T8, reserved="0,6")), [Rule.RESERVATION_CHANGED], applied="a=1-2 b=3-5 shared=0,6-7"
    ),
    "reservation grown over a pod": Row(
        rules(managers(T8, reserved="0-1")),
        [Rule.RESERVATION_CHANGED],
        [Rule.RESERVED_HELD],
        applied="a=2,6 b=3-5 shared=0-1,7",
        marks=[("a", "CPUsReserved")],
    ),
    "strict reservation over an old state": Row(
        rules(managers(T8, options=STRICT)),
        [Rule.OPTIONS_CHANGED, Rule.RESERVATION_CHANGED],
        after="a=1-2 b=3-5 shared=6-7",
    ),
    "strict reservation no more": Row(
        rules(),
        [Rule.OPTIONS_CHANGED, Rule.RESERVATION_CHANGED],
        was=rules(managers(T8, options=STRICT)),
    ),
    "static to none": Row(rules(managers(T8, cpu_policy="none")), waits=[Rule.POLICY_CHANGED], applied="shared=0-7"),
    "none to static": Row(
        rules(), [Rule.POLICY_CHANGED], after="shared=0-7", was=rules(managers(T8, cpu_policy="none"))
    ),
}


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_a_change_under_running_pods(tmp_path: Path, row: Row) -> None:
    begin(tmp_path, A, B, under=row.was)
    for _ in range(2):  # the second start finds the same: what waits still waits, and nothing is made twice
        with started(tmp_path, row.under) as keeper:
            look(keeper, A, B)
            assert held(keeper) == row.after
            assert [step.rule for step in keeper.repair.waiting] == list(row.waits)
            assert marks(keeper) == list(row.marks)
            assert bool(waiting_text(keeper.repair)) == bool(row.waits)
            made = [step.rule for step in keeper.take_made()]
        assert made == list(row.made)
        row = replace(row, made=())
    with started(tmp_path, row.under) as keeper:
        look(keeper, A, B)
        keeper.apply_repair()
        look(keeper, A, B)
        assert held(keeper) == (row.applied or row.after)
        assert not keeper.repair.waiting
        assert marks(keeper) == list(row.marks_applied)
    with started(tmp_path, row.under) as keeper:  # and it stays so
        look(keeper, A, B)
        assert not keeper.repair.steps
        assert marks(keeper) == list(row.marks_applied)


def marks(keeper: Keeper) -> list[tuple[str, str]]:
    return [(uid, each.degraded.reason) for uid, each in keeper.state.pods.items() if each.degraded]


def test_what_waits_ends_with_the_pod_concerned(tmp_path: Path) -> None:
    begin(tmp_path, A, B)
    with started(tmp_path, rules(managers(machine({0: "0-4,6-7"})))) as keeper:
        look(keeper, A, B)
        assert keeper.repair.waiting
        look(keeper, A)
        assert not keeper.repair.waiting
        assert held(keeper) == "a=1-2 shared=0,3-4,6-7"


def test_the_cpu_that_comes_back_is_all_that_is_needed(tmp_path: Path) -> None:
    begin(tmp_path, A, B)
    with started(tmp_path, rules(managers(machine({0: "0-4,6-7"})))) as keeper:
        look(keeper, A, B)
        assert marks(keeper) == [("b", "CPUsOffline")]
        keeper.under(rules())
        assert marks(keeper) == []
        assert held(keeper) == "a=1-2 b=3-5 shared=0,6-7"


def test_new_pods_are_admitted_beside_what_waits_and_never_onto_it(tmp_path: Path) -> None:
    begin(tmp_path, A, B)
    with started(tmp_path, rules(managers(machine({0: "0-4,6-7"})))) as keeper:
        look(keeper, A, B, pod("c"))
        assert held(keeper) == "a=1-2 b=3-5 c=6-7 shared=0"
        assert keeper.repair.waiting


def test_the_policy_off_and_on_again_loses_nothing(tmp_path: Path) -> None:
    begin(tmp_path, A, B)
    off = rules(managers(T8, cpu_policy="none"))
    with started(tmp_path, off) as keeper:
        look(keeper, A, B, pod("late"))
        assert held(keeper) == "a=1-2 b=3-5 shared=0,6-7", "the late pod gets nothing of its own, nobody loses anything"
        look(keeper, B, pod("late"))
        assert held(keeper) == "b=3-5 shared=0-2,6-7"
    with started(tmp_path) as keeper:
        look(keeper, B, pod("late"))
        assert held(keeper) == "b=3-5 shared=0-2,6-7"
        assert not keeper.repair.steps


def test_the_policy_off_is_over_when_the_last_holder_has_ended(tmp_path: Path) -> None:
    begin(tmp_path, A)
    off = rules(managers(T8, cpu_policy="none"))
    with started(tmp_path, off) as keeper:
        look(keeper, A)
        assert keeper.repair.waiting
        look(keeper)
        assert not keeper.repair.waiting
        assert keeper.state.policy.cpu_policy == "none"
        assert held(keeper) == "shared=0-7", "everybody is let out of the narrower pool"


def test_first_admission_sets_follow_an_exchange(tmp_path: Path) -> None:
    begin(tmp_path, A, B)
    with started(tmp_path, rules(managers(machine({0: "0-4,6-7"})))) as keeper:
        look(keeper, A, B)
        keeper.apply_repair()
        assert {uid: str(record.first.cpus["app"]) for uid, record in keeper.state.pods.items()} == {
            "a": "1-2",
            "b": "3-4,6",
        }


def test_two_pods_on_one_cpu_out_of_a_file_keep_it_from_everybody_else(tmp_path: Path) -> None:
    """One of them ends: the CPU stays with the other."""
    begin(tmp_path, A, B)
    twice = replace(stored(tmp_path), grants=Grants(cpus("0,4-7", a={"app": "1-2"}, b={"app": "2-3"})))
    put(tmp_path, twice)
    with started(tmp_path) as keeper:
        look(keeper, A, B)
        assert [step.rule for step in keeper.repair.waiting] == [Rule.TWO_OWNERS]
        look(keeper, B)
        assert held(keeper) == "b=2-3 shared=0-1,4-7"
        assert not keeper.repair.waiting


def put(directory: Path, state: object) -> None:
    with StateStore(directory) as store:
        first_state(store)
        store.save(state)  # type: ignore[arg-type]


# --- memory ---


def memory_held(keeper: Keeper) -> dict[str, int]:
    return {
        uid: sum(b.size for each in e.values() for b in each) for uid, e in keeper.state.grants.memory.entries.items()
    }


def test_memory_that_drifts_from_boot_to_boot_is_the_new_base(tmp_path: Path) -> None:
    """BL-16, first run."""
    big = pod("big", memory="10Gi")
    begin(tmp_path, big, under=memory_rules(64 * GIB, 64 * GIB))
    with started(tmp_path, memory_rules(68676485120, 68762468352)) as keeper:
        look(keeper, big)
        assert not keeper.repair.waiting
        assert marks(keeper) == []
        drift = [step.text for step in keeper.take_made() if step.rule is Rule.MEMORY_DRIFT]
        assert ["42991616 less" in drift[0], "42991616 more" in drift[1]] == [True, True]
        assert keeper.state.grants.memory.machine[0].memory["memory"].total == 68676485120


def test_memory_that_is_gone_leaves_the_pod_degraded_until_it_is_applied(tmp_path: Path) -> None:
    """BL-16, second run: named are pod, NUMA node and missing bytes."""
    big = pod("big", memory="10Gi")
    begin(tmp_path, big, under=memory_rules(64 * GIB, 64 * GIB))
    missing = 10 * GIB - 7 * GIB
    for _ in range(2):
        with started(tmp_path, memory_rules(8 * GIB, 64 * GIB)) as keeper:
            look(keeper, big)
            (step,) = keeper.repair.waiting
            assert all(text in step.text for text in ("test/pod-big", "NUMA node 0", str(missing)))
            assert marks(keeper) == [("big", "MemoryMissing")]
            assert memory_held(keeper) == {"big": 10 * GIB}
    with started(tmp_path, memory_rules(8 * GIB, 64 * GIB)) as keeper:
        look(keeper, big)
        keeper.apply_repair()
        assert memory_held(keeper) == {"big": 7 * GIB}
        assert marks(keeper) == [("big", "MemoryShortened")]
    with started(tmp_path, memory_rules(8 * GIB, 64 * GIB)) as keeper:
        look(keeper, big)
        assert not keeper.repair.steps
        assert marks(keeper) == [("big", "MemoryShortened")]


@pytest.mark.parametrize(("tolerance", "waits"), [(64 * MIB, 0), (16 * MIB, 1)])
def test_the_tolerance_is_configured(tmp_path: Path, tolerance: int, waits: int) -> None:
    big = pod("big", memory="7Gi")
    begin(tmp_path, big, under=memory_rules(8 * GIB, 8 * GIB))
    with started(tmp_path, memory_rules(8 * GIB - 32 * MIB, 8 * GIB, tolerance_bytes=tolerance)) as keeper:
        look(keeper, big)
        assert len(keeper.repair.waiting) == waits


def test_the_memory_policy_off_and_on_again_loses_nothing(tmp_path: Path) -> None:
    big = pod("big", memory="5Gi")
    on, off = memory_rules(8 * GIB, 8 * GIB), memory_rules(8 * GIB, 8 * GIB, policy="None")
    begin(tmp_path, big, under=on)
    before = stored(tmp_path).grants.memory
    with started(tmp_path, off) as keeper:
        look(keeper, big)
        assert [step.rule for step in keeper.repair.waiting] == [Rule.POLICY_CHANGED]
    with started(tmp_path, on) as keeper:
        look(keeper, big)
        assert keeper.state.grants.memory == before
        assert not keeper.repair.steps


def test_a_numa_node_that_vanishes_under_a_pod_waits(tmp_path: Path) -> None:
    big = pod("big", memory="5Gi")
    begin(tmp_path, big, under=memory_rules(8 * GIB, 8 * GIB))
    one = machine({1: "4-7"})
    gone = rules(managers(one, reserved="4", memory_policy="Static", reserved_memory={1: {"memory": GIB}}))
    with started(tmp_path, gone) as keeper:
        look(keeper, big)
        assert Rule.NUMA_NODE_GONE in [step.rule for step in keeper.repair.waiting]
        assert [uid for uid, _ in marks(keeper)] == ["big"]
        assert memory_held(keeper) == {"big": 5 * GIB}


def test_blocks_on_two_nodes_keep_their_split_over_a_restart(tmp_path: Path) -> None:
    """BL-39: what came and went in between does not change the numbers that a start finds."""
    nodes = machine({0: "0-3", 1: "4-7"}, {node: {"memory": 22 * GIB} for node in (0, 1)})
    kept = {node: {"memory": GIB // 2} for node in (0, 1)}
    under = rules(managers(nodes, memory_policy="Static", reserved_memory=kept, topology_policy="best-effort"))
    wide, small, late = pod("wide", memory="24Gi"), pod("small", memory="2Gi"), pod("late", memory="1Gi")
    with started(tmp_path, under) as keeper:
        for pods in ([wide], [wide, small], [wide], [wide, late]):
            look(keeper, *pods)
        before = keeper.state
        assert "wide" in before.pods
    with started(tmp_path, under) as keeper:
        look(keeper, wide, late)
        assert keeper.state == before
        assert not keeper.repair.steps
