"""A pinned pod that is resized under other rules than those of its admission: the policy, the scope or the gates have changed."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.model.pod import Pod
from agent.model.state import FirstGrant, Grants
from agent.policy.managers import Managers
from agent.policy.resize_pinned import PinnedResizeRefusal, resize_pinned
from agent.policy.restore import refit
from tests.nodes import admitted, cpus_of, memory_of, named, node
from tests.pods import app, guaranteed, sized
from tests.policy.cpu_machines import regular
from tests.policy.resizing import EXCLUSIVE

BOTH: dict[str, Any] = {"memory_policy": "Static", "memory_gib": 16}
NO_CPU_POLICY: dict[str, Any] = {**BOTH, "cpu_policy": "none"}
POD_SCOPE: dict[str, Any] = {"topology_policy": "best-effort", "topology_scope": "pod"}


def under(**config: Any) -> Managers:
    gates = {**EXCLUSIVE, "PodLevelResourceManagers": config.pop("pod_level", True)}
    return node(regular(16, numa=2), feature_gates=gates, **config)


def plain(cpus: str = "2", memory: str = "2Gi") -> Pod:
    return named("p", guaranteed(cpus, memory), app("cpu=500m memory=1Gi", "cpu=500m memory=1Gi", name="side"))


def bubble(cpus: str = "4", memory: str = "4Gi") -> Pod:
    total = sized(f"cpu={cpus} memory={memory}", f"cpu={cpus} memory={memory}")
    return named("p", guaranteed("2", "2Gi"), app(name="side"), resources=total)


def resized(before: dict[str, Any], after: dict[str, Any], old: Pod, new: Pod) -> tuple[Grants, Grants]:
    """What the pod held under the rules after, and what it holds once it is resized. Raises PinnedResizeRefusal."""
    managers = under(**after)
    held = refit(managers, admitted(under(**before), old))
    return held, resize_pinned(managers, held, FirstGrant.of(held, "p"), old, new).grants


@pytest.mark.parametrize(
    ("rules", "old", "new", "held"),
    [
        pytest.param({}, plain(), plain("4"), "1-2", id="more"),
        pytest.param({}, plain("4"), plain("2"), "1-4", id="fewer"),
        pytest.param({}, plain(), plain("1500m"), "1-2", id="a fraction"),
        pytest.param(POD_SCOPE, bubble(), bubble("6"), "1-4", id="a larger bubble"),
    ],
)
def test_without_a_cpu_policy_a_pod_keeps_the_cpus_that_it_was_given(
    rules: dict[str, Any], old: Pod, new: Pod, held: str
) -> None:
    with pytest.raises(PinnedResizeRefusal) as caught:
        resized({**BOTH, **rules}, {**NO_CPU_POLICY, **rules}, old, new)
    assert f"pod p keeps the exclusive CPUs {held} until it ends" in str(caught.value)
    assert (caught.value.never, caught.value.reason) == (True, "cpu_manager_policy_none")
    assert caught.value.hint == "create the pod anew, or configure cpuManagerPolicy static again"


@pytest.mark.parametrize(
    ("rules", "old", "new", "memory"),
    [
        pytest.param({}, plain(), plain(memory="3Gi"), "app=3@0 side=1@0", id="containers"),
        pytest.param(POD_SCOPE, bubble(), bubble(memory="6Gi"), "app=2@0 side=4@0", id="a bubble"),
    ],
)
def test_without_a_cpu_policy_memory_is_resized_beside_cpus_that_stay(
    rules: dict[str, Any], old: Pod, new: Pod, memory: str
) -> None:
    before, after = resized({**BOTH, **rules}, {**NO_CPU_POLICY, **rules}, old, new)
    assert memory_of(after, "p") == memory
    assert cpus_of(after) == cpus_of(before)


def test_memory_of_a_container_that_would_get_none_of_its_own_by_now_stays() -> None:
    """The managers of pods with resources of their own were on when it was admitted, and are off."""
    before, after = resized(BOTH, {**NO_CPU_POLICY, "pod_level": False}, bubble(), bubble(memory="6Gi"))
    assert memory_of(after, "p") == memory_of(before, "p") == "app=2@0"


SCOPES = pytest.mark.parametrize(
    "after",
    [
        pytest.param(POD_SCOPE, id="as before"),
        pytest.param({**POD_SCOPE, "topology_scope": "container"}, id="the scope is the container"),
        pytest.param({"topology_policy": "none"}, id="nothing is aligned"),
    ],
)


@SCOPES
@pytest.mark.parametrize(
    ("new", "cpus"),
    [
        pytest.param(bubble("6"), "p/app=1-2 p/side=3-6 p=1-6 shared=0,7-15", id="more CPUs"),
        pytest.param(bubble(memory="6Gi"), "p/app=1-2 p/side=3-4 p=1-4 shared=0,5-15", id="more memory"),
    ],
)
def test_a_bubble_grows_as_one_whatever_the_scope_has_become(after: dict[str, Any], new: Pod, cpus: str) -> None:
    _, got = resized({**BOTH, **POD_SCOPE}, {**BOTH, **after}, bubble(), new)
    assert cpus_of(got) == cpus


@SCOPES
@pytest.mark.parametrize(
    ("new", "reason"),
    [
        pytest.param(bubble("3"), "below_first_admission", id="fewer CPUs"),
        pytest.param(bubble("3500m"), "exclusiveness_changed", id="a fraction"),
        pytest.param(bubble(memory="3Gi"), "below_first_admission", id="less memory"),
    ],
)
def test_a_bubble_gives_nothing_back_of_its_first_admission_whatever_the_scope_has_become(
    after: dict[str, Any], new: Pod, reason: str
) -> None:
    with pytest.raises(PinnedResizeRefusal) as caught:
        resized({**BOTH, **POD_SCOPE}, {**BOTH, **after}, bubble(), new)
    assert (caught.value.reason, caught.value.never) == (reason, True)


CONTAINER_SCOPE = {**POD_SCOPE, "topology_scope": "container"}


def test_a_pod_with_resources_of_its_own_and_no_bubble_is_resized_by_containers() -> None:
    new = named("p", guaranteed("3", "2Gi"), app(name="side"), resources=bubble("5").resources)
    held, got = resized({**BOTH, **CONTAINER_SCOPE}, {**BOTH, **CONTAINER_SCOPE}, bubble(), new)
    assert (cpus_of(held), cpus_of(got)) == ("p/app=1-2 shared=0,3-15", "p/app=1-3 shared=0,4-15")


rules = st.fixed_dictionaries(
    {
        "cpu_policy": st.sampled_from(["static", "none"]),
        "memory_policy": st.sampled_from(["Static", "None"]),
        "topology_policy": st.sampled_from(["none", "best-effort", "restricted"]),
        "topology_scope": st.sampled_from(["container", "pod"]),
        "pod_level": st.booleans(),
    }
)
amounts = st.tuples(st.sampled_from(["3", "4", "5"]), st.sampled_from(["3Gi", "4Gi", "5Gi"]))


@given(rules, rules, st.sampled_from([plain, bubble]), amounts, amounts)
def test_whatever_the_rules_have_become_a_resize_is_answered_and_takes_no_first_cpus(
    before: dict[str, Any], after: dict[str, Any], kind: Any, old: tuple[str, str], new: tuple[str, str]
) -> None:
    try:
        held, got = resized(before, after, kind(*old), kind(*new))
    except PinnedResizeRefusal:
        return
    for name, cpus in held.cpu.entries.get("p", {}).items():
        assert cpus <= got.cpu.entries["p"][name] or name in held.cpu.pod_entries
