"""`cpu_manager_state` in every version: V1 (by container id), V2 (by pod), V3 (and bubbles), V4 (as a string too).

Byte by byte: checkpoints/FORMATS.md. Source: kubelet cm/cpumanager/state/checkpoint.go of 1.17 to 1.37; KEP-3570, KEP-5526.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any

from agent.formats.checkpoint import (
    CheckpointError,
    Form,
    Reading,
    Verdict,
    data_matches,
    matching_form,
    read_data,
    read_object,
    seal,
    with_data,
)
from agent.formats.go_cpuset import GoCPUSetError, parse_cpuset, parse_ranges
from agent.formats.go_json import GoJSONError, Members, decode, encode
from agent.formats.go_types import CHECKSUM, STRING, GoCPUSet, GoField, GoFields, GoMap, GoStruct
from agent.model.cpuset import CPUSet
from agent.model.state import CPUState

ContainerKey = tuple[str, str]  # pod UID, container name


class CPUVersion(StrEnum):
    """The versions that can be written. V4_INTERIM: the V4 of 1.37 before its release, with the V3 fields and checksum 0."""

    V1 = "v1"
    V2 = "v2"
    V3 = "v3"
    V4 = "v4"
    V4_INTERIM = "v4-interim"


_POLICY = (GoField("PolicyName", "policyName", STRING), GoField("DefaultCPUSet", "defaultCpuSet", STRING))
_BY_ID = GoField("Entries", "entries", GoMap("map[string]string", STRING), omit_empty=True)
_SETS = GoMap("map[string]map[string]string", GoMap("map[string]string", STRING))
_ENTRIES = GoField("Entries", "entries", _SETS, omit_empty=True)
_POD_ENTRY = GoStruct("state.PodEntry", (GoField("CPUSet", "cpuSet", GoCPUSet(), omit_empty=True),))
_POD_ENTRIES = GoField("PodEntries", "podEntries", GoMap("state.PodCPUAssignments", _POD_ENTRY), omit_empty=True)
_CHECKSUM = GoField("Checksum", "checksum", CHECKSUM)
_TAIL = (GoField("Data", "data", STRING), GoField("DataChecksum", "dataChecksum", CHECKSUM))

_NAME = "state.CPUManagerCheckpoint"
_V1 = Form("v1", GoStruct(_NAME, (*_POLICY, _BY_ID, _CHECKSUM)), (_NAME, f"{_NAME}V1"))
_V2 = Form("v2", GoStruct(_NAME, (*_POLICY, _ENTRIES, _CHECKSUM)), (_NAME, f"{_NAME}V2"))
_V3 = Form("v3", GoStruct(_NAME, (*_POLICY, _ENTRIES, _POD_ENTRIES, _CHECKSUM)), (_NAME, f"{_NAME}V3"))
_DATA = GoStruct("state.CPUManagerCheckpointData", (*_POLICY, _ENTRIES, _POD_ENTRIES))
_FILE = GoStruct(_NAME, (*_POLICY, _ENTRIES, _POD_ENTRIES, _CHECKSUM, *_TAIL))
_FILE_BY_ID = GoStruct(_NAME, (*_POLICY, _BY_ID, _POD_ENTRIES, _CHECKSUM, *_TAIL))
_V4 = GoStruct(_NAME, (*_POLICY, _ENTRIES, _CHECKSUM, *_TAIL))

_EMPTY: Mapping[str, Any] = {"policyName": "", "defaultCpuSet": "", "entries": {}, "podEntries": {}}
_EMPTY_FILE: Mapping[str, Any] = {**_EMPTY, "checksum": 0, "data": "", "dataChecksum": 0}


def read_cpu_checkpoint(data: bytes) -> Reading:
    """What a `cpu_manager_state` says and how far it can be trusted. Raises nothing: trouble is a verdict."""
    try:
        members = read_object(data)
        by_id, fields = _decode(members)
    except GoJSONError as error:
        return Reading(Verdict.UNREADABLE, why=str(error))
    forms = (_V1,) if by_id else (_V2, _V3) if fields["entries"] else (_V2, _V3, _V1)
    matched = matching_form(forms, fields) if fields["checksum"] else None
    data_ok = data_matches(fields)
    version = _version(fields, matched, by_id)
    if fields["checksum"] and matched is None:
        return Reading(Verdict.DAMAGED, version, why=f"checksum {fields['checksum']} does not match the content")
    if data_ok is False:
        return Reading(Verdict.DAMAGED, version, why=f"dataChecksum {fields['dataChecksum']} does not match data")
    try:
        newest = read_data(_DATA, fields["data"], dict(_EMPTY)) if fields["data"] else _newest(fields)
    except GoJSONError as error:
        return Reading(Verdict.UNREADABLE, why=str(error))
    try:
        for text in _sets(newest):
            parse_ranges(text)
    except GoCPUSetError as error:
        return Reading(Verdict.DAMAGED, version, why=str(error))
    verdict = Verdict.VALID if matched or data_ok else Verdict.UNVERIFIED
    return Reading(verdict, version, newest, inline_differs=_differs(newest, fields))


def _decode(members: Members) -> tuple[bool, GoFields]:
    """Whether the entries are by container id, and all fields."""
    try:
        return False, decode(_FILE, members, dict(_EMPTY_FILE))
    except GoJSONError as error:
        try:
            return True, decode(_FILE_BY_ID, members, dict(_EMPTY_FILE))
        except GoJSONError:  # of neither form: what is said is what the newer one lacks
            raise error from None


def _version(fields: Mapping[str, Any], matched: Form | None, by_id: bool) -> str:
    if fields["data"]:
        return "v4"
    if by_id:
        return "v1"
    if fields["podEntries"]:
        return "v3"
    return matched.version if matched else "v2"


def _newest(fields: Mapping[str, Any]) -> GoFields:
    return {name: fields[name] for name in _EMPTY}


def _differs(newest: Mapping[str, Any], fields: Mapping[str, Any]) -> bool:
    """Whether older readers of a V4 file see another content, apart from the pods they know nothing of."""
    return any((newest[name] or None) != (fields[name] or None) for name in ("policyName", "defaultCpuSet", "entries"))


def _sets(fields: Mapping[str, Any]) -> Iterator[str]:
    yield fields["defaultCpuSet"]
    for entry in (fields["entries"] or {}).values():
        yield from (entry,) if isinstance(entry, str) else (entry or {}).values()
    for pod in (fields["podEntries"] or {}).values():
        yield pod["cpuSet"]


def cpu_state(reading: Reading, containers: Mapping[str, ContainerKey] | None = None) -> CPUState:
    """The content as a value. containers: container id -> key, from the runtime; needed for V1.

    Raises CheckpointError where there is no content, an id is unknown or a set names CPUs that no machine has.
    """
    fields = reading.content()
    entries: dict[str, dict[str, CPUSet]] = {}
    try:
        for name, entry in (fields["entries"] or {}).items():
            if isinstance(entry, str):
                uid, container = _key_of(name, containers or {})
                entries.setdefault(uid, {})[container] = parse_cpuset(entry)
            else:
                entries[name] = {container: parse_cpuset(text) for container, text in (entry or {}).items()}
        pods = {uid: parse_cpuset(pod["cpuSet"]) for uid, pod in (fields["podEntries"] or {}).items()}
        return CPUState(parse_cpuset(fields["defaultCpuSet"]), entries, pods)
    except GoCPUSetError as error:
        raise CheckpointError(str(error)) from error


def _key_of(container_id: str, containers: Mapping[str, ContainerKey]) -> ContainerKey:
    try:
        return containers[container_id]
    except KeyError:
        raise CheckpointError(
            f"container {container_id} of this V1 file is not among the runtime's containers",
            hint="give the runtime's list of containers: a V1 file names containers only by their ids",
        ) from None


def write_cpu_checkpoint(
    policy: str, state: CPUState, version: CPUVersion, ids: Mapping[ContainerKey, str] | None = None
) -> bytes:
    """The file that a kubelet of this version would have written, checksum included.

    policy: "static" or "none". ids: container key -> id, for V1 only. Raises CheckpointError for a container without id.
    Bubbles exist from V3 on; before, they are left out.
    """
    content: GoFields = {
        "policyName": policy,
        "defaultCpuSet": str(state.default),
        "entries": {uid: {name: str(cpus) for name, cpus in sets.items()} for uid, sets in state.entries.items()},
        "podEntries": {uid: {"cpuSet": str(cpus)} for uid, cpus in state.pod_entries.items()},
    }
    match version:
        case CPUVersion.V1:
            return encode(_V1.type, seal(_V1, {**content, "entries": _by_id(content["entries"], ids or {})})).encode()
        case CPUVersion.V2:
            return encode(_V2.type, seal(_V2, content)).encode()
        case CPUVersion.V3:
            return encode(_V3.type, seal(_V3, content)).encode()
        case CPUVersion.V4:
            return encode(_V4, with_data(_DATA, seal(_V2, content))).encode()
        case CPUVersion.V4_INTERIM:
            return encode(_FILE, with_data(_DATA, {**content, "checksum": 0})).encode()


def _by_id(entries: Mapping[str, Mapping[str, str]], ids: Mapping[ContainerKey, str]) -> dict[str, str]:
    try:
        return {ids[uid, name]: text for uid, sets in entries.items() for name, text in sets.items()}
    except KeyError as error:
        raise CheckpointError(f"container {'/'.join(error.args[0])} has no id, which V1 needs") from None
