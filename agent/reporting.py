"""Makes the occupancy report of every state in force and delivers it.

Called by the daemon's loop, after the state is durable and enforced; the report that it made is read from any thread.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from agent.formats.occupancy import encode_occupancy
from agent.keeper import Keeper
from agent.log import say
from agent.model.occupancy import Occupancy
from agent.model.state import State
from agent.node.report_spool import ReportSpool, ReportSpoolError
from agent.policy.managers import Managers
from agent.policy.node_fit import NodeCapacity
from agent.policy.occupancy import Origin, occupancy
from agent.serve.series import Tally

_log = logging.getLogger("pinfold")


@dataclass(frozen=True, slots=True)
class Report:
    """A report and its text, made once for everybody."""

    occupancy: Occupancy
    text: str


class SpoolTarget:
    """A directory of report files."""

    name = "spool"

    def __init__(self, spool: ReportSpool) -> None:
        self._spool = spool

    def deliver(self, report: Report) -> None:
        stamp = report.occupancy
        self._spool.put(f"{stamp.epoch}-{stamp.generation:012d}", f"{report.text}\n".encode())


class Reporter:
    """targets: told in turn. clock, now: seconds of a monotonic clock and Unix time."""

    def __init__(
        self,
        keeper: Keeper,
        origin: Origin,
        targets: tuple[SpoolTarget, ...],
        tally: Tally,
        *,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._keeper = keeper
        self._origin = origin
        self._targets = targets
        self._tally = tally
        self._clock = clock
        self._now = now
        self._made_from: tuple[State, Managers, NodeCapacity] | None = None
        self._said: dict[str, str] = {}
        self.report: Report | None = None

    def look(self, since: float) -> None:
        """Report the state in force if it is another one, and try again what failed. since: when it was seen, by `clock`."""
        keeper = self._keeper
        before = self._made_from
        if before is not None and (
            before[0] is keeper.state and before[1] is keeper.managers and before[2] is keeper.node
        ):
            for target in self._targets:
                if target.name in self._said and self.report is not None:
                    self._deliver(target, self.report, since)
            return
        made = occupancy(keeper.state, keeper.managers, keeper.node, self._origin, self._now())
        self.report = Report(made, encode_occupancy(made))
        self._made_from = (keeper.state, keeper.managers, keeper.node)
        for target in self._targets:
            self._deliver(target, self.report, since)

    def _deliver(self, target: SpoolTarget, report: Report, since: float) -> None:
        try:
            target.deliver(report)
        except ReportSpoolError as error:
            self._tally.add("pinfold_report_failures_total", target=target.name)
            if self._said.get(target.name) != str(error):
                self._said[target.name] = str(error)
                say(_log, logging.ERROR, "report not delivered", target=target.name, error=error, hint=error.hint)
            return
        if self._said.pop(target.name, None) is not None:
            say(_log, logging.INFO, "reports are delivered again", target=target.name)
        self._tally.add("pinfold_reports_total", target=target.name)
        self._tally.observe("pinfold_report_delay_seconds", self._clock() - since, target=target.name)
