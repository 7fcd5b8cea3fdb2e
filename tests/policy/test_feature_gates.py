"""Which gates are on: defaults of a release, gates by name, and the two names that stand for every gate of a stage."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields

import pytest

from agent.policy.feature_gates import FeatureGateError, FeatureGates, known_gates

DEFAULTS = FeatureGates()


def changed(gates: Mapping[str, bool], version: str = "1.36") -> set[str]:
    """The fields that differ from the defaults of 1.36."""
    found = FeatureGates.of(gates, kubelet_version=version)
    return {each.name for each in fields(found) if getattr(found, each.name) != getattr(DEFAULTS, each.name)}


@pytest.mark.parametrize(
    ("gates", "version", "differs"),
    [
        ({}, "1.36", set()),
        ({}, "1.37", {"pod_level_resource_managers"}),
        ({"PodLevelResourceManagers": True}, "1.36", {"pod_level_resource_managers"}),
        ({"Unheard": True}, "1.36", set()),
        (
            {"AllAlpha": True},
            "1.36",
            {
                "cpu_manager_policy_alpha_options",
                "in_place_pod_vertical_scaling_exclusive_cpus",
                "in_place_pod_vertical_scaling_exclusive_memory",
                "pod_level_resource_managers",
            },
        ),
        ({"AllAlpha": False}, "1.36", set()),
        ({"AllAlpha": False}, "1.37", {"pod_level_resource_managers"}),
        (
            {"AllBeta": False},
            "1.36",
            {
                "pod_level_resources",
                "cpu_manager_policy_beta_options",
                "in_place_pod_level_resources_vertical_scaling",
            },
        ),
        (
            {"AllBeta": False, "PodLevelResources": True},
            "1.37",
            {"cpu_manager_policy_beta_options", "in_place_pod_level_resources_vertical_scaling"},
        ),
    ],
)
def test_a_gate_that_is_named_wins_over_its_stage_and_that_over_the_default(
    gates: Mapping[str, bool], version: str, differs: set[str]
) -> None:
    assert changed(gates, version) == differs


def test_pod_level_managers_without_what_they_depend_on_are_refused_also_where_a_stage_says_so() -> None:
    with pytest.raises(FeatureGateError, match="depends on features that are disabled"):
        FeatureGates.of({"AllBeta": False, "PodLevelResourceManagers": True})


def test_every_gate_is_known_by_name() -> None:
    assert len(known_gates()) == len(fields(DEFAULTS)) + 2
