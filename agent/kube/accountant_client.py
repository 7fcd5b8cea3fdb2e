"""Pushes occupancy reports to a queue accountant: differences to what it has acknowledged, whole reports where it has a gap.

Kept are two reports, the newest and the one acknowledged last, however long the accountant is away. What it has taken once it
takes for old, so a report that is sent again after a break counts once. A report is repeated every `beat_seconds`, which tells
a quiet node from a silent one.
"""

from __future__ import annotations

import json
from collections.abc import Callable

from agent.errors import AgentError
from agent.formats.occupancy import encode_changes, encode_occupancy
from agent.kube.http_access import AccessError, Server, StatusError
from agent.kube.newest_report import NewestReport
from agent.kube.worker import Worker
from agent.model.occupancy import Occupancy

PATH = "/v1/reports"
_MAX_ANSWER = 64 << 10
_FIRST_WAIT, _LONGEST_WAIT = 0.5, 30.0  # seconds after a failure


class AccountantClient:
    """Pushes from a thread of its own, `worker`. failed, delivered: told what became of it."""

    def __init__(
        self,
        server: Server,
        failed: Callable[[AgentError], None],
        delivered: Callable[[], None],
        beat_seconds: float = 20.0,
    ) -> None:
        self._server = server
        self._failed = failed
        self._delivered = delivered
        self._beat_seconds = beat_seconds
        self._reports = NewestReport()
        self._acknowledged: Occupancy | None = None
        self.worker = Worker("accountant", self._run, self._wake)

    def show(self, report: Occupancy) -> None:
        """A newer report. Never waits."""
        self._reports.show(report)

    def _wake(self) -> None:
        """At the end; a report that is on its way may arrive or not."""
        self._reports.stop()
        self._server.abort()

    def _run(self) -> None:
        wait = 0.0
        quiet: float | None = None
        while (report := self._reports.next(self._acknowledged, wait=wait, quiet=quiet)) is not None:
            try:
                if not self._push(report):
                    self._acknowledged = None  # it lacks the base: the whole report is next
                    self._push(report)
            except AccessError as error:
                self._failed(error)
                asked = error.retry_after if isinstance(error, StatusError) else None
                wait = min(max(asked or 0.0, wait * 2, _FIRST_WAIT), _LONGEST_WAIT)
                continue
            if self._acknowledged is not report:
                self._acknowledged = report
                self._delivered()
            wait, quiet = 0.0, self._beat_seconds

    def _push(self, report: Occupancy) -> bool:
        """Send the report; whether it was taken. Raises AccessError."""
        base = self._acknowledged
        text = encode_occupancy(report) if base is None else encode_changes(base, report)
        body = self._server.send("POST", PATH, text.encode(), "application/json", limit=_MAX_ANSWER)
        try:
            taken = json.loads(body)["taken"]
        except (ValueError, KeyError, TypeError) as error:
            raise AccessError(f"{PATH}: not the answer of an accountant") from error
        return bool(taken != "gap")
