"""What all of the kubelet's state files have in common: verdicts, and how checksum and content give one.

The rules, the first that holds:
1. unreadable: not exactly one JSON object, a field of the wrong JSON type, or neither policyName nor checksum in it.
2. damaged: a checksum that is there and not zero does not match (`checksum` over the inline fields in any form and type name
   the file may have been written under, `dataChecksum` over `data`, each on its own), or a CPU set cannot be parsed.
3. valid: one that matches. 4. unverified: none; old kubelets wrote zero.
What the content means does not matter here. The reader never depends on feature gates.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from agent.errors import BadInputError
from agent.formats.go_cpuset import GoCPUSetError
from agent.formats.go_dump import checksum, dump, string_checksum
from agent.formats.go_json import GoJSONError, Members, decode, encode, has_key, parse
from agent.formats.go_types import GoFields, GoStruct

MAX_BYTES = 16 << 20  # 500 pods with 10 containers each are below 1 MiB


class Verdict(StrEnum):
    """How far a file can be trusted."""

    VALID = "valid"
    UNVERIFIED = "unverified"
    DAMAGED = "damaged"
    UNREADABLE = "unreadable"


class CheckpointError(BadInputError):
    """A state file of the kubelet that cannot be used as asked."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What a state file says.

    version: as far as it can be told ("v1", "v2", ...), empty where unreadable. fields: the content in the file's own names,
    of the newest form the file holds; None for damaged and unreadable files. why: what is wrong, for people.
    inline_differs: the fields for older readers say something else than the newest form.
    """

    verdict: Verdict
    version: str = ""
    fields: Mapping[str, Any] | None = None
    why: str = ""
    inline_differs: bool = False

    def content(self) -> Mapping[str, Any]:
        """`fields`. Raises CheckpointError for a file that gives none."""
        if self.fields is None:
            raise CheckpointError(
                f"{self.verdict}: {self.why}", hint="the file is left as it is; see: checkpoint verify"
            )
        return self.fields


@dataclass(frozen=True, slots=True)
class Form:
    """One way the inline fields were once written. names: of the Go type, the one in use first."""

    version: str
    type: GoStruct
    names: tuple[str, ...]


def read_object(data: bytes) -> Members:
    """The JSON object of a state file. Raises GoJSONError (rule 1)."""
    if len(data) > MAX_BYTES:
        raise GoJSONError(f"larger than {MAX_BYTES >> 20} MiB")
    members = parse(data)
    if not (has_key(members, "policyName") or has_key(members, "checksum")):
        raise GoJSONError("neither policyName nor checksum in it")
    return members


def matching_form(forms: Iterable[Form], fields: Mapping[str, Any]) -> Form | None:
    """The first form whose checksum is the one in the file."""
    for form in forms:
        try:
            dumped = dump(form.type, {**fields, "checksum": 0})
        except GoCPUSetError:
            continue  # no kubelet could have hashed this
        if any(checksum(name, dumped) == fields["checksum"] for name in form.names):
            return form
    return None


def read_data(kind: GoStruct, text: str, empty: GoFields) -> GoFields:
    """The content of a `data` string. Raises GoJSONError."""
    try:
        return decode(kind, parse(text.encode("utf-8")), empty)
    except GoJSONError as error:
        raise GoJSONError(f"data: {error}") from error


def data_matches(fields: Mapping[str, Any]) -> bool | None:
    """Whether `dataChecksum` is that of `data`; None where there is none."""
    stored: int = fields["dataChecksum"]
    return string_checksum(fields["data"]) == stored if stored else None


def seal(form: Form, content: GoFields) -> GoFields:
    """The fields with the checksum that a kubelet of this form expects."""
    return {**content, "checksum": checksum(form.names[0], dump(form.type, {**content, "checksum": 0}))}


def with_data(kind: GoStruct, inline: GoFields) -> GoFields:
    """The inline fields once more as text, with the checksum of that, as newer kubelets read them."""
    data = encode(kind, inline)
    return {**inline, "data": data, "dataChecksum": string_checksum(data)}
