"""Records of kind `effective_requests`: what a pod asks for under several sizing options."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agent.formats.kube_object import KubeField
from agent.formats.pods import decode_pod
from agent.formats.resource_lists import decode_resources
from agent.model.pod import Pod, ResourceList
from agent.model.resources import CPU
from agent.policy.pod_resources import (
    SizingOptions,
    aggregate_container_limits,
    aggregate_container_requests,
    pod_level_limits_set,
    pod_level_requests_set,
    pod_level_resources_set,
    pod_limits,
    pod_requests,
    resize_deferred,
    resize_infeasible,
)
from agent.replay.context import Context, JSONObject

_SWITCHES = (
    "use_status_resources",
    "skip_pod_level_resources",
    "skip_container_level_resources",
    "exclude_overhead",
    "in_place_pod_level_resources",
)


def replay(record_input: JSONObject, context: Context) -> Mapping[str, Any]:
    """`results`, parallel to the record's `options`, and what holds for the pod under any of them."""
    pod = decode_pod(record_input["pod"])
    return {
        "results": [_result(pod, _options(KubeField(each))) for each in record_input.get("options") or ()],
        "resize_infeasible": resize_infeasible(pod),
        "resize_deferred": resize_deferred(pod),
        "pod_level_resources_set": pod_level_resources_set(pod),
        "pod_level_requests_set": pod_level_requests_set(pod),
        "pod_level_limits_set": pod_level_limits_set(pod),
    }


def _options(options: KubeField) -> SizingOptions:
    return SizingOptions(
        **{name: bool(options.get(name).boolean()) for name in _SWITCHES},
        non_missing_container_requests=decode_resources(options.get("non_missing_container_requests")),
    )


def _result(pod: Pod, options: SizingOptions) -> Mapping[str, Any]:
    return {
        "aggregate_container_requests": _amounts(aggregate_container_requests(pod, options)),
        "aggregate_container_limits": _amounts(aggregate_container_limits(pod, options)),
        "pod_requests": _amounts(pod_requests(pod, options)),
        "pod_limits": _amounts(pod_limits(pod, options)),
    }


def _amounts(resources: ResourceList) -> Mapping[str, Any]:
    return {
        name: {"q": str(amount), **({"milli": amount.milli_value()} if name == CPU else {"value": amount.value()})}
        for name, amount in resources.items()
    }
