"""A decoded JSON object read field by field: every type is checked, every error names the field by its path."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Set
from typing import Any, TypeVar

from agent.errors import BadInputError

T = TypeVar("T")


class FieldError(BadInputError):
    """A JSON value that is absent, unknown or of the wrong type."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{path}: {problem}")


class Fields:
    """One JSON object whose fields are taken by name.

    Every accessor raises FieldError where the field is absent or of another type. Booleans are not numbers here.
    """

    def __init__(self, value: object, path: str) -> None:
        if not isinstance(value, dict):
            raise FieldError(path, f"an object is expected, not {type(value).__name__}")
        self.path = path
        self._value: Mapping[str, Any] = value

    def _take(self, name: str) -> Any:
        try:
            return self._value[name]
        except KeyError:
            raise FieldError(self._at(name), "is missing") from None

    def _at(self, name: str) -> str:
        return f"{self.path}.{name}" if self.path else name

    def only(self, known: Set[str]) -> None:
        """Refuse fields beyond these."""
        for name in self._value:
            if name not in known:
                raise FieldError(self._at(name), "is not a field of this schema")

    def has(self, name: str) -> bool:
        return name in self._value

    def text(self, name: str) -> str:
        return text(self._take(name), self._at(name))

    def integer(self, name: str, low: int = 0) -> int:
        return integer(self._take(name), self._at(name), low)

    def seconds(self, name: str) -> float:
        value = self._take(name)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise FieldError(self._at(name), "a number is expected")
        return float(value)

    def boolean(self, name: str) -> bool:
        value = self._take(name)
        if not isinstance(value, bool):
            raise FieldError(self._at(name), "true or false is expected")
        return value

    def items(self, name: str) -> Iterator[tuple[object, str]]:
        """The items of a list, each with its path."""
        value, path = self._take(name), self._at(name)
        if not isinstance(value, list):
            raise FieldError(path, "a list is expected")
        return ((item, f"{path}[{index}]") for index, item in enumerate(value))

    def mapping(self, name: str, decode: Callable[[object, str], T]) -> dict[str, T]:
        """An object whose keys are data."""
        return mapping(self._take(name), self._at(name), decode)

    def value(self, name: str, decode: Callable[[object, str], T]) -> T:
        """A field decoded by a function of (value, path)."""
        return decode(self._take(name), self._at(name))

    def maybe(self, name: str, decode: Callable[[object, str], T]) -> T | None:
        """Like `value`; None where the field is absent."""
        return self.value(name, decode) if self.has(name) else None


def text(value: object, path: str) -> str:
    """A JSON string. Raises FieldError for anything else."""
    if not isinstance(value, str):
        raise FieldError(path, "a string is expected")
    return value


def integer(value: object, path: str, low: int = 0) -> int:
    """A JSON integer of at least `low`. Raises FieldError for anything else."""
    if isinstance(value, bool) or not isinstance(value, int) or value < low:
        raise FieldError(path, f"an integer of {low} or more is expected")
    return value


def mapping(value: object, path: str, decode: Callable[[object, str], T]) -> dict[str, T]:
    """A JSON object whose keys are data. Raises FieldError for anything else."""
    if not isinstance(value, dict):
        raise FieldError(path, f"an object is expected, not {type(value).__name__}")
    return {key: decode(item, f"{path}.{key}") for key, item in value.items()}


def numbered(value: object, path: str, decode: Callable[[object, str], T]) -> dict[int, T]:
    """A JSON object whose keys are the decimal numbers of NUMA nodes. Raises FieldError for anything else."""
    found = mapping(value, path, decode)
    for key in found:
        if not (key.isascii() and key.isdigit() and len(key) <= 6 and str(int(key)) == key):
            raise FieldError(f"{path}.{key}", "the key must be the number of a NUMA node")
    return {int(key): item for key, item in found.items()}
