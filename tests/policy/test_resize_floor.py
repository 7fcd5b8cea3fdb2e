"""What a pinned pod can never lose, who has pins at all, and the node that a pod would have to itself."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from agent.model.pod import Pod
from agent.model.state import FirstGrant
from agent.policy.refusal import EmptyPodSharedPoolError
from agent.policy.removal import holds
from agent.policy.resize_pinned import PinnedResizeRefusal, alone, resize_pinned
from agent.policy.restore import fresh
from tests.nodes import admitted, named, node
from tests.pods import app, guaranteed, init, sized
from tests.policy.cpu_machines import regular
from tests.policy.resizing import EXCLUSIVE, cpu, sizes

BOTH: dict[str, Any] = {"memory_policy": "Static", "memory_gib": 16}
BUBBLES: dict[str, Any] = {**BOTH, "topology_policy": "best-effort", "topology_scope": "pod"}


def bubble(cpus: str, memory: str = "8Gi", *, main: str = "2", main_memory: str = "2Gi") -> Pod:
    amounts = f"cpu={cpus} memory={memory}"
    return named("p", guaranteed(main, main_memory, name="main"), app(name="side"), resources=sized(amounts, amounts))


def refusal(config: dict[str, Any], old: Pod, new: Pod, *beside: Pod) -> PinnedResizeRefusal:
    """Why this resize is refused where nothing is known of the first admission."""
    managers = node(regular(16, numa=2), feature_gates=EXCLUSIVE, **config)
    with pytest.raises(PinnedResizeRefusal) as caught:
        resize_pinned(managers, admitted(managers, old, *beside), FirstGrant(), old, new)
    return caught.value


@pytest.mark.parametrize(
    ("config", "old", "new", "message", "hint"),
    [
        pytest.param(
            {}, named("p", guaranteed("4")), named("p", guaranteed("2")),
            "2 CPUs are fewer than the 4 that container", "ask for at least 4 CPUs", id="CPUs",
        ),
        pytest.param(
            BUBBLES, named("p", guaranteed("4")), named("p", guaranteed("2")),
            "2 CPUs are fewer than the 4 that container", "ask for at least 4 CPUs", id="CPUs in pod scope",
        ),
        pytest.param(
            BOTH, named("p", guaranteed("1", "4Gi")), named("p", guaranteed("1", "2Gi")),
            "2147483648 bytes of memory are fewer than the 4294967296 that container", "ask for at least 4294967296 bytes",
            id="memory",
        ),
        pytest.param(
            BUBBLES, bubble("6"), bubble("4"), "4 CPUs are fewer than the 6 that pod p", "ask for at least 6 CPUs",
            id="CPUs of a bubble",
        ),
        pytest.param(
            BUBBLES, bubble("6"), bubble("6", "6Gi"),
            "6442450944 bytes of memory are fewer than the 8589934592 that pod p", "ask for at least 8589934592 bytes",
            id="memory of a bubble",
        ),
        pytest.param(
            BUBBLES, bubble("6"), bubble("6", main="1"), '1 CPUs are fewer than the 2 that container "main"',
            "ask for at least 2 CPUs", id="CPUs of a slice",
        ),
        pytest.param(
            BUBBLES, bubble("6"), bubble("6", main_memory="1Gi"),
            '1073741824 bytes of memory are fewer than the 2147483648 that container "main"',
            "ask for at least 2147483648 bytes", id="memory of a slice",
        ),
        pytest.param(
            {**BUBBLES, "cpu_policy": "none"}, bubble("6"), replace(bubble("6"), containers=(app(name="main"), app(name="side"))),
            '0 bytes of memory are fewer than the 2147483648 that container "main"', "ask for at least 2147483648 bytes",
            id="memory of a slice that asks for none any more",
        ),
    ],
)  # fmt: skip
def test_where_nothing_is_known_of_the_first_admission_all_that_is_held_stays(
    config: dict[str, Any], old: Pod, new: Pod, message: str, hint: str
) -> None:
    refused = refusal(config, old, new)
    assert str(refused).startswith(f"Resize is infeasible: {message}")
    assert (refused.never, refused.reason, refused.hint) == (True, "below_first_admission", hint)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        pytest.param(
            bubble("6"), bubble("5500m"), "pod p holds the exclusive CPUs 1-6 and keeps them for its life", id="ends"
        ),
        pytest.param(bubble("5500m", main="1500m"), bubble("6", main="1500m"), "pod p would need 6 exclusive CPUs", id="begins"),
        pytest.param(
            bubble("6"), bubble("6", main="1500m"), 'container "main" holds the exclusive CPUs 1-2', id="ends in a slice"
        ),
        pytest.param(
            bubble("6", main="1500m"), bubble("6"), 'container "main" would need 2 exclusive CPUs', id="begins in a slice"
        ),
    ],
)  # fmt: skip
def test_exclusiveness_of_a_bubble_and_its_slices_neither_begins_nor_ends(old: Pod, new: Pod, message: str) -> None:
    refused = refusal(BUBBLES, old, new)
    assert str(refused).startswith(f"Resize is infeasible: {message}")
    assert refused.reason == "exclusiveness_changed"
    assert refused.hint


def test_a_pod_of_a_fractional_budget_holds_no_cpus_and_is_resized_like_others() -> None:
    managers = node(regular(16, numa=2), feature_gates=EXCLUSIVE, **BUBBLES)
    old, new = bubble("5500m"), bubble("6500m", main="3")
    grants = admitted(managers, old)
    assert resize_pinned(managers, grants, FirstGrant(), old, new).grants.cpu == grants.cpu


def test_a_growth_that_others_are_in_the_way_of_may_come_true_and_one_beyond_the_node_never() -> None:
    old = named("p", guaranteed("4"))
    later = refusal({}, old, named("p", guaranteed("8")), named("q", guaranteed("9")))
    assert (later.never, later.reason, later.hint) == (
        False,
        "OutOfcpu",
        "ask for fewer CPUs, or wait until other pods end",
    )
    never = refusal({}, old, named("p", guaranteed("16")), named("q", guaranteed("9")))
    assert (never.never, never.reason, never.hint) == (
        True,
        "OutOfcpu",
        "ask for fewer CPUs, or wait until other pods end",
    )


def test_a_pool_of_a_bubble_that_would_be_empty_is_never_right_and_says_what_would_be() -> None:
    refused = refusal(BUBBLES, bubble("6"), bubble("6", main="6"))
    assert (refused.never, refused.reason) == (True, EmptyPodSharedPoolError.reason)
    assert str(refused).startswith("pod rejected, sum of exclusive container cpu requests equals pod budget")
    assert refused.hint.startswith("raise the pod's cpu")


def test_a_pod_has_pins_if_it_holds_any() -> None:
    managers = node(regular(16, numa=2), feature_gates=EXCLUSIVE, **BUBBLES)
    assert not holds(fresh(managers), "p")
    for pod in (named("p", guaranteed("500m")), named("p", guaranteed("2")), bubble("4"), bubble("3500m")):
        assert holds(admitted(managers, pod), "p")
        assert not holds(admitted(managers, pod), "q")


@pytest.mark.parametrize(
    ("config", "pod"),
    [
        pytest.param(BOTH, named("p", guaranteed("2", "20Gi"), guaranteed("1", "3Gi", name="b")), id="containers"),
        pytest.param(BOTH, named("p", guaranteed("500m", "3Gi")), id="memory only"),
        pytest.param({}, named("p", guaranteed("2")), id="CPUs only"),
        pytest.param(BUBBLES, bubble("4"), id="a bubble"),
        pytest.param({"topology_policy": "best-effort", "topology_scope": "pod"}, bubble("4"), id="a bubble of CPUs"),
    ],
)
def test_alone_a_pod_has_what_it_holds_and_nobody_else_has_anything(config: dict[str, Any], pod: Pod) -> None:
    managers = node(regular(16, numa=2), feature_gates=EXCLUSIVE, **config)
    first = admitted(managers, pod)
    other = named("q", init("cpu=2 memory=1Gi", "cpu=2 memory=1Gi"), guaranteed("3", "5Gi"))
    assert alone(managers, admitted(managers, other, grants=first), "p") == first


def test_alone_a_pod_keeps_its_blocks_although_memory_is_not_managed_any_more() -> None:
    managers = node(regular(16, numa=2), feature_gates=EXCLUSIVE, **BOTH)
    held = admitted(managers, named("p", guaranteed("2", "3Gi")))
    off = replace(managers, memory=None)
    assert alone(off, replace(held, memory=replace(held.memory, machine={})), "p").memory.entries == held.memory.entries


def test_a_size_that_stays_is_not_judged_anew() -> None:
    """A set of three threads from before full-pcpus-only: the pod's memory may still grow."""
    managers = node(regular(16, smt=2), feature_gates=EXCLUSIVE)
    pod = named("p", guaranteed("3"))
    grants = admitted(managers, pod)
    strict = node(regular(16, smt=2), feature_gates=EXCLUSIVE, cpu_options={"full-pcpus-only": "true"})
    assert resize_pinned(strict, grants, FirstGrant(), pod, sizes(pod, cpu(3, "2Gi"))).grants == grants


def test_part_of_a_core_says_which_number_would_do() -> None:
    managers = node(regular(16, smt=2), feature_gates=EXCLUSIVE, cpu_options={"full-pcpus-only": "true"})
    pod = named("p", guaranteed("2"))
    with pytest.raises(PinnedResizeRefusal) as caught:
        resize_pinned(managers, admitted(managers, pod), FirstGrant(), pod, sizes(pod, cpu(3)))
    assert caught.value.hint.startswith("ask for a multiple of 2 CPUs")


def test_who_was_admitted_before_memory_was_managed_has_no_floor_of_it() -> None:
    before = node(regular(16, numa=2), feature_gates=EXCLUSIVE)
    managers = node(regular(16, numa=2), feature_gates=EXCLUSIVE, **BOTH)
    pod = named("p", guaranteed("2", "4Gi"))
    grants = replace(fresh(managers), cpu=admitted(before, pod).cpu)
    after = resize_pinned(managers, grants, FirstGrant(), pod, sizes(pod, cpu(3, "2Gi"))).grants
    assert len(after.cpu.entries["p"]["app"]) == 3
    assert after.memory == grants.memory
