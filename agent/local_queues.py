"""The queue accountant inside the agent: one of those whom the agent tells its reports."""

from __future__ import annotations

from agent.model.occupancy import Occupancy
from agent.queue_server import QueueServer
from agent.queues.node_report import report_of_occupancy


class LocalQueues:
    """A report is taken in this process, so it is delivered when `deliver` returns."""

    name = "queues"

    def __init__(self, server: QueueServer) -> None:
        self._server = server

    def deliver(self, report: Occupancy, since: float) -> bool:
        self._server.take_local(report_of_occupancy(report))
        return True
