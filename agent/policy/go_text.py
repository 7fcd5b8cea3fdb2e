"""Go's spellings that the kubelet accepts and prints, so that values and messages match."""

from __future__ import annotations

from collections.abc import Mapping

_TRUE = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_FALSE = frozenset({"0", "f", "F", "FALSE", "false", "False"})


def parse_bool(text: str) -> bool:
    """Go's strconv.ParseBool. Raises ValueError with Go's text."""
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    raise ValueError(f"strconv.ParseBool: parsing {quote(text)}: invalid syntax")


def quote(text: str) -> str:
    """Go's %q for the texts that options hold."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def print_map(values: Mapping[str, str]) -> str:
    """Go's %v of a map[string]string: keys sorted."""
    return "map[" + " ".join(f"{key}:{values[key]}" for key in sorted(values)) + "]"


def print_bytes(amount: int) -> str:
    """A byte count as resource.Quantity prints it in its binary form: 536870912 is "512Mi"."""
    for suffix in ("", "Ki", "Mi", "Gi", "Ti", "Pi"):
        if amount == 0 or amount % 1024:
            return f"{amount}{suffix}"
        amount //= 1024
    return f"{amount}Ei"
