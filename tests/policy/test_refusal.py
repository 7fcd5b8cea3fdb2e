"""Refusals: the reason that a pod's status shows, the kubelet's words, a hint and the rule."""

from __future__ import annotations

import pytest

from agent.model.cpuset import CPUSet
from agent.policy.refusal import (
    AllocationError,
    EmptyPodSharedPoolError,
    Refusal,
    SMTAlignmentError,
    TopologyAffinityError,
)


@pytest.mark.parametrize(
    ("refusal", "reason", "message"),
    [
        (
            SMTAlignmentError.not_multiple(3, 2),
            "SMTAlignmentError",
            "SMT Alignment Error: requested 3 cpus not multiple cpus per core = 2",
        ),
        (
            SMTAlignmentError.not_enough(5, 6, 2),
            "SMTAlignmentError",
            (
                "SMT Alignment Error: not enough free physical CPUs: available physical CPUs = 5, requested CPUs = 6, "
                "CPUs per core = 2"
            ),
        ),
        (
            SMTAlignmentError.uneven(CPUSet.parse("4"), 3),
            "SMTAlignmentError",
            "SMT Alignment Error: requested 3 cpus cannot be made of whole cores, CPUs 4 would share a core",
        ),
        (
            EmptyPodSharedPoolError.long_running("cpu"),
            "EmptyPodSharedPoolError",
            "pod rejected, sum of exclusive container cpu requests equals pod budget, leaving no cpus for shared containers",
        ),
        (
            EmptyPodSharedPoolError.init("memory"),
            "EmptyPodSharedPoolError",
            "pod rejected, pod has shared init containers but no memory available for them",
        ),
        (
            AllocationError("too little", hint="ask for less", note=": of everything"),
            "UnexpectedAdmissionError",
            "Allocate failed due to too little, which is unexpected: of everything",
        ),
    ],
)
def test_a_refusal_has_the_kubelets_reason_and_words(refusal: Refusal, reason: str, message: str) -> None:
    assert (refusal.reason, str(refusal)) == (reason, message)
    assert refusal.hint
    assert refusal.rule
    assert refusal.exit_status == 1


def test_the_hint_gives_a_number_that_would_fit() -> None:
    assert "4 would fit" in SMTAlignmentError.not_multiple(3, 2).hint
    assert "at most 4 CPUs" in SMTAlignmentError.not_enough(5, 6, 2).hint


def test_a_rule_of_its_own_wins_over_the_classs() -> None:
    assert TopologyAffinityError("no", rule="because").rule == "because"
    assert AllocationError("no", rule="because").rule == "because"
    assert AllocationError("no").rule == AllocationError.rule
