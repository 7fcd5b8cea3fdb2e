"""Tells the servers what the node holds: PodResources' answers and the view of it, each made once per change."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from agent.formats.podresources import Answers, AnswersEncoder
from agent.keeper import Keeper
from agent.model.cpuset import CPUSet
from agent.model.podresources import PassedDevices
from agent.model.state import State
from agent.policy.managers import Managers
from agent.policy.podresources_view import Shape, podresources_view
from agent.reporting import Reporter
from agent.serve.board import NodeBoard, NodeView
from agent.serve.health import HealthBoard

if TYPE_CHECKING:
    from agent.serve.podresources_upstream import Upstream

_DRIFT_LINES = 20
_NO_DEVICES = PassedDevices()


class Publisher:
    """Called by the daemon's loop alone. serve: takes the answers of a change; told only after the first `answers`.

    upstream: whose devices are passed through; asked soon when other pods are here than before. reporter: of occupancy.
    """

    def __init__(
        self,
        keeper: Keeper,
        health: HealthBoard,
        board: NodeBoard,
        serve: Callable[[Answers], None],
        *,
        shape: Shape = Shape.V1_37,
        upstream: Upstream | None = None,
        reporter: Reporter | None = None,
    ) -> None:
        self._keeper = keeper
        self._health = health
        self._board = board
        self._serve = serve
        self._shape = shape
        self._upstream = upstream
        self._reporter = reporter
        self._since = time.monotonic()
        self._drift: deque[str] = deque(maxlen=_DRIFT_LINES)
        self._made_from: tuple[State, Managers, PassedDevices] | None = None
        self._encoder = AnswersEncoder()
        self.answers = Answers()
        self.paused = False

    def began(self, seconds: float) -> None:
        """A turn of the loop began, by the monotonic clock: what it publishes was seen then."""
        self._since = seconds

    def drifted(self, line: str) -> None:
        """Remember one repair of what somebody else had changed."""
        self._drift.append(line)

    def publish(self, problems: Sequence[str]) -> None:
        """Show the state in force. problems: of the pod sources, one sentence each."""
        keeper = self._keeper
        self._publish_answers(
            keeper.state, keeper.managers, self._upstream.devices() if self._upstream is not None else _NO_DEVICES
        )
        if self._reporter is not None:
            self._reporter.look(self._since)
        wrong = self._health.problems()
        self._board.publish(
            NodeView(
                keeper.state,
                keeper.managers,
                keeper.node,
                keeper.refused,
                (*wrong, *problems),
                ready=not wrong,
                drift=tuple(self._drift),
                paused=self.paused,
                devices=keeper.devices,
                misaligned=keeper.misaligned,
            )
        )

    def _publish_answers(self, state: State, managers: Managers, devices: PassedDevices) -> None:
        before = self._made_from
        if before is not None and before[0] is state and before[1] is managers and before[2] is devices:
            return
        allocatable = managers.cpu.allocatable if managers.cpu is not None else CPUSet()
        pods = [record.pod for record in state.pods.values()]
        passed = {pod.uid: devices.of(pod.uid, pod.namespace, pod.name) for pod in pods} if devices.pods else {}
        view = podresources_view(pods, state.grants, allocatable, self._shape, passed, devices.allocatable)
        self.answers = self._encoder.encode(view)
        self._made_from = (state, managers, devices)
        self._serve(self.answers)
        if self._upstream is not None and (before is None or before[0].pods.keys() != state.pods.keys()):
            self._upstream.look()
