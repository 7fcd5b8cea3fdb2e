"""The kubelet's feature gates that change a decision, under their own names.

TopologyManagerPolicyAlphaOptions and TopologyManagerPolicyBetaOptions are none of them: every topology option of 1.36 is stable.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

from agent.errors import BadInputError

_NAMES: Mapping[str, str] = {
    "pod_level_resources": "PodLevelResources",
    "pod_level_resource_managers": "PodLevelResourceManagers",
    "cpu_manager_policy_alpha_options": "CPUManagerPolicyAlphaOptions",
    "cpu_manager_policy_beta_options": "CPUManagerPolicyBetaOptions",
    "disable_cpu_quota_with_exclusive_cpus": "DisableCPUQuotaWithExclusiveCPUs",
    "in_place_pod_vertical_scaling": "InPlacePodVerticalScaling",
    "in_place_pod_level_resources_vertical_scaling": "InPlacePodLevelResourcesVerticalScaling",
    "in_place_pod_vertical_scaling_exclusive_cpus": "InPlacePodVerticalScalingExclusiveCPUs",
    "in_place_pod_vertical_scaling_exclusive_memory": "InPlacePodVerticalScalingExclusiveMemory",
}


_MANAGERS = _NAMES["pod_level_resource_managers"]
_ALPHA = frozenset(
    {
        "CPUManagerPolicyAlphaOptions",
        "InPlacePodVerticalScalingExclusiveCPUs",
        "InPlacePodVerticalScalingExclusiveMemory",
    }
)
_BETA = frozenset(
    {
        "PodLevelResources",
        "CPUManagerPolicyBetaOptions",
        "InPlacePodLevelResourcesVerticalScaling",
    }
)
ALL_ALPHA, ALL_BETA = "AllAlpha", "AllBeta"


def known_gates() -> frozenset[str]:
    """The names that decide something here, and the two that stand for every gate of a stage."""
    return frozenset({*_NAMES.values(), ALL_ALPHA, ALL_BETA})


class FeatureGateError(BadInputError):
    """The gates contradict each other."""


@dataclass(frozen=True, slots=True)
class FeatureGates:
    """The gates that are on. Defaults are those of Kubernetes 1.36."""

    pod_level_resources: bool = True
    pod_level_resource_managers: bool = False
    cpu_manager_policy_alpha_options: bool = False
    cpu_manager_policy_beta_options: bool = True
    disable_cpu_quota_with_exclusive_cpus: bool = True
    in_place_pod_vertical_scaling: bool = True
    in_place_pod_level_resources_vertical_scaling: bool = True
    in_place_pod_vertical_scaling_exclusive_cpus: bool = False
    in_place_pod_vertical_scaling_exclusive_memory: bool = False

    @classmethod
    def of(cls, gates: Mapping[str, bool], *, kubelet_version: str = "1.36") -> FeatureGates:
        """The gates of a kubelet release with these overrides, by their Kubernetes names.

        AllAlpha and AllBeta stand for every gate of that stage that is not named itself (component-base/featuregate). Names that
        decide nothing here are ignored, as a kubelet's configuration holds many. Raises FeatureGateError where the pod-level
        managers are on without pod-level resources (KEP-5526 depends on KEP-2837).
        """
        alpha = _ALPHA | {_MANAGERS} if kubelet_version == "1.36" else _ALPHA
        beta = _BETA | {_MANAGERS} if kubelet_version != "1.36" else _BETA
        stages = {
            name: gates[each]
            for each, stage in ((ALL_ALPHA, alpha), (ALL_BETA, beta))
            if each in gates
            for name in stage
        }
        gates = {**stages, **gates}
        values = {f.name: gates[_NAMES[f.name]] for f in fields(cls) if _NAMES[f.name] in gates}
        if kubelet_version == "1.37":
            values.setdefault("pod_level_resource_managers", True)
        result = cls(**values)
        if result.pod_level_resource_managers and not result.pod_level_resources:
            raise FeatureGateError(
                "PodLevelResourceManagers is enabled, but depends on features that are disabled: [PodLevelResources]",
                hint="enable PodLevelResources in featureGates or disable PodLevelResourceManagers",
            )
        return result
