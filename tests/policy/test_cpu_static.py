"""The static CPU policy piece by piece: what is reserved, who asks for whole CPUs, from where they are taken."""

from __future__ import annotations

import pytest

from agent.model.cpuset import CPUSet
from agent.model.machine import CPUTopology
from agent.model.pod import ContainerKind
from agent.model.resources import most_at_once
from agent.policy.cpu_assignment import NotEnoughCPUs, PickOptions
from agent.policy.cpu_options import StaticOptions
from agent.policy.cpu_static import (
    CPUManager,
    CPUReservationError,
    affine_cpus,
    allocate,
    check_physical_cpus,
    check_whole_cores,
    exclusive_cpus,
    pick_options,
    reserve,
    reusable_after,
    whole_cores,
)
from agent.policy.refusal import SMTAlignmentError
from tests.pods import app
from tests.policy.cpu_machines import drawn, regular

SMT = drawn("0+4 1+5 |; 2+6 3+7")
HYBRID = drawn("0+1 2+3 4 5")
NODES_IN_SOCKETS = drawn("0 1 | 2 3 |; 4 5 | 6 7")
PLAIN = StaticOptions()
WHOLE = StaticOptions(full_pcpus_only=True)
APP, INIT, SIDECAR = ContainerKind.APP, ContainerKind.INIT, ContainerKind.SIDECAR


def manager(topology: CPUTopology = SMT, options: StaticOptions = PLAIN, reserved: str = "0") -> CPUManager:
    explicit = CPUSet.parse(reserved)
    return reserve(topology, options, explicit, len(explicit))


@pytest.mark.parametrize(
    ("topology", "options", "expected"),
    [
        pytest.param(SMT, PLAIN, PickOptions(), id="packed, CPU by CPU"),
        pytest.param(SMT, WHOLE, PickOptions(cpu_group_size=2), id="whole cores stay together"),
        pytest.param(drawn("0 1"), WHOLE, PickOptions(cpu_group_size=1), id="cores of one thread"),
        pytest.param(
            SMT,
            StaticOptions(distribute_across_numa=True),
            PickOptions(distribute_across_numa=True),
            id="over NUMA nodes",
        ),
        pytest.param(SMT, StaticOptions(distribute_across_cores=True), PickOptions(spread_cores=True), id="over cores"),
        pytest.param(SMT, StaticOptions(prefer_uncore=True), PickOptions(prefer_uncore=True), id="by uncore cache"),
    ],
)
def test_options_say_how_to_pick(topology: CPUTopology, options: StaticOptions, expected: PickOptions) -> None:
    assert pick_options(topology, options) == expected
    assert CPUManager(topology, options, CPUSet(), CPUSet()).pick == expected


@pytest.mark.parametrize(
    ("options", "explicit", "count", "reserved", "physical"),
    [
        pytest.param(PLAIN, "0", 1, "0", "0,4", id="given: with its sibling"),
        pytest.param(PLAIN, "3,6", 2, "3,6", "2-3,6-7", id="given: of two cores"),
        pytest.param(PLAIN, "", 2, "0,4", "0,4", id="picked: a core"),
        pytest.param(PLAIN, "", 3, "0-1,4", "0-1,4-5", id="picked: a core and a half"),
        pytest.param(PLAIN, "", 0, "", "", id="none"),
        pytest.param(PLAIN, "", 8, "0-7", "0-7", id="picked: everything"),
        pytest.param(
            StaticOptions(full_pcpus_only=True, distribute_across_numa=True), "", 6, "0-2,4-6", "0-2,4-6",
            id="picked in whole cores, as the options say",
        ),
        pytest.param(StaticOptions(distribute_across_cores=True), "", 3, "0-1,4", "0-1,4-5", id="picked thread by thread"),
    ],
)  # fmt: skip
def test_reserved_cpus_are_those_given_or_as_many_as_asked_for(
    options: StaticOptions, explicit: str, count: int, reserved: str, physical: str
) -> None:
    made = reserve(SMT, options, CPUSet.parse(explicit), count)
    assert (str(made.reserved), str(made.reserved_physical)) == (reserved, physical)


@pytest.mark.parametrize(
    ("explicit", "count", "why"),
    [
        ("0-1", 3, "unable to reserve the required amount of CPUs (size of 0-1 did not equal 3)"),
        ("", 9, "unable to reserve the required amount of CPUs (size of  did not equal 9)"),
        ("0,9", 2, "unable to build the reserved physical CPUs from the reserved set: unknown CPU ID: 9"),
    ],
)
def test_a_reservation_that_cannot_be_is_refused_in_the_kubelets_words(explicit: str, count: int, why: str) -> None:
    with pytest.raises(CPUReservationError) as refusal:
        reserve(SMT, PLAIN, CPUSet.parse(explicit), count)
    assert str(refusal.value) == f"[cpumanager] {why}"
    assert "reservedSystemCPUs" in refusal.value.hint


def test_what_can_be_given_and_what_is_managed() -> None:
    relaxed, strict = manager(), manager(options=StaticOptions(strict_reservation=True))
    assert (str(relaxed.allocatable), str(relaxed.managed)) == ("1-7", "0-7")
    assert (str(strict.allocatable), str(strict.managed)) == ("1-7", "1-7")
    assert (manager().uneven_cores, manager(HYBRID).uneven_cores) == (False, True)


@pytest.mark.parametrize(
    ("cpu", "count"),
    [("", 0), ("0", 0), ("1", 1), ("1000m", 1), ("3", 3), ("1500m", 0), ("100m", 0), ("2.0", 2)],
)
def test_only_whole_cpus_are_exclusive(cpu: str, count: int) -> None:
    assert exclusive_cpus(app(f"cpu={cpu}" if cpu else "memory=1Gi")) == count


def test_a_request_is_whole_if_it_is_so_in_rounded_up_millicores() -> None:
    assert exclusive_cpus(app("cpu=1999999999n")) == 2  # 2000 millicores, rounded up, are two CPUs


@pytest.mark.parametrize(
    ("counts", "most"),
    [
        ([], 0),
        ([(APP, 2), (APP, 3)], 5),
        ([(INIT, 4), (APP, 3)], 4),
        ([(INIT, 2), (INIT, 4), (INIT, 3), (APP, 1)], 4),
        ([(SIDECAR, 1), (INIT, 4), (APP, 3)], 5),
        ([(INIT, 4), (SIDECAR, 1), (APP, 2)], 4),
        ([(SIDECAR, 2), (SIDECAR, 1), (APP, 1)], 4),
        ([(SIDECAR, 2), (SIDECAR, 3)], 5),
        ([(SIDECAR, 1), (SIDECAR, 1), (INIT, 2), (APP, 1)], 4),
    ],
)
def test_the_most_cpus_that_a_pod_holds_at_one_time(counts: list[tuple[ContainerKind, int]], most: int) -> None:
    assert most_at_once(counts) == most


@pytest.mark.parametrize(
    ("options", "shared", "cpus", "why"),
    [
        pytest.param(WHOLE, "0-7", 0, None, id="nothing asked for"),
        pytest.param(WHOLE, "0-7", 2, None, id="a core"),
        pytest.param(WHOLE, "0-7", 6, None, id="all but the reserved core"),
        pytest.param(PLAIN, "0-7", 3, None, id="parts of cores are fine without full-pcpus-only"),
        pytest.param(PLAIN, "0-7", 9, None, id="and the number is for the pick to judge"),
        pytest.param(WHOLE, "0-7", 1, "requested 1 cpus not multiple cpus per core = 2", id="one CPU of two"),
        pytest.param(WHOLE, "0-7", 3, "requested 3 cpus not multiple cpus per core = 2", id="half a core"),
        pytest.param(
            WHOLE,
            "0-7",
            8,
            "not enough free physical CPUs: available physical CPUs = 6, requested CPUs = 8,",
            id="the reserved one",
        ),
        pytest.param(
            WHOLE, "1,5", 4, "not enough free physical CPUs: available physical CPUs = 2", id="not so many free"
        ),
    ],
)
def test_full_pcpus_only_judges_the_count(options: StaticOptions, shared: str, cpus: int, why: str | None) -> None:
    if why is None:
        check_physical_cpus(manager(options=options), CPUSet.parse(shared), cpus)
        return
    with pytest.raises(SMTAlignmentError) as refusal:
        check_physical_cpus(manager(options=options), CPUSet.parse(shared), cpus)
    assert why in str(refusal.value)


@pytest.mark.parametrize(
    ("shared", "cpus", "affinity", "reusable", "expected"),
    [
        pytest.param("0-7", 2, None, "", "1,5", id="anywhere: the fuller node"),
        pytest.param("0-7", 2, 0b10, "", "2,6", id="where the hint says"),
        pytest.param("0-7", 3, 0b01, "", "1,4-5", id="a reserved CPU is not given, its sibling is"),
        pytest.param("0-7", 4, 0b01, "", "1-2,4-5", id="what the hint lacks comes from elsewhere"),
        pytest.param("1-7", 7, 0b11, "", "1-7", id="all"),
        pytest.param("2-4,6-7", 2, 0b01, "1", "1,4", id="reusable ones count as free"),
        pytest.param("4-7", 3, 0b01, "1", "1,4-5", id="and are taken like the others"),
        pytest.param("0-7", 1, 0b100, "", "4", id="a node that the machine does not have holds none"),
    ],
)
def test_cpus_come_from_the_hint_first(
    shared: str, cpus: int, affinity: int | None, reusable: str, expected: str
) -> None:
    given = allocate(manager(), CPUSet.parse(shared), cpus, affinity, CPUSet.parse(reusable))
    assert str(given) == expected


def test_more_than_there_is_is_refused_with_what_is_left_after_the_hint() -> None:
    with pytest.raises(NotEnoughCPUs, match="requested=5, available=4"):
        allocate(manager(), SMT.all, 8, 0b01, CPUSet())


def test_a_mask_that_devices_force_is_spread_over() -> None:
    spread = manager(regular(16, sockets=2, numa=2), StaticOptions(distribute_across_numa=True))
    assert str(allocate(spread, spread.topology.all, 4, 0b11, CPUSet(), min_numa_nodes=2)) == "1-2,8-9"
    assert str(allocate(spread, spread.topology.all, 4, 0b11, CPUSet())) == "8-11"


def test_on_uneven_cores_full_pcpus_only_gives_whole_cores_or_nothing() -> None:
    whole = manager(HYBRID, WHOLE, reserved="5")
    assert str(allocate(whole, HYBRID.all, 3, None, CPUSet())) == "0-1,4"
    assert str(allocate(whole, CPUSet.parse("1-3,5"), 2, None, CPUSet())) == "2-3"
    assert str(allocate(manager(HYBRID, reserved="5"), CPUSet.parse("1-3,5"), 3, None, CPUSet())) == "1-3"
    with pytest.raises(SMTAlignmentError):
        allocate(whole, CPUSet.parse("0-3,5"), 3, None, CPUSet())
    assert len(allocate(manager(HYBRID, reserved="5"), CPUSet.parse("0-3,5"), 3, None, CPUSet())) == 3


@pytest.mark.parametrize(
    ("affinity", "by_node", "by_socket"),
    [
        (0b0001, "0-1", "0-3"),
        (0b0100, "4-5", "4-7"),
        (0b0011, "0-3", "0-3"),
        (0b1001, "0-1,6-7", "0-7"),
        (0, "", ""),
        (1 << 9, "", ""),
    ],
)
def test_align_by_socket_widens_a_hint_to_whole_sockets(affinity: int, by_node: str, by_socket: str) -> None:
    nodes, sockets = (manager(NODES_IN_SOCKETS, StaticOptions(align_by_socket=wide)) for wide in (False, True))
    assert (str(affine_cpus(nodes, affinity)), str(affine_cpus(sockets, affinity))) == (by_node, by_socket)


def test_a_set_is_checked_for_parts_of_cores() -> None:
    assert str(whole_cores(SMT, CPUSet.parse("0-2,4"))) == "0,4"
    check_whole_cores(manager(), CPUSet.parse("1,5"))
    with pytest.raises(SMTAlignmentError) as refusal:
        check_whole_cores(manager(), CPUSet.parse("1-2,5"))
    assert "requested 3 cpus cannot be made of whole cores, CPUs 2 would share a core" in str(refusal.value)


def test_init_containers_leave_their_cpus_to_later_ones_and_those_use_them_up() -> None:
    held = CPUSet.parse("1-2")
    assert str(reusable_after(INIT, CPUSet.parse("5"), held)) == "1-2,5"
    for kind in (APP, SIDECAR):
        assert str(reusable_after(kind, CPUSet.parse("1-5"), held)) == "3-5"
