"""What every cgroup shall say: the rules of design section 7, one case each."""

from __future__ import annotations

import pytest

from agent.model.cpuset import CPUSet
from agent.model.pod import Pod, QOSClass
from agent.model.state import CPUState, Grants, MemoryBlock, MemoryState
from agent.policy.cgroup_intents import Intent, Rules, intent
from agent.policy.cgroup_names import ContainerCgroup, PodCgroup, QOSCgroup
from agent.policy.cgroup_settings import NO_LIMIT, Settings
from tests.pods import app, guaranteed, init, pod, sidecar, sized

GIB = 1 << 30
OURS = Rules(owned=frozenset({"u1"}))


def grants(default: str, bubble: str | None = None, **entries: str) -> Grants:
    cpu = CPUState(
        CPUSet.parse(default),
        {"u1": {name: CPUSet.parse(cpus) for name, cpus in entries.items()}} if entries else {},
        {"u1": CPUSet.parse(bubble)} if bubble else {},
    )
    return Grants(cpu)


def of(name: str, held: Grants, one: Pod | None, rules: Rules = OURS) -> Intent:
    key = PodCgroup("u1") if name == "pod" else ContainerCgroup("u1", name)
    return intent(key, held, {one.uid: one} if one else {}, rules)


def cpus_of(name: str, held: Grants, one: Pod | None, rules: Rules = OURS) -> str:
    cpus = of(name, held, one, rules).settings.cpus
    return "-" if cpus is None else str(cpus)


def test_a_shared_container_of_ours_is_told_everything() -> None:
    one = pod(app("cpu=250m memory=1Gi", "cpu=500m memory=1Gi", "web"))
    assert of("web", grants("0-3"), one) == Intent(
        Settings(CPUSet.parse("0-3"), quota_us=50_000, shares=256, memory_bytes=GIB)
    )
    assert of("pod", grants("0-3"), one).settings == Settings(
        CPUSet.parse("0-3"), quota_us=50_000, shares=256, memory_bytes=GIB
    )


def test_a_container_without_limits_has_none() -> None:
    one = pod(app(name="web"))
    assert of("web", grants("0-3"), one).settings == Settings(
        CPUSet.parse("0-3"), quota_us=NO_LIMIT, shares=2, memory_bytes=NO_LIMIT
    )


def test_a_memory_bound_is_whole_pages_as_the_kernel_keeps_it() -> None:
    one = pod(app("", "memory=1000001", "web"))
    assert of("web", grants("0"), one).settings.memory_bytes == 244 * 4096


def test_an_exclusive_slice_has_no_quota_and_keeps_its_memory_bound() -> None:
    one = pod(guaranteed("2", name="db"))
    assert of("db", grants("0,3", db="1-2"), one) == Intent(
        Settings(CPUSet.parse("1-2"), quota_us=NO_LIMIT, shares=2048, memory_bytes=GIB), own=CPUSet.parse("1-2")
    )
    assert of("pod", grants("0,3", db="1-2"), one) == Intent(
        Settings(CPUSet.parse("0-3"), quota_us=NO_LIMIT, shares=2048, memory_bytes=GIB), own=CPUSet.parse("1-2")
    )


def test_memory_nodes_are_those_of_all_blocks() -> None:
    blocks = (MemoryBlock("memory", GIB, 0b01), MemoryBlock("hugepages-2Mi", GIB, 0b10))
    held = Grants(grants("0,3", db="1-2").cpu, MemoryState(entries={"u1": {"db": blocks}}))
    one = pod(guaranteed("2", name="db"))
    assert of("db", held, one).settings.mems == 0b11
    assert of("pod", held, one).settings.mems is None


MIXED = pod(guaranteed("2", name="db"), app("cpu=500m memory=1Gi", "cpu=3 memory=1Gi", "side"))


def test_in_container_scope_the_pods_quota_is_lifted_while_a_slice_exists() -> None:
    assert of("pod", grants("0,3", db="1-2"), MIXED).settings.quota_us == NO_LIMIT
    assert of("pod", grants("0-3"), MIXED).settings.quota_us == 500_000
    assert of("side", grants("0,3", db="1-2"), MIXED).settings.quota_us == 300_000


@pytest.mark.parametrize(
    ("level", "limit", "quota"),
    [
        pytest.param("4", "3", 200_000, id="the pod's limit minus its slices"),
        pytest.param("4", "1500m", 150_000, id="its own limit where that is less"),
        pytest.param("4", "", 200_000, id="without a limit of its own"),
        pytest.param("2", "1", 1_000, id="nothing left is the least the kernel takes"),
    ],
)
def test_shared_members_get_what_the_slices_leave_of_the_pods_limit(level: str, limit: str, quota: int) -> None:
    one = pod(
        guaranteed("2", name="db"),
        app("", f"cpu={limit}" if limit else "", "side"),
        resources=sized(f"cpu={level}", f"cpu={level} memory=4Gi"),
    )
    held = grants("0,3-7", db="1-2")
    assert of("side", held, one).settings.quota_us == quota
    assert of("pod", held, one).settings.quota_us == NO_LIMIT


def test_an_init_container_is_not_charged_for_slices_that_come_after_it() -> None:
    one = pod(
        init("", "cpu=4", "setup"),
        sidecar("cpu=1 memory=1Gi", "cpu=1 memory=1Gi", "log"),
        guaranteed("2", name="db"),
        app(name="side"),
        resources=sized("cpu=4 memory=4Gi", "cpu=4 memory=4Gi"),
    )
    held = grants("0,4-7", log="1", db="2-3")
    assert of("setup", held, one).settings.quota_us == 300_000
    assert of("side", held, one).settings.quota_us == 100_000


def test_strict_keeps_the_pods_bound_and_leaves_members_their_own() -> None:
    strict = Rules(owned=frozenset({"u1"}), strict_pod_quota=True)
    held = grants("0,3", db="1-2")
    assert of("pod", held, MIXED, strict).settings.quota_us == 500_000
    assert of("side", held, MIXED, strict).settings.quota_us == 300_000
    assert of("db", held, MIXED, strict).settings.quota_us == NO_LIMIT


BUBBLE = pod(
    guaranteed("2", name="db"),
    guaranteed("500m", name="a"),
    app(name="b"),
    resources=sized("cpu=4 memory=4Gi", "cpu=4 memory=4Gi"),
)
IN_BUBBLE = grants("0,5-7", bubble="1-4", db="1-2", a="3-4", b="3-4")


def test_in_pod_scope_the_bubble_is_the_bound_and_pool_members_keep_their_quota() -> None:
    assert of("pod", IN_BUBBLE, BUBBLE) == Intent(
        Settings(CPUSet.parse("1-4"), quota_us=NO_LIMIT, shares=4096, memory_bytes=4 * GIB), own=CPUSet.parse("1-4")
    )
    assert of("db", IN_BUBBLE, BUBBLE).settings.quota_us == NO_LIMIT
    assert of("a", IN_BUBBLE, BUBBLE).settings.quota_us == 50_000
    assert of("b", IN_BUBBLE, BUBBLE).settings.quota_us == NO_LIMIT
    assert cpus_of("a", IN_BUBBLE, BUBBLE) == "3-4"


def test_a_container_that_nobody_planned_stays_inside_its_pods_bubble() -> None:
    assert cpus_of("debugger", grants("0,5-7", bubble="1-4", db="1-2"), BUBBLE) == "3-4"
    assert cpus_of("debugger", grants("0,5-7", bubble="1-2", db="1-2"), BUBBLE) == "1-2"
    assert cpus_of("debugger", grants("0-3"), BUBBLE) == "0-3"


def test_of_other_peoples_pods_only_what_follows_from_a_grant_is_touched() -> None:
    theirs = Rules()
    held = grants("0,3", db="1-2")
    assert of("db", held, MIXED, theirs).settings == Settings(CPUSet.parse("1-2"), quota_us=NO_LIMIT)
    assert of("pod", held, MIXED, theirs).settings == Settings(CPUSet.parse("0-3"), quota_us=NO_LIMIT)
    assert of("side", held, MIXED, theirs).settings == Settings(CPUSet.parse("0,3"), quota_us=300_000)
    assert of("side", grants("0-3"), MIXED, theirs).settings == Settings(CPUSet.parse("0-3"))
    assert of("pod", grants("0-3"), MIXED, theirs).settings == Settings(CPUSet.parse("0-3"))


def test_a_pod_that_no_source_lists_keeps_its_cpus() -> None:
    held = grants("0,3", db="1-2")
    assert of("db", held, None) == Intent(Settings(CPUSet.parse("1-2")), own=CPUSet.parse("1-2"))
    assert cpus_of("other", held, None) == "0,3"
    assert cpus_of("pod", held, None) == "0-3"


def test_qos_cgroups_hold_the_shared_pool() -> None:
    for qos in (QOSClass.BURSTABLE, QOSClass.BEST_EFFORT):
        assert intent(QOSCgroup(qos), grants("0,3", db="1-2"), {}, OURS) == Intent(Settings(CPUSet.parse("0,3")))


def test_an_empty_shared_pool_is_never_wanted() -> None:
    held = grants("", db="0-3")
    assert cpus_of("web", held, None) == "-"
    assert intent(QOSCgroup(QOSClass.BURSTABLE), held, {}, OURS).settings.cpus is None
    assert cpus_of("web", Grants(), pod(app(name="web"))) == "-"


def test_exclusive_cpus_are_slices_and_bubbles() -> None:
    assert str(IN_BUBBLE.cpu.held) == "1-4"
    assert str(grants("0,3", db="1-2").cpu.held) == "1-2"
