"""What `pinfold_state` says of one pod: its record as a JSON value, and back. The file around it: agent.formats.state."""

from __future__ import annotations

from dataclasses import fields as dataclass_fields
from typing import Any, TypeVar

from agent.formats.fields import FieldError, Fields
from agent.formats.grants import decode_blocks, decode_nodes, decode_set, decode_sets, encode_blocks, encode_sets
from agent.formats.pods import decode_pod, encode_pod
from agent.model.cpuset import format_list
from agent.model.pod import Pod
from agent.model.state import Affinity, FirstGrant, Mark, PodPhase, PodRecord, Resize, ResizeState, Shortfall

E = TypeVar("E", PodPhase, ResizeState)

_RECORD = frozenset(field.name for field in dataclass_fields(PodRecord)) | {"uid"}
_FIRST, _RESIZE, _SHORTFALL, _AFFINITY, _MARK = (
    frozenset(field.name for field in dataclass_fields(kind))
    for kind in (FirstGrant, Resize, Shortfall, Affinity, Mark)
)


def encode_record(uid: str, record: PodRecord) -> dict[str, Any]:
    """The record as an element of the state's `pods`; what is not set is left out."""
    resize, first = record.resize, record.first
    encoded: dict[str, Any] = {
        "uid": uid,
        "phase": record.phase,
        "admitted_seconds": record.admitted_seconds,
        "source": record.source,
        "fingerprint": record.fingerprint,
        "pod": encode_pod(record.pod),
        "first": {
            "cpus": encode_sets(first.cpus),
            "memory": {name: encode_blocks(blocks) for name, blocks in first.memory.items()},
        },
    }
    if first.pod_cpus is not None:
        encoded["first"]["pod_cpus"] = str(first.pod_cpus)
    if first.pod_memory is not None:
        encoded["first"]["pod_memory"] = encode_blocks(first.pod_memory)
    if resize != Resize():
        encoded["resize"] = _encode_resize(resize)
    if record.affinities:
        encoded["affinities"] = {name: _encode_affinity(hint) for name, hint in record.affinities.items()}
    for name, mark in (("unplaced", record.unplaced), ("degraded", record.degraded)):
        if mark is not None:
            encoded[name] = {"reason": mark.reason, "message": mark.message}
    return encoded


def _encode_resize(resize: Resize) -> dict[str, Any]:
    encoded: dict[str, Any] = {
        "state": resize.state,
        "reason": resize.reason,
        "message": resize.message,
        "since_seconds": resize.since_seconds,
        "error": resize.error,
        "generation": resize.generation,
        "shortfall": [
            {"resource": lack.resource, "amount": lack.amount, "nodes": format_list(lack.nodes)}
            for lack in resize.shortfall
        ],
    }
    for name, pod in (("desired", resize.desired), ("actual", resize.actual)):
        if pod is not None:
            encoded[name] = encode_pod(pod)
    return encoded


def _encode_affinity(hint: Affinity) -> dict[str, Any]:
    return {"nodes": None if hint.nodes is None else format_list(hint.nodes), "preferred": hint.preferred}


def decode_record(fields: Fields, *, strict: bool) -> PodRecord:
    """The other way. strict: a field that nobody knows is refused. Raises BadInputError naming the field."""
    if strict:
        fields.only(_RECORD)
    return PodRecord(
        pod=fields.value("pod", _decode_pod),
        phase=_member(PodPhase, fields, "phase"),
        admitted_seconds=fields.seconds("admitted_seconds"),
        source=fields.text("source"),
        fingerprint=fields.text("fingerprint"),
        first=fields.value("first", _decode_first),
        resize=fields.maybe("resize", _decode_resize) or Resize(),
        affinities=fields.mapping("affinities", _decode_affinity) if fields.has("affinities") else {},
        unplaced=fields.maybe("unplaced", _decode_mark),
        degraded=fields.maybe("degraded", _decode_mark),
    )


def _member(kind: type[E], fields: Fields, name: str) -> E:
    value = fields.text(name)
    try:
        return kind(value)
    except ValueError:
        raise FieldError(f"{fields.path}.{name}", f"{value!r} is none of {', '.join(kind)}") from None


def _decode_pod(value: object, path: str) -> Pod:
    if not isinstance(value, dict):
        raise FieldError(path, "an object is expected")
    return decode_pod(value)


def _decode_first(value: object, path: str) -> FirstGrant:
    fields = Fields(value, path)
    fields.only(_FIRST)
    return FirstGrant(
        cpus=fields.value("cpus", decode_sets),
        memory=fields.mapping("memory", decode_blocks),
        pod_cpus=fields.maybe("pod_cpus", decode_set),
        pod_memory=fields.maybe("pod_memory", decode_blocks),
    )


def _decode_resize(value: object, path: str) -> Resize:
    fields = Fields(value, path)
    fields.only(_RESIZE)
    return Resize(
        state=_member(ResizeState, fields, "state"),
        reason=fields.text("reason"),
        message=fields.text("message"),
        desired=fields.maybe("desired", _decode_pod),
        since_seconds=fields.seconds("since_seconds"),
        actual=fields.maybe("actual", _decode_pod),
        error=fields.text("error"),
        generation=fields.integer("generation"),
        shortfall=tuple(_decode_shortfall(value, at) for value, at in fields.items("shortfall")),
    )


def _decode_shortfall(value: object, path: str) -> Shortfall:
    fields = Fields(value, path)
    fields.only(_SHORTFALL)
    return Shortfall(fields.text("resource"), fields.integer("amount"), fields.value("nodes", decode_nodes))


def _decode_affinity(value: object, path: str) -> Affinity:
    fields = Fields(value, path)
    fields.only(_AFFINITY)
    nodes = fields.value("nodes", lambda item, at: None if item is None else decode_nodes(item, at))
    return Affinity(nodes, fields.boolean("preferred"))


def _decode_mark(value: object, path: str) -> Mark:
    fields = Fields(value, path)
    fields.only(_MARK)
    return Mark(fields.text("reason"), fields.text("message"))
