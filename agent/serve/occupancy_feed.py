"""Occupancy reports as the node service's clients get them: made when somebody asks, kept for a while to tell differences from.

A watcher holds the report that it was sent last. Between two looks it may miss reports, never what they said: the difference is
always from its own to the newest one.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

from agent.formats.occupancy import OccupancyEncoder, encode_changes
from agent.model.occupancy import Occupancy
from agent.policy.occupancy import OccupancyMaker, Origin
from agent.proto import node_v1_pb2 as v1
from agent.serve.board import NodeView

KEPT_REPORTS = 32  # a full one of 250 pods has about 400 kB as values


class OccupancyFeed:
    """Lives on one event loop. now: Unix time."""

    def __init__(self, origin: Origin, kept: int = KEPT_REPORTS, now: Callable[[], float] = time.time) -> None:
        self._maker = OccupancyMaker(origin)
        self._encoder = OccupancyEncoder()
        self._now = now
        self._reports: deque[Occupancy] = deque(maxlen=kept)
        self._made_from: NodeView | None = None
        self._text: tuple[Occupancy, str] | None = None

    def of(self, view: NodeView) -> Occupancy:
        """The report of the state in force."""
        before = self._made_from
        if (
            before is None
            or before.state is not view.state
            or before.managers is not view.managers
            or before.capacity is not view.capacity
        ):
            self._reports.append(self._maker.report(view.state, view.managers, view.capacity, self._now()))
            self._made_from = view
        return self._reports[-1]

    def find(self, position: v1.Position) -> Occupancy | None:
        """The report of this position, if it is still known."""
        wanted = position.epoch, position.generation
        return next((each for each in self._reports if (str(each.epoch), each.generation) == wanted), None)

    def whole(self, report: Occupancy) -> str:
        """The text of a full report."""
        if self._text is None or self._text[0] is not report:
            self._text = report, self._encoder.encode(report)
        return self._text[1]


def position_of(report: Occupancy) -> v1.Position:
    """Where a report stands in the line of states."""
    return v1.Position(epoch=str(report.epoch), generation=report.generation)


def change_event(base: Occupancy, report: Occupancy) -> v1.OccupancyEvent:
    """What is different since `base`."""
    return v1.OccupancyEvent(
        kind=v1.OccupancyEvent.CHANGE,
        position=position_of(report),
        base=position_of(base),
        report_json=encode_changes(base, report),
    )
