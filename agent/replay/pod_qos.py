"""Records of kind `pod_qos`: a pod's QoS class from its spec, from its status, and each container's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agent.formats.pods import decode_pod
from agent.policy.qos import container_equivalent_guaranteed, pod_qos, qos_class
from agent.replay.context import Context, JSONObject


def replay(record_input: JSONObject, context: Context) -> Mapping[str, Any]:
    """`qos`, `get_pod_qos`, `container_equivalent_guaranteed`; the gate is on where the record does not say."""
    pod = decode_pod(record_input["pod"])
    gate = bool((record_input.get("feature_gates") or {}).get("PodLevelResources", True))
    return {
        "qos": qos_class(pod, pod_level_resources=gate).value,
        "get_pod_qos": pod_qos(pod, pod_level_resources=gate).value,
        "container_equivalent_guaranteed": {
            container.name: container_equivalent_guaranteed(container) for container in pod.containers
        },
    }
