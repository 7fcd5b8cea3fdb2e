"""Makes the occupancy report of every state in force and delivers it.

Called by the daemon's loop, after the state is durable and enforced; the report that it made is read from any thread.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from agent.errors import AgentError
from agent.formats.occupancy import OccupancyEncoder
from agent.keeper import Keeper
from agent.log import say
from agent.model.occupancy import Occupancy
from agent.model.state import State
from agent.policy.managers import Managers
from agent.policy.node_fit import NodeCapacity
from agent.policy.occupancy import OccupancyMaker, Origin
from agent.serve.series import Tally

if TYPE_CHECKING:
    from agent.kube.accountant_client import AccountantClient
    from agent.kube.report_writer import ReportWriter
    from agent.node.report_spool import ReportSpool

_log = logging.getLogger("pinfold")


class Target(Protocol):
    """Somebody who is told every report."""

    @property
    def name(self) -> str: ...

    def deliver(self, report: Occupancy, since: float) -> bool:
        """Take a report; whether it is delivered, not only on its way. since: when its change was seen, on a monotonic clock.

        Raises AgentError; it is then brought again.
        """


class SpoolTarget:
    """A directory of report files."""

    name = "spool"

    def __init__(self, spool: ReportSpool) -> None:
        self._spool = spool
        self._encoder = OccupancyEncoder()

    def deliver(self, report: Occupancy, since: float) -> bool:
        text = self._encoder.encode(report)
        self._spool.put(f"{report.epoch}-{report.generation:012d}", f"{text}\n".encode())
        return True


class Told:
    """What became of reports on their way: counted, and a lasting fault said once. Called from any one thread, apart from
    `on_its_way`, which the loop calls.
    """

    def __init__(self, name: str, tally: Tally, clock: Callable[[], float] = time.monotonic) -> None:
        self.name = name
        self._tally = tally
        self._clock = clock
        self._said = ""
        self._since: deque[float] = deque(maxlen=1)  # when the oldest change was seen that has not arrived

    def on_its_way(self, since: float) -> None:
        """A report has been given to the courier; only the newest is brought, so the oldest change waits the longest."""
        if not self._since:
            self._since.append(since)

    def failed(self, error: AgentError) -> None:
        """A report did not arrive, or only in part."""
        self._tally.add("pinfold_report_failures_total", target=self.name)
        if self._said != str(error):
            self._said = str(error)
            say(_log, logging.ERROR, "report not delivered", target=self.name, error=error, hint=error.hint)

    def delivered(self) -> None:
        """A report has arrived."""
        if self._said:
            self._said = ""
            say(_log, logging.INFO, "reports are delivered again", target=self.name)
        self._tally.add("pinfold_reports_total", target=self.name)
        if self._since:
            self._tally.observe("pinfold_report_delay_seconds", self._clock() - self._since.pop(), target=self.name)

    @property
    def faulty(self) -> bool:
        return bool(self._said)


class RemoteTarget:
    """A server: an API server (`kubernetes`) or an accountant. A thread of its own brings the reports there.

    told: what the courier tells of their arrival.
    """

    def __init__(self, told: Told, courier: ReportWriter | AccountantClient) -> None:
        self.name = told.name
        self.courier = courier
        self._told = told

    def deliver(self, report: Occupancy, since: float) -> bool:
        self._told.on_its_way(since)
        self.courier.show(report)
        return False


class Reporter:
    """targets: told in turn. clock, now: seconds of a monotonic clock and Unix time."""

    def __init__(
        self,
        keeper: Keeper,
        origin: Origin,
        targets: tuple[Target, ...],
        tally: Tally,
        *,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._keeper = keeper
        self._maker = OccupancyMaker(origin)
        self._targets = targets
        self._now = now
        self._made_from: tuple[State, Managers, NodeCapacity] | None = None
        self._told = {target.name: Told(target.name, tally, clock) for target in targets}
        self.report: Occupancy | None = None

    def look(self, since: float) -> None:
        """Report the state in force if it is another one, and try again what failed. since: when it was seen, by `clock`."""
        if not self._targets:
            return  # a first report of 250 pods takes tens of milliseconds: whoever asks the node service has one made
        keeper = self._keeper
        before = self._made_from
        if before is not None and (
            before[0] is keeper.state and before[1] is keeper.managers and before[2] is keeper.node
        ):
            for target in self._targets:
                if self._told[target.name].faulty and self.report is not None:
                    self._deliver(target, self.report, since)
            return
        self.report = self._maker.report(keeper.state, keeper.managers, keeper.node, self._now())
        self._made_from = (keeper.state, keeper.managers, keeper.node)
        for target in self._targets:
            self._deliver(target, self.report, since)

    def _deliver(self, target: Target, report: Occupancy, since: float) -> None:
        try:
            arrived = target.deliver(report, since)
        except AgentError as error:
            self._told[target.name].failed(error)
            return
        if arrived:
            self._told[target.name].on_its_way(since)
            self._told[target.name].delivered()
