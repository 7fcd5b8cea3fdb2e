"""What every JSON answer about Kubernetes objects is read by."""

from __future__ import annotations

import json
from collections.abc import Mapping

from agent.kube.http_access import AccessError

MAX_TEXT = 8192  # characters; a continue token has some hundred


def decode_json(data: bytes, where: str) -> Mapping[str, object]:
    """A JSON object. Raises AccessError."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise AccessError(f"{where}: not JSON: {str(error)[:100]}") from error
    if not isinstance(value, dict):
        raise AccessError(f"{where}: not a JSON object")
    return value


def uid_of(obj: object) -> str:
    """metadata.uid as the server gives it; "" where there is none."""
    return metadata_text(obj, "uid")


def metadata_text(obj: object, key: str) -> str:
    """A text in an object's metadata; "" where there is none, or one that is longer than any real one."""
    metadata = obj.get("metadata") if isinstance(obj, dict) else None
    found = metadata.get(key) if isinstance(metadata, dict) else None
    return found if isinstance(found, str) and len(found) <= MAX_TEXT else ""
