"""What the lint of a pod file says: one finding each, with the field and what to do."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    """ERROR: such a pod is refused. WARNING: it runs, but surely not as meant. NOTE: it runs, worth knowing."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing about a pod file. rule: a stable name, for filters and documents; advice: what to do about it."""

    rule: str
    severity: Severity
    path: str
    message: str
    advice: str

    def __str__(self) -> str:
        return f"{self.severity}: {self.path}: {self.message} [{self.rule}]"
