"""Laws of admission over random machines, configurations and histories."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.errors import AgentError
from agent.model.cpuset import CPUSet
from agent.model.machine import CPUTopology
from agent.model.numa import node_ids
from agent.model.pod import Pod
from agent.model.state import Grants
from agent.policy.admission import admit
from agent.policy.eligibility import claims
from agent.policy.managers import Managers
from agent.policy.removal import container_started, remove
from agent.policy.restore import fresh, refit
from agent.policy.topology_options import TopologyPolicyName, TopologyScope
from tests.nodes import named, node, renamed
from tests.pods import app, init, sidecar, sized
from tests.policy.cpu_machines import drawn, regular

topologies = st.builds(
    regular,
    st.sampled_from([8, 16, 32]),
    sockets=st.sampled_from([1, 2]),
    numa=st.sampled_from([1, 2, 4]),
    smt=st.sampled_from([1, 2]),
    cache_cores=st.sampled_from([0, 2]),
) | st.sampled_from([drawn("0+1 2+3 4 5 6 7 8 9"), drawn("0+4 1+5 | 2+6 3"), drawn("0 1 2 | ; 3+7 4+8 5 6")])

OPTIONS: tuple[dict[str, str], ...] = (
    {},
    {"full-pcpus-only": "true"},
    {"distribute-cpus-across-numa": "true"},
    {"full-pcpus-only": "true", "distribute-cpus-across-numa": "true"},
    {"distribute-cpus-across-cores": "true"},
    {"prefer-align-cpus-by-uncorecache": "true", "full-pcpus-only": "true"},
    {"strict-cpu-reservation": "true"},
    {"strict-cpu-reservation": "true", "prefer-align-cpus-by-uncorecache": "true"},
    {"align-by-socket": "true"},
)


@st.composite
def nodes(draw: st.DrawFn) -> Managers:
    topology: CPUTopology = draw(topologies)
    config: dict[str, Any] = {
        "cpu_options": draw(st.sampled_from(OPTIONS)),
        "topology_policy": draw(st.sampled_from(list(TopologyPolicyName))),
        "topology_scope": draw(st.sampled_from(list(TopologyScope))),
        "memory_policy": draw(st.sampled_from(["None", "Static"])),
        "memory_gib": draw(st.sampled_from([4, 16])),
        "hugepages": {"2Mi": 1, "1Gi": draw(st.integers(1, 2))},
        "feature_gates": {
            "PodLevelResourceManagers": draw(st.booleans()),
            "CPUManagerPolicyAlphaOptions": True,
        },
    }
    reserved = draw(st.sampled_from(["0", "0,1"]))
    try:
        return node(topology, reserved, **config)
    except AgentError:  # align-by-socket with the wrong policy or machine: refused at start, so another option set
        return node(topology, reserved, **{**config, "cpu_options": {}})


cpus = st.sampled_from(["1", "2", "3", "4", "7", "500m", "1500m"])
memory = st.sampled_from(["1Gi", "3Gi", "5Gi"])
hugepages = st.sampled_from(
    ["", "", "", " hugepages-2Mi=512Mi", " hugepages-1Gi=1Gi hugepages-2Mi=64Mi", " hugepages-2Mi=0"]
)


@st.composite
def pods(draw: st.DrawFn, uid: str = "p") -> Pod:
    def size() -> str:
        return f"cpu={draw(cpus)} memory={draw(memory)}{draw(hugepages)}"

    def container(kind: Any, name: str) -> Any:
        amount = size()
        return kind(amount, amount if draw(st.integers(0, 4)) else "", name=name)

    parts = [container(init, f"i{n}") for n in range(draw(st.integers(0, 2)))]
    parts += [container(sidecar, f"s{n}") for n in range(draw(st.integers(0, 1)))]
    parts += [container(app, f"c{n}") for n in range(draw(st.integers(1, 3)))]
    budget = f"cpu={draw(st.sampled_from(['2', '4', '6', '2500m']))} memory=8Gi{draw(hugepages)}"
    resources = sized(budget, budget) if draw(st.integers(0, 2)) == 0 else None
    return named(uid, *parts, resources=resources)


@st.composite
def histories(draw: st.DrawFn) -> tuple[Managers, list[tuple[str, Any]]]:
    ops: list[tuple[str, Any]] = []
    for index in range(draw(st.integers(1, 8))):
        ops.append(("admit", draw(pods(f"p{index}"))))
        if draw(st.integers(0, 2)) == 0:
            ops.append((draw(st.sampled_from(["remove", "start", "restart"])), draw(st.integers(0, index))))
    return draw(nodes()), ops


def play(managers: Managers, ops: list[tuple[str, Any]]) -> Iterator[tuple[Grants, dict[str, Pod]]]:
    """Every state on the way, with the pods that run then."""
    grants = fresh(managers)
    running: dict[str, Pod] = {}
    yield grants, {}
    for op, what in ops:
        uid = f"p{what}" if op != "admit" else what.uid
        if op == "admit":
            verdict = admit(managers, grants, what)
            grants = verdict.grants
            if verdict.admitted:
                running = {**running, uid: what}
        elif op == "remove":
            grants = remove(managers, grants, uid)
            running = {other: pod for other, pod in running.items() if other != uid}
        elif op == "start" and uid in running:
            grants = container_started(grants, running[uid], running[uid].containers[-1].name)
        elif op == "restart":
            grants = refit(managers, grants)
        yield grants, running


def own(grants: Grants, uid: str) -> CPUSet:
    mask = grants.cpu.pod_entries[uid].mask if uid in grants.cpu.pod_entries else 0
    for held in grants.cpu.entries.get(uid, {}).values():
        mask |= held.mask
    return CPUSet(mask)


@given(histories())
def test_no_cpu_has_two_owners_none_is_lost_and_reserved_ones_are_never_given(
    history: tuple[Managers, list[tuple[str, Any]]],
) -> None:
    managers, ops = history
    assert managers.cpu is not None
    for grants, _ in play(managers, ops):
        seen = grants.cpu.default
        for uid in {**grants.cpu.entries, **grants.cpu.pod_entries}:
            held = own(grants, uid)
            assert not held & seen
            assert not held & managers.cpu.reserved
            seen |= held
        assert seen == managers.cpu.managed


@given(histories())
def test_no_byte_is_granted_twice_and_the_tables_add_up(history: tuple[Managers, list[tuple[str, Any]]]) -> None:
    managers, ops = history
    for grants, _ in play(managers, ops):
        charged = sum(block.size for blocks in grants.memory.pod_entries.values() for block in blocks) + sum(
            block.size
            for uid, entries in grants.memory.entries.items()
            if uid not in grants.memory.pod_entries
            for blocks in entries.values()
            for block in blocks
        )
        tables = [table for state in grants.memory.machine.values() for table in state.memory.values()]
        assert all(table.reserved + table.free == table.allocatable and table.free >= 0 for table in tables)
        assert charged == sum(table.reserved for table in tables)


@given(histories())
def test_what_a_running_pod_holds_never_changes_and_ended_pods_hold_nothing(
    history: tuple[Managers, list[tuple[str, Any]]],
) -> None:
    managers, ops = history
    before: dict[str, CPUSet] = {}
    for grants, running in play(managers, ops):
        holders = {*grants.cpu.entries, *grants.cpu.pod_entries, *grants.memory.entries, *grants.memory.pod_entries}
        assert holders <= set(running)
        for uid in running:
            if uid in before:
                assert own(grants, uid) == before[uid]
        before = {uid: own(grants, uid) for uid in running}


@given(histories())
def test_removing_every_pod_returns_the_node_to_its_start(history: tuple[Managers, list[tuple[str, Any]]]) -> None:
    managers, ops = history
    *_, (grants, running) = play(managers, ops)
    for uid in running:
        grants = remove(managers, grants, uid)
    assert grants == fresh(managers)


@given(histories())
def test_a_restart_at_any_point_changes_nothing(history: tuple[Managers, list[tuple[str, Any]]]) -> None:
    managers, ops = history
    for grants, running in play(managers, ops):
        assert refit(managers, grants) == grants
        for uid, pod in running.items():
            if uid in {*grants.cpu.entries, *grants.cpu.pod_entries, *grants.memory.entries}:
                assert admit(managers, grants, pod).grants is grants


@given(histories())
def test_a_bubble_is_its_slices_and_the_pods_shared_pool(history: tuple[Managers, list[tuple[str, Any]]]) -> None:
    managers, ops = history
    for grants, running in play(managers, ops):
        for uid, bubble in grants.cpu.pod_entries.items():
            asked = claims(running[uid], managers.gates)
            assert len(bubble) == asked.pod_cpus
            long_running = [c for c in running[uid].containers if c.kind != "init"]
            entries = grants.cpu.entries[uid]
            slices = [entries[c.name] for c in long_running if c.name in asked.cpus]
            assert sum(map(len, slices)) == len(CPUSet.of(cpu for piece in slices for cpu in piece))
            shared = {str(entries[c.name]) for c in long_running if c.name not in asked.cpus}
            assert len(shared) <= 1
            for text in shared:
                assert CPUSet.parse(text) == bubble - CPUSet.of(cpu for piece in slices for cpu in piece)
                assert text


@given(histories())
def test_the_alignment_that_the_policy_promises_holds(history: tuple[Managers, list[tuple[str, Any]]]) -> None:
    managers, ops = history
    if managers.topology.name is not TopologyPolicyName.SINGLE_NUMA_NODE:
        return
    masks = managers.machine.topology.numa_masks
    for grants, _ in play(managers, ops):
        for uid, entries in grants.cpu.entries.items():
            for held in entries.values():
                spanned = [numa for numa, mask in masks.items() if mask & held.mask]
                assert len(spanned) == 1, uid
        for blocks in (blocks for held in grants.memory.entries.values() for blocks in held.values()):
            assert all(len(node_ids(block.nodes)) == 1 for block in blocks)


@pytest.mark.parametrize("policy", list(TopologyPolicyName))
@given(st.permutations(["a", "b", "c", "d"]))
def test_the_order_of_equal_pods_does_not_lose_capacity(policy: TopologyPolicyName, order: list[str]) -> None:
    managers = node(regular(16, numa=2, smt=2), topology_policy=policy)
    grants = fresh(managers)
    pod = named("x", app("cpu=3 memory=1Gi", "cpu=3 memory=1Gi"))
    for uid in order:
        grants = admit(managers, grants, renamed(pod, uid)).grants
    assert len(grants.cpu.held) == 12
