"""`pinfold_state`: two lines of JSON. The first is the header, the second the payload that the header vouches for.

    {"schema":3,"bytes":<length of the payload>,"sha256":"<of the payload, as stored>"}
    {"schema":3,"epoch":...,"generation":...,...}

The header keeps this form in every schema to come, so that any program can tell a torn file from a newer one. The schema
number stands in both lines: a flipped digit in the header is damage, not a newer file. Any change of the payload's fields is
a new schema with a migration from the one before, so a field that a schema does not know can only come from a hand: the file is
then refused, not quietly thinned. checkpoints/pinfold_state/ has a file of every schema.
Sizes are bytes, sets in kernel list format, times Unix seconds; docs/state.md lists the fields.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import fields as dataclass_fields
from typing import Any

from agent.errors import AgentError, BadInputError
from agent.formats.fields import FieldError, Fields, integer, mapping, numbered, text
from agent.formats.grants import decode_grants, decode_set, encode_grants
from agent.formats.pod_record import decode_record, encode_record
from agent.model.state import Epoch, PodRecord, PolicyInForce, State

SCHEMA = 3
MAX_BYTES = 64 << 20  # 1,000 pods with every field set are below 8 MiB
_HEADER = re.compile(rb'\{"schema":([1-9]\d{0,8}),"bytes":(\d{1,9}),"sha256":"([0-9a-f]{64})"\}', re.ASCII)


class DamagedStateError(AgentError):
    """The bytes are not what was written: torn, tampered with, or no state file at all."""

    hint = "the agent moves it aside and goes on with the previous generation; nothing is deleted"


class UnreadableStateError(AgentError):
    """The bytes are intact, but they say something this schema does not allow."""

    hint = "the agent moves it aside and goes on with the previous generation; nothing is deleted"


class NewerStateError(AgentError):
    """A newer program wrote this file. `state`: what this program can read of it, None where it cannot."""

    hint = "install the pinfold that wrote it, or go back: pinfold checkpoint export with that version, import with this one"

    def __init__(self, schema: int, state: State | None) -> None:
        super().__init__(f"written in schema {schema}, this program knows schema {SCHEMA}")
        self.schema = schema
        self.state = state


class StateEncoder:
    """Writes states. Keeps the text of every pod record it has written, since most pods do not change from one to the next."""

    def __init__(self) -> None:
        self._texts: dict[str, tuple[PodRecord, str]] = {}

    def encode(self, state: State) -> bytes:
        """The whole file."""
        payload = self._payload(state).encode("ascii")
        digest = hashlib.sha256(payload).hexdigest()
        return b'{"schema":%d,"bytes":%d,"sha256":"%s"}\n%s\n' % (SCHEMA, len(payload), digest.encode(), payload)

    def _payload(self, state: State) -> str:
        head = {
            "schema": SCHEMA,
            "epoch": str(state.epoch),
            "generation": state.generation,
            "boot_id": state.boot_id,
            "policy": _encode_policy(state.policy),
            **encode_grants(state.grants),
            "manifest_uids": dict(state.manifest_uids),
        }
        texts: dict[str, tuple[PodRecord, str]] = {}
        for uid, record in state.pods.items():
            known = self._texts.get(uid)
            texts[uid] = known if known and known[0] is record else (record, _dumps(encode_record(uid, record)))
        self._texts = texts
        return f'{_dumps(head)[:-1]},"pods":[{",".join(line for _, line in texts.values())}]}}'


def encode(state: State) -> bytes:
    """The whole file of a state."""
    return StateEncoder().encode(state)


def decode(data: bytes) -> State:
    """The state in a file.

    Raises DamagedStateError, UnreadableStateError (naming the field) and NewerStateError.
    """
    schema, payload = _verify(data)
    if schema > SCHEMA:
        raise NewerStateError(schema, _readable_part(payload))
    try:
        for older in range(schema, SCHEMA):
            _MIGRATIONS[older](payload)
        return _decode_state(payload, strict=True)
    except BadInputError as error:
        raise UnreadableStateError(f"intact, but not of schema {schema}: {error}") from error


def _verify(data: bytes) -> tuple[int, Any]:
    """The schema and the parsed payload of an intact file; an empty payload for a newer one that is not."""
    if len(data) > MAX_BYTES:
        raise DamagedStateError(f"larger than {MAX_BYTES >> 20} MiB")
    line, _, rest = data.partition(b"\n")
    header = _HEADER.fullmatch(line)
    if header is None:
        raise DamagedStateError("does not begin with the header of a state file")
    schema, length, digest = int(header[1]), int(header[2]), header[3].decode()
    payload, end = rest[:length], rest[length:]
    intact = len(payload) == length and end == b"\n" and hashlib.sha256(payload).hexdigest() == digest
    if not intact and schema > SCHEMA:
        return schema, {}  # whatever is wrong with it, it is not ours to judge or to move
    if not intact:
        whole = len(payload) == length and end == b"\n"
        why = "the payload does not match the header's SHA-256" if whole else "cut off, or longer than the header says"
        raise DamagedStateError(why)
    try:
        parsed = json.loads(payload)
    except (ValueError, RecursionError) as error:
        raise UnreadableStateError(f"intact, but not JSON: {error}") from error
    if isinstance(parsed, dict) and parsed.get("schema") != schema:
        raise DamagedStateError(f"header says schema {schema}, payload {parsed.get('schema')}")
    return schema, parsed


def _from_1_to_2(payload: object) -> None:
    """Schema 2 knows from which text of its manifest a pod came; "" is followed as a source without manifests is."""
    for value, _ in Fields(payload, "").items("pods"):
        if isinstance(value, dict):
            value.setdefault("fingerprint", "")


def _from_2_to_3(payload: object) -> None:
    """Schema 3 knows what is in force beside what is allocated; a resize of schema 2 had never begun."""
    for value, _ in Fields(payload, "").items("pods"):
        if isinstance(value, dict) and isinstance(resize := value.get("resize"), dict):
            resize.setdefault("error", "")
            resize.setdefault("generation", 2)
            resize.setdefault("shortfall", [])


_MIGRATIONS: Mapping[int, Callable[[object], None]] = {1: _from_1_to_2, 2: _from_2_to_3}


def _readable_part(payload: object) -> State | None:
    """What this program understands of a newer payload: unknown fields of the state, its policy and its pods are left out,
    anything else that is unknown gives None."""
    try:
        return _decode_state(payload, strict=False)
    except BadInputError:
        return None


def _dumps(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


_POLICY = frozenset(field.name for field in dataclass_fields(PolicyInForce))
_STATE = frozenset(
    {"schema", "epoch", "generation", "boot_id", "policy", "cpu", "memory", "manifest_uids", "pods"},
)


def _encode_policy(policy: PolicyInForce) -> dict[str, Any]:
    return {
        "cpu_policy": policy.cpu_policy,
        "cpu_options": dict(policy.cpu_options),
        "online": str(policy.online),
        "reserved_cpus": str(policy.reserved_cpus),
        "memory_policy": policy.memory_policy,
        "reserved_memory": {str(node): dict(amounts) for node, amounts in policy.reserved_memory.items()},
        "topology_policy": policy.topology_policy,
        "topology_scope": policy.topology_scope,
        "topology_options": dict(policy.topology_options),
    }


def _decode_state(payload: object, *, strict: bool) -> State:
    top = Fields(payload, "")
    if strict:
        top.only(_STATE)
    pods: dict[str, PodRecord] = {}
    for value, path in top.items("pods"):
        fields = Fields(value, path)
        uid = fields.text("uid")
        if uid in pods:
            raise FieldError(f"{path}.uid", f"{uid} is there twice")
        pods[uid] = decode_record(fields, strict=strict)
    return State(
        epoch=top.value("epoch", _decode_epoch),
        generation=top.integer("generation"),
        boot_id=top.text("boot_id"),
        policy=_decode_policy(top.value("policy", Fields), strict=strict),
        grants=decode_grants(top.value("cpu", _itself), top.value("memory", _itself)),
        pods=pods,
        manifest_uids=top.mapping("manifest_uids", text),
    )


def _itself(value: object, path: str) -> object:
    return value


def _decode_epoch(value: object, path: str) -> Epoch:
    return Epoch.parse(text(value, path))


def _decode_policy(fields: Fields, *, strict: bool) -> PolicyInForce:
    if strict:
        fields.only(_POLICY)
    return PolicyInForce(
        cpu_policy=fields.text("cpu_policy"),
        cpu_options=fields.mapping("cpu_options", text),
        online=fields.value("online", decode_set),
        reserved_cpus=fields.value("reserved_cpus", decode_set),
        memory_policy=fields.text("memory_policy"),
        reserved_memory=fields.value("reserved_memory", lambda value, path: numbered(value, path, _decode_amounts)),
        topology_policy=fields.text("topology_policy"),
        topology_scope=fields.text("topology_scope"),
        topology_options=fields.mapping("topology_options", text),
    )


def _decode_amounts(value: object, path: str) -> Mapping[str, int]:
    return mapping(value, path, integer)
