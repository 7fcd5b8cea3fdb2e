"""The daemon's last decisions in the state directory, for `pinfold gather` and `pinfold replay`: two files that take turns.

They are for people who look for a fault. A write that fails is told and changes nothing else; nothing reads them back.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from agent.formats.decision_record import can_follow, decision_record, topology_record
from agent.model.machine import Machine
from agent.model.state import State
from agent.policy.managers import Managers
from agent.policy.node_fit import NodeCapacity
from agent.policy.observation import Decision

CURRENT = "decisions.jsonl"
PREVIOUS = "decisions.previous.jsonl"
_MODE = 0o600  # pods' names are not everybody's


class DecisionLog:
    """Writes to `directory`. max_bytes: of both files together; each begins anew, so each can be replayed alone.

    problem: why the last write failed; "" while all is well.
    """

    def __init__(self, directory: Path, max_bytes: int) -> None:
        self._directory = directory
        self._max_file = max_bytes // 2
        self._machine: tuple[Machine, str] | None = None  # written to the current file
        self._last: tuple[State, Managers, str] | None = None  # what the next record may follow
        self._written = 0
        self._fresh = True  # the next record begins a file: what an earlier process wrote cannot be followed
        self.problem = ""

    def record(
        self, before: State, after: State, decisions: Sequence[Decision], managers: Managers, node: NodeCapacity
    ) -> None:
        """Enter one look: decisions led from `before` to `after`."""
        if not can_follow(decisions):
            self._last = None
            return
        ident = f"{after.epoch}/{after.generation}"
        if after is before:  # refusals leave no trace in the state
            ident += f"/{self._written}"
        try:
            if self._fresh or self._written >= self._max_file:
                self._turn()
            lines = self._lines(ident, before, after, decisions, managers, node)
            if lines:
                self._append(lines)
                self._last = (after, managers, ident)
        except OSError as error:
            self.problem = f"{self._directory / CURRENT}: {error.strerror}"
            self._fresh, self._last = True, None
        else:
            self.problem = ""

    def _lines(
        self,
        ident: str,
        before: State,
        after: State,
        decisions: Sequence[Decision],
        managers: Managers,
        node: NodeCapacity,
    ) -> list[Mapping[str, Any]]:
        lines: list[Mapping[str, Any]] = []
        if self._machine is None or self._machine[0] is not managers.machine:
            lines.append(topology_record(managers.machine))
            self._machine = (managers.machine, str(lines[0]["id"]))
            self._last = None
        start: State | str = before
        if self._last is not None and self._last[0] is before and self._last[1] is managers:
            start = self._last[2]
        record = decision_record(ident, self._machine[1], managers.config, node, start, after, decisions)
        return [*lines, record] if record is not None else []

    def _turn(self) -> None:
        current = self._directory / CURRENT
        if current.exists():
            current.replace(self._directory / PREVIOUS)
        self._written, self._machine, self._last, self._fresh = 0, None, None, False

    def _append(self, records: Sequence[Mapping[str, Any]]) -> None:
        data = "".join(json.dumps(record, separators=(",", ":")) + "\n" for record in records).encode()
        descriptor = os.open(
            self._directory / CURRENT, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, _MODE
        )
        try:
            os.write(descriptor, data)
        finally:
            os.close(descriptor)
        self._written += len(data)
