"""How much a process logs, by kind of line, beside what was done to it: a storm is a kind with more lines than causes."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

LINES_PER_CAUSE = 3.0  # a neighbour that goes is told when it goes and when it is back; a retry may be worded otherwise
SPARE_LINES = 10


@dataclass(frozen=True, slots=True)
class LogKind:
    """Lines of one kind. causes: how many things were done that may have led to them."""

    event: str
    level: str
    lines: int
    causes: int

    @property
    def storm(self) -> bool:
        return self.lines > LINES_PER_CAUSE * self.causes + SPARE_LINES

    def encode(self) -> dict[str, Any]:
        return {
            "event": self.event,
            "level": self.level,
            "lines": self.lines,
            "causes": self.causes,
            "storm": self.storm,
        }


def log_kinds(lines: Iterable[str], done: Mapping[str, int], causes: Mapping[str, tuple[str, ...]]) -> list[LogKind]:
    """The kinds of lines, most first. done: action -> how often. causes: start of an event's text -> the actions that can lead to
    it; what is not named may come of any. A line that is not JSON is a kind of its own: a traceback, or somebody's print.
    """
    found: Counter[tuple[str, str]] = Counter()
    for line in lines:
        try:
            fields = json.loads(line)
            found[str(fields["event"]), str(fields["level"]) + (" traceback" if "traceback" in fields else "")] += 1
        except (ValueError, KeyError, TypeError):
            if line.strip():
                found["(not a log line)", line.strip()[:60]] += 1
    return [LogKind(event, level, count, _causes(event, done, causes)) for (event, level), count in found.most_common()]


def _causes(event: str, done: Mapping[str, int], causes: Mapping[str, tuple[str, ...]]) -> int:
    for start, actions in causes.items():
        if event.startswith(start):
            return sum(done.get(action, 0) for action in actions)
    return sum(done.values())
