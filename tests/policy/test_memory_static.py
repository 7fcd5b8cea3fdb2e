"""The memory tables: reservations, allocatable memory, charging and releasing blocks, reuse by the pod's own containers."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from agent.model.machine import Machine
from agent.model.numa import node_ids
from agent.model.pod import ContainerKind
from agent.model.state import MemoryBlock, MemoryTable, NUMANodeState
from agent.policy.memory_static import (
    MemoryReservationError,
    charge,
    container_request,
    finished_before,
    fresh_machine_state,
    place,
    pod_request,
    release,
    reserve,
    reusable_after,
    shrink_init_blocks,
)
from tests.nodes import GIB, named
from tests.pods import app, guaranteed, init, sidecar
from tests.policy.cpu_machines import regular

TWO = Machine(regular(8, numa=2), {0: {"memory": 8 * GIB, "hugepages-2Mi": GIB}, 1: {"memory": 8 * GIB}}, {})
RESERVED = {0: {"memory": GIB}}


def machine() -> dict[int, NUMANodeState]:
    return fresh_machine_state(reserve(TWO, RESERVED, {"memory": GIB}))


def shown(state: Mapping[int, NUMANodeState], resource: str = "memory") -> str:
    """ "0: 2/7 2x{0,1}" = node 0 has 2 of 7 GiB reserved, two blocks, in the group of 0 and 1."""
    return " ".join(
        f"{node}: {table.reserved / GIB:g}/{table.allocatable / GIB:g} "
        f"{row.assignments}x{{{','.join(map(str, node_ids(row.cells)))}}}"
        for node, row in state.items()
        if (table := row.memory.get(resource)) is not None
    )


@pytest.mark.parametrize(
    ("reserved", "node_allocatable", "message"),
    [
        pytest.param(
            {4: {"memory": GIB}},
            {"memory": GIB},
            "the reserved memory configuration references a NUMA node 4 that does not exist on this machine",
            id="a node that does not exist",
        ),
        pytest.param(
            {0: {"memory": GIB}, 1: {"memory": GIB}},
            {"memory": 3 * GIB},
            'the total amount "2Gi" of type "memory" is not equal to the value "3Gi" determined by Node Allocatable feature',
            id="a sum that is not the node's",
        ),
        pytest.param(
            RESERVED,
            {"memory": GIB, "hugepages-2Mi": 2**21},
            'the total amount "0" of type "hugepages-2Mi" is not equal to the value "2Mi" determined by Node Allocatable feature',
            id="hugepages that no node keeps",
        ),
        pytest.param(
            {0: {"memory": GIB, "hugepages-2Mi": 2**21}},
            {"memory": GIB},
            'the total amount "2Mi" of type "hugepages-2Mi" is not equal to the value "0" determined by Node Allocatable feature',
            id="hugepages that the node does not reserve",
        ),
        pytest.param({}, {}, "[memorymanager] you should specify the system reserved memory", id="nothing reserved"),
    ],
)
def test_a_reservation_that_does_not_add_up_is_refused(
    reserved: Mapping[int, Mapping[str, int]], node_allocatable: Mapping[str, int], message: str
) -> None:
    with pytest.raises(MemoryReservationError) as caught:
        reserve(TWO, reserved, node_allocatable)
    assert str(caught.value) == message
    assert caught.value.hint


def test_the_hint_says_which_value_would_be_right() -> None:
    with pytest.raises(MemoryReservationError) as caught:
        reserve(TWO, RESERVED, {"memory": 3 * GIB})
    assert "add up to 3Gi" in caught.value.hint
    with pytest.raises(MemoryReservationError) as caught:
        reserve(TWO, {4: {"memory": GIB}}, {"memory": GIB})
    assert caught.value.hint == "NUMA nodes of this machine: 0, 1"


def test_what_is_reserved_of_other_resources_is_none_of_its_business() -> None:
    assert reserve(TWO, {1: {"memory": 1}}, {"memory": 1, "cpu": 500, "pods": 3}).system_reserved == {1: {"memory": 1}}


def test_allocatable_memory_is_without_reservation_and_hugepages() -> None:
    state = machine()
    assert shown(state) == "0: 0/6 0x{0} 1: 0/8 0x{1}"
    assert shown(state, "hugepages-2Mi") == "0: 0/1 0x{0}"
    assert state[0].memory == {
        "memory": MemoryTable(8 * GIB, GIB, 6 * GIB, 0, 6 * GIB),
        "hugepages-2Mi": MemoryTable(GIB, 0, GIB, 0, GIB),
    }


def test_a_node_of_cpus_without_memory_has_no_tables() -> None:
    manager = reserve(Machine(regular(8, numa=2), {0: {"memory": 8 * GIB}}, {}), RESERVED, {"memory": GIB})
    assert fresh_machine_state(manager)[1] == NUMANodeState(0, 0b10, {})


def test_a_reservation_larger_than_its_node_leaves_nothing_there() -> None:
    """Upstream's unsigned subtraction wraps around and promises 16 EiB."""
    manager = reserve(TWO, {0: {"memory": 100 * GIB}}, {"memory": 100 * GIB})
    assert shown(fresh_machine_state(manager)) == "0: 0/0 0x{0} 1: 0/8 0x{1}"


def test_a_block_over_two_nodes_fills_them_in_order_and_returns_in_order() -> None:
    first = charge(machine(), 0b11, "memory", 8 * GIB)
    assert shown(first) == "0: 6/6 1x{0,1} 1: 2/8 1x{0,1}"
    second = charge(first, 0b11, "memory", 3 * GIB)
    assert shown(second) == "0: 6/6 2x{0,1} 1: 5/8 2x{0,1}"
    assert [second[node].memory["memory"].free for node in (0, 1)] == [0, 3 * GIB]
    after = release(second, [MemoryBlock("memory", 8 * GIB, 0b11)])
    assert shown(after) == "0: 0/6 1x{0,1} 1: 3/8 1x{0,1}"
    assert release(after, [MemoryBlock("memory", 3 * GIB, 0b11)]) == machine()


def test_a_node_without_the_resource_joins_the_group_and_holds_none_of_it() -> None:
    state = charge(machine(), 0b11, "hugepages-2Mi", GIB)
    assert shown(state) == "0: 0/6 1x{0,1} 1: 0/8 1x{0,1}"
    assert shown(state, "hugepages-2Mi") == "0: 1/1 1x{0,1}"
    assert release(state, [MemoryBlock("hugepages-2Mi", GIB, 0b11)]) == machine()
    single = charge(charge(machine(), 0b1, "memory", 6 * GIB - 1), 0b1, "memory", 1)
    assert single[0].memory["memory"].free == 0


def test_zero_sized_blocks_count_and_nodes_that_are_gone_return_nothing() -> None:
    state = charge(machine(), 0b1, "memory", 0)
    assert shown(state) == "0: 0/6 1x{0} 1: 0/8 0x{1}"
    assert release(state, [MemoryBlock("memory", 0, 0b1), MemoryBlock("memory", GIB, 0b1000)]) == machine()
    (last,) = (row for node, row in charge(machine(), 0b11, "memory", 8 * GIB).items() if node == 1)
    assert release({1: last}, [MemoryBlock("memory", 8 * GIB, 0b11)]) == {1: machine()[1]}


def test_memory_that_went_away_is_not_free_when_a_pod_ends() -> None:
    smaller = Machine(TWO.topology, {0: {"memory": 4 * GIB}, 1: {"memory": 8 * GIB}}, {})
    fresh = fresh_machine_state(reserve(smaller, RESERVED, {"memory": GIB}))
    table = fresh[0].memory["memory"]
    held = NUMANodeState(2, 1, {"memory": type(table)(table.total, GIB, 3 * GIB, 5 * GIB, 0)})
    after = release({**fresh, 0: held}, [MemoryBlock("memory", GIB, 1)])
    assert (after[0].memory["memory"].reserved, after[0].memory["memory"].free) == (4 * GIB, 0)


def test_only_memory_and_hugepages_are_asked_of_the_memory_manager() -> None:
    container = app("cpu=1 memory=1Gi hugepages-2Mi=4Mi ephemeral-storage=1Gi", "")
    assert container_request(container) == {"memory": GIB, "hugepages-2Mi": 4 * 2**20}
    assert container_request(app("memory=1.5Gi", "")) == {"memory": 3 * GIB // 2}


@pytest.mark.parametrize(
    ("containers", "gib"),
    [
        pytest.param([guaranteed("1", "2Gi"), guaranteed("1", "3Gi")], 5, id="apps add up"),
        pytest.param([init("memory=4Gi"), init("memory=6Gi"), app("memory=1Gi")], 6, id="init one after the other"),
        pytest.param([init("memory=6Gi"), init("memory=4Gi"), app("memory=1Gi")], 6, id="the largest in any order"),
        pytest.param([sidecar("memory=2Gi"), init("memory=6Gi"), app("memory=1Gi")], 8, id="beside the sidecar before"),
        pytest.param([init("memory=6Gi"), sidecar("memory=2Gi"), app("memory=3Gi")], 6, id="not beside a later one"),
        pytest.param([sidecar("memory=2Gi"), app("memory=3Gi")], 5, id="sidecars run with the apps"),
        pytest.param([sidecar("memory=2Gi"), sidecar("memory=3Gi", name="b"), app()], 5, id="and with each other"),
    ],
)
def test_the_most_that_a_pod_holds_at_one_time(containers: list[object], gib: int) -> None:
    assert pod_request(named("p", *containers)) == {"memory": gib * GIB}  # type: ignore[arg-type]


def test_none_of_a_resource_is_none() -> None:
    pod = named("p", init("memory=2Gi hugepages-2Mi=0"), app("memory=1Gi"))
    assert pod_request(pod) == {"memory": 2 * GIB, "hugepages-2Mi": 0}
    assert pod_request(named("p", sidecar("hugepages-2Mi=0"), app("memory=0"))) == {"memory": 0, "hugepages-2Mi": 0}
    nothing = (MemoryBlock("memory", 0, 1),)
    assert reusable_after(ContainerKind.APP, {}, nothing) == {1: {"memory": 0}}
    assert reusable_after(ContainerKind.INIT, {}, nothing) == {1: {"memory": 0}}


def test_what_can_be_reused_is_not_charged_again() -> None:
    _, after = place(machine(), {"memory": 2 * GIB}, 0b1, {0b1: {"memory": 2 * GIB}})
    assert shown(after) == "0: 0/6 1x{0} 1: 0/8 0x{1}"


def test_reuse_takes_from_the_identical_mask_only() -> None:
    spare = {0b1: {"memory": 2 * GIB}}
    _, same = place(machine(), {"memory": 3 * GIB}, 0b1, spare)
    _, other = place(machine(), {"memory": 3 * GIB}, 0b11, spare)
    assert shown(same) == "0: 1/6 1x{0} 1: 0/8 0x{1}"
    assert shown(other) == "0: 3/6 1x{0,1} 1: 0/8 1x{0,1}"


def test_init_containers_offer_their_largest_block_and_the_others_use_it_up() -> None:
    spare = reusable_after(ContainerKind.INIT, {}, (MemoryBlock("memory", 3, 1),))
    spare = reusable_after(ContainerKind.INIT, spare, (MemoryBlock("memory", 5, 1),))
    spare = reusable_after(ContainerKind.INIT, spare, (MemoryBlock("memory", 4, 1),))
    assert spare == {1: {"memory": 5}}
    spare = reusable_after(ContainerKind.APP, spare, (MemoryBlock("memory", 2, 1),))
    assert spare == {1: {"memory": 3}}
    assert reusable_after(ContainerKind.SIDECAR, spare, (MemoryBlock("memory", 9, 1),)) == {1: {"memory": 0}}


def test_init_blocks_shrink_by_what_a_later_container_takes_over() -> None:
    containers = (init(name="i1"), init(name="i2"), app(name="a"))
    entries = {"i1": (MemoryBlock("memory", 3, 1),), "i2": (MemoryBlock("memory", 4, 2),)}
    taken = (MemoryBlock("memory", 5, 1),)
    after = shrink_init_blocks(containers, {**entries, "a": taken}, containers[2], taken)
    assert after["i1"] == (MemoryBlock("memory", 0, 1),)
    assert after["i2"] == entries["i2"]


@pytest.mark.parametrize(
    ("held", "taken", "left"),
    [
        pytest.param({"i1": 3, "i2": 4}, 5, {"i1": 0, "i2": 2}, id="one after the other"),
        pytest.param({"i1": 3, "i2": 4}, 3, {"i1": 0, "i2": 4}, id="no further than what is taken"),
        pytest.param({"i1": 4, "i2": 4}, 5, {"i1": 0, "i2": 3}, id="to the last byte"),
        pytest.param({"i1": 3, "i2": 4}, 9, {"i1": 0, "i2": 0}, id="down to nothing"),
        pytest.param({"i1": 3, "i2": 4}, 2, {"i1": 1, "i2": 4}, id="a part"),
        pytest.param({"i1": 3, "s": 4}, 5, {"i1": 0, "s": 4}, id="a sidecar keeps its own"),
        pytest.param({"i2": 4}, 3, {"i2": 1}, id="one that holds nothing is passed over"),
        pytest.param({"i1": 3, "late": 4}, 5, {"i1": 0, "late": 4}, id="one that comes later is not touched"),
    ],
)
def test_init_blocks_on_the_same_nodes_shrink_in_their_order(
    held: Mapping[str, int], taken: int, left: Mapping[str, int]
) -> None:
    containers = (init(name="i1"), sidecar(name="s"), init(name="i2"), app(name="a"), init(name="late"))
    entries = {name: (MemoryBlock("memory", size, 1),) for name, size in held.items()}
    after = shrink_init_blocks(containers, entries, containers[3], (MemoryBlock("memory", taken, 1),))
    assert {name: block.size for name, (block,) in after.items()} == left


def test_containers_that_have_ended_once_another_runs() -> None:
    containers = (init(name="i1"), sidecar(name="s"), init(name="i2"), app(name="a"))
    assert finished_before(containers, "i2") == {"i1"}
    assert finished_before(containers, "a") == {"i1", "i2"}
    assert finished_before(containers, "i1") == frozenset()
