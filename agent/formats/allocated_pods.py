"""`allocated_pods_state` and `actuated_pods_state`: resources of running pods as allocated and as last actuated (KEP-1287).

One form, {"data": "<JSON>", "checksum": n}; the checksum is that of the Go string. Kept is what a resize can change: cpu,
memory and what else a container's resources list. Source: kubelet allocation/state/checkpoint.go.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from agent.errors import BadInputError
from agent.formats.checkpoint import MAX_BYTES, CheckpointError, Reading, Verdict
from agent.formats.go_dump import string_checksum
from agent.formats.go_json import GoJSONError, decode, encode, parse
from agent.formats.go_types import CHECKSUM, STRING, GoField, GoFields, GoMap, GoPointer, GoString, GoStruct
from agent.model.pod import ResourceList, ResourceRequirements
from agent.model.quantity import Quantity


@dataclass(frozen=True, slots=True)
class PodAllocation:
    """containers: by name, init containers included. pod: pod-level resources, None where the pod has none."""

    containers: Mapping[str, ResourceRequirements] = field(default_factory=dict)
    pod: ResourceRequirements | None = None


_LIST = GoMap("v1.ResourceList", GoString("resource.Quantity"))
_REQUIREMENTS = GoStruct(
    "v1.ResourceRequirements",
    (GoField("Limits", "limits", _LIST, omit_empty=True), GoField("Requests", "requests", _LIST, omit_empty=True)),
)
_POD = GoStruct(
    "state.PodResourceInfo",
    (
        GoField("ContainerResources", "ContainerResources", GoMap("map[string]v1.ResourceRequirements", _REQUIREMENTS)),
        GoField("PodLevelResources", "PodLevelResources", GoPointer(_REQUIREMENTS)),
    ),
)
_DATA = GoStruct(
    "state.PodResourceCheckpointInfo",
    (GoField("Entries", "entries", GoMap("state.PodResourceInfoMap", _POD), omit_empty=True),),
)
_FILE = GoStruct("state.Checkpoint", (GoField("Data", "data", STRING), GoField("Checksum", "checksum", CHECKSUM)))


def read_allocated_pods(data: bytes) -> Reading:
    """What the file says and how far it can be trusted, by the rules of the other state files. Raises nothing."""
    try:
        if len(data) > MAX_BYTES:
            raise GoJSONError(f"larger than {MAX_BYTES >> 20} MiB")
        fields = decode(_FILE, parse(data), {"data": "", "checksum": 0})
        if not fields["data"]:
            raise GoJSONError("no data in it")
        if fields["checksum"] and string_checksum(fields["data"]) != fields["checksum"]:
            return Reading(Verdict.DAMAGED, "v1", why=f"checksum {fields['checksum']} does not match data")
        content = decode(_DATA, parse(fields["data"].encode("utf-8")), {"entries": {}})
    except GoJSONError as error:
        return Reading(Verdict.UNREADABLE, why=str(error))
    return Reading(Verdict.VALID if fields["checksum"] else Verdict.UNVERIFIED, "v1", content)


def allocations(reading: Reading) -> dict[str, PodAllocation]:
    """pod UID -> what is allocated. Raises CheckpointError where there is no content or an amount is no quantity."""
    found: dict[str, PodAllocation] = {}
    for uid, pod in (reading.content()["entries"] or {}).items():
        try:
            containers = {name: _requirements(amounts) for name, amounts in (pod["ContainerResources"] or {}).items()}
            whole = pod["PodLevelResources"]
            found[uid] = PodAllocation(containers, None if whole is None else _requirements(whole))
        except BadInputError as error:
            raise CheckpointError(f"pod {uid}: {error}") from error
    return found


def _requirements(fields: Mapping[str, Any]) -> ResourceRequirements:
    return ResourceRequirements(requests=_amounts(fields["requests"]), limits=_amounts(fields["limits"]))


def _amounts(texts: Mapping[str, str] | None) -> ResourceList:
    return {name: Quantity.parse(text) for name, text in (texts or {}).items()}


def write_allocated_pods(pods: Mapping[str, PodAllocation]) -> bytes:
    """The file, checksum included. Amounts are written in canonical form."""
    entries = {
        uid: {
            "ContainerResources": {name: _fields(each) for name, each in pod.containers.items()},
            "PodLevelResources": None if pod.pod is None else _fields(pod.pod),
        }
        for uid, pod in pods.items()
    }
    data = encode(_DATA, {"entries": entries})
    return encode(_FILE, {"data": data, "checksum": string_checksum(data)}).encode()


def _fields(resources: ResourceRequirements) -> GoFields:
    return {
        "limits": {name: str(amount) for name, amount in resources.limits.items()},
        "requests": {name: str(amount) for name, amount in resources.requests.items()},
    }
