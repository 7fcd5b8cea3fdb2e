"""Typed access to a Kubernetes object, decoded from JSON or YAML: every wrong type is an error that names the field.

Kubernetes' rules: an absent field and a null one are the same, unknown fields are passed over. Sizes are bounded, as the objects
come from outside. Paths are written as Kubernetes writes them: spec.containers[0].resources.requests[cpu]. Our own files, where
every field is known and required, are read with `agent.formats.fields`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from agent.errors import BadInputError

_KINDS = (
    (bool, "a boolean"),
    (str, "a string"),
    (int, "an integer"),
    (float, "a number"),
    (list, "a list"),
    (dict, "an object"),
)


class KubeFieldError(BadInputError):
    """A field of a document is wrong: `path` names it, `why` says what is the matter."""

    hint = "correct that field"

    def __init__(self, path: str, why: str, *, hint: str | None = None) -> None:
        super().__init__(f"{path}: {why}" if path else why, hint=hint)
        self.path = path
        self.why = why


@dataclass(slots=True)  # not frozen: a pod takes a hundred of them, and a frozen one costs three times as much to make
class KubeField:
    """A value in a document and the path that leads to it. An absent field and a null one are the same, as in Go."""

    value: object
    path: str = ""

    def error(self, why: str, *, hint: str | None = None) -> KubeFieldError:
        """An error about this field."""
        return KubeFieldError(self.path, why, hint=hint)

    @property
    def present(self) -> bool:
        """Whether the document has this field, null not counted."""
        return self.value is not None

    def get(self, key: str) -> KubeField:
        """The member `key` of an object. An absent object has only absent members."""
        value = self._object().get(key)
        return KubeField(value, f"{self.path}.{key}" if self.path else key)

    def entries(self, limit: int) -> Iterator[tuple[str, KubeField]]:
        """The entries of an object whose keys are data, such as labels; at most `limit`."""
        members = self._object()
        if len(members) > limit:
            raise self.error(f"has {len(members)} entries, at most {limit} are allowed")
        for key, value in members.items():
            if not isinstance(key, str):
                raise self.error(f"the key {key!r} is not a string")
            yield key, KubeField(value, f"{self.path}[{key[:80]}]")

    def elements(self, limit: int) -> Iterator[KubeField]:
        """The elements of a list, an absent one has none; at most `limit`."""
        if self.value is None:
            return
        if not isinstance(self.value, list | tuple):
            raise self._wrong_type("a list")
        if len(self.value) > limit:
            raise self.error(f"has {len(self.value)} elements, at most {limit} are allowed")
        for index, value in enumerate(self.value):
            yield KubeField(value, f"{self.path}[{index}]")

    def text(self, limit: int) -> str:
        """A string of at most `limit` characters, "" where absent."""
        if self.value is None:
            return ""
        if not isinstance(self.value, str):
            raise self._wrong_type("a string")
        if len(self.value) > limit:
            raise self.error(f"has {len(self.value)} characters, at most {limit} are allowed")
        return self.value

    def integer(self) -> int | None:
        """An integer of at most 32 bits, None where absent."""
        if self.value is None:
            return None
        if isinstance(self.value, bool) or not isinstance(self.value, int):
            raise self._wrong_type("an integer")
        if not -(2**31) <= self.value < 2**31:
            raise self.error("is not a 32-bit integer")
        return self.value

    def boolean(self) -> bool | None:
        """A boolean, None where absent."""
        if self.value is not None and not isinstance(self.value, bool):
            raise self._wrong_type("a boolean")
        return self.value

    def _object(self) -> Mapping[str, object]:
        if self.value is None:
            return {}
        if not isinstance(self.value, dict):
            raise self._wrong_type("an object")
        return self.value

    def _wrong_type(self, wanted: str) -> KubeFieldError:
        found = next((name for kind, name in _KINDS if isinstance(self.value, kind)), type(self.value).__name__)
        return self.error(f"must be {wanted}, not {found}")
