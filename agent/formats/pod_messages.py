"""core/v1 Pods as protobuf messages -> the same JSON objects that a server would send, so that `agent.formats.pods` reads both.

Only the shape is changed here: what a field means, and whether it is right, is said there. Source of the JSON forms: the Quantity
and Time of apimachinery.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta

from google.protobuf.message import DecodeError, Message

from agent.errors import BadInputError
from agent.formats.pods import JSONObject
from agent.proto.core_v1_pb2 import EphemeralContainer, Pod
from agent.proto.meta_v1_pb2 import Time
from agent.proto.quantity_pb2 import Quantity

_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - without a zone, so that the text can end with Go's "Z"


class PodMessageError(BadInputError):
    """Bytes that are not a core/v1 Pod message."""

    hint = "see that the server and pinfold are of releases that know each other"


def decode_pod_message(data: bytes) -> JSONObject:
    """A serialized core/v1 Pod as the JSON object of the same pod, of the fields that decisions need. Raises PodMessageError."""
    pod = Pod()
    try:
        pod.ParseFromString(data)
        return _members(pod)
    except (DecodeError, OverflowError) as error:
        raise PodMessageError(f"{len(data)} bytes are not a core/v1 Pod: {str(error)[:200]}") from error


def _members(message: Message) -> dict[str, object]:
    """An absent field has no member, as in JSON; zeros that JSON would write are read as absent ones are."""
    return {field.name: _plain(value) for field, value in message.ListFields()}


def _plain(value: object) -> object:
    match value:
        case Quantity():
            return value.string
        case Time():
            return _time(value.seconds)
        case EphemeralContainer():
            return _members(value.ephemeralContainerCommon)
        case Message():
            return _members(value)
        case bool() | int() | str():
            return value
        case Mapping():
            return {key: _plain(each) for key, each in value.items()}
        case _:
            return [_plain(each) for each in value]  # type: ignore[attr-defined] # a repeated field: there is no other kind


def _time(seconds: int) -> str:
    """RFC 3339 in UTC, whole seconds, as Go writes it; a zero time is none."""
    return f"{(_EPOCH + timedelta(seconds=seconds)).isoformat()}Z" if seconds else ""
