"""Memory limits that wait until the use has fallen, and the order in which a pod's sizes are written."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from agent.model.cpuset import CPUSet
from agent.model.pod import Pod
from agent.model.state import CPUState, Grants
from agent.policy.cgroup_intents import Intents, Rules
from agent.policy.cgroup_names import CgroupKey, ContainerCgroup, PodCgroup
from agent.policy.cgroup_settings import NO_LIMIT, Observed, Settings
from agent.policy.memory_shrink import hold_back, limits_to_check
from agent.policy.pins import Pin, pins_of
from tests.nodes import named
from tests.pods import app

ALL = CPUSet.parse("0-3")
POD = PodCgroup("p")


def seen(quota_us: int, memory_bytes: int) -> Observed:
    return Observed(ALL, ALL, 0, quota_us, 0, None, memory_bytes)


def two(a: tuple[int, int], b: tuple[int, int]) -> Pod:
    """A pod of two containers; (thousandths of a CPU, MiB) as limits of each."""
    sizes = {name: f"cpu={cpu}m memory={mib}Mi" for name, (cpu, mib) in {"a": a, "b": b}.items()}
    return named("p", *(app(size, size, name=name) for name, size in sizes.items()))


def groups(of: Pod) -> dict[CgroupKey, Observed]:
    """What the pod's cgroups say once its sizes are in force."""
    intents = Intents(Grants(CPUState(ALL)), {"p": of}, Rules(frozenset({"p"})))
    keys: list[CgroupKey] = [POD, ContainerCgroup("p", "a"), ContainerCgroup("p", "b")]
    return {key: _as_told(seen(NO_LIMIT, NO_LIMIT), intents.of(key).settings) for key in keys}


def _as_told(before: Observed, settings: Settings) -> Observed:
    return Observed(
        settings.cpus or before.cpus,
        settings.cpus or before.effective,
        before.mems,
        before.quota_us if settings.quota_us is None else settings.quota_us,
        before.shares if settings.shares is None else settings.shares,
        None,
        before.memory_bytes if settings.memory_bytes is None else settings.memory_bytes,
    )


def plan_for(after: Pod, observed: dict[CgroupKey, Observed]) -> tuple[Pin, ...]:
    return pins_of(Intents(Grants(CPUState(ALL)), {"p": after}, Rules(frozenset({"p"}))), observed).pins


limits = st.tuples(st.integers(1, 40).map(lambda n: 100 * n), st.integers(4, 64))


@given(limits, limits, limits, limits)
def test_at_no_moment_of_a_resize_do_the_containers_exceed_their_pod(
    a: tuple[int, int], b: tuple[int, int], after_a: tuple[int, int], after_b: tuple[int, int]
) -> None:
    observed = groups(two(a, b))
    after = two(after_a, after_b)
    for pin in plan_for(after, observed):
        observed[pin.key] = _as_told(observed[pin.key], pin.settings)
        whole = observed[POD]
        parts = [observed[key] for key in observed if key != POD]
        assert sum(part.quota_us or 0 for part in parts) <= (whole.quota_us or 0)
        assert sum(part.memory_bytes or 0 for part in parts) <= (whole.memory_bytes or 0)
    assert observed == groups(after)


def test_a_limit_below_current_use_holds_back_all_sizes_of_its_pod_and_says_why() -> None:
    observed = groups(two((500, 64), (500, 64)))
    plan = pins_of(
        Intents(Grants(CPUState(CPUSet.parse("0-2"))), {"p": two((200, 16), (700, 64))}, Rules(frozenset({"p"}))),
        observed,
    )
    checked = limits_to_check(plan, {"p"})
    assert checked == {ContainerCgroup("p", "a"): 16 << 20, POD: 80 << 20}
    kept, held = hold_back(plan, checked, {ContainerCgroup("p", "a"): 20 << 20, POD: 30 << 20})
    assert [str(each) for each in held] == [
        (
            'cannot decrease memory limits: attempting to set container "a" memory limit (16777216) '
            "below current usage (20971520)"
        )
    ]
    assert {pin.key for pin in kept.pins} == {*observed}, "CPU sets move all the same"
    assert all(pin.settings == Settings(cpus=CPUSet.parse("0-2")) for pin in kept.pins)


def test_a_pods_own_limit_is_named_as_the_pods() -> None:
    observed = groups(two((500, 64), (500, 64)))
    plan = pins_of(Intents(Grants(CPUState(ALL)), {"p": two((500, 32), (500, 32))}, Rules(frozenset({"p"}))), observed)
    _, held = hold_back(plan, limits_to_check(plan, {"p"}), {POD: 70 << 20})
    assert [str(each) for each in held] == [
        "cannot decrease memory limits: attempting to set pod memory limit (67108864) below current usage (73400320)"
    ]


def test_limits_of_other_pods_and_limits_that_rise_are_written_at_once() -> None:
    observed = groups(two((500, 64), (500, 64)))
    plan = pins_of(Intents(Grants(CPUState(ALL)), {"p": two((500, 32), (500, 96))}, Rules(frozenset({"p"}))), observed)
    assert limits_to_check(plan, ()) == {}
    kept, held = hold_back(plan, limits_to_check(plan, {"p"}), {})
    assert (kept, held) == (plan, ())
