"""What the daemon shows of itself: one whole view per change, published by its loop, read by every server from any thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from agent.formats.status import encode_status
from agent.model.devices import NO_DEVICES, NodeDevices
from agent.model.pod import Pod
from agent.model.state import Mark, State
from agent.policy.managers import Managers
from agent.policy.node_fit import NodeCapacity
from agent.policy.observation import Refused


@dataclass(frozen=True, slots=True)
class NodeView:
    """The node at one moment.

    problems: one sentence each. drift: the last repairs of what somebody else had changed, one line each, newest last.
    devices: those that are known. misaligned: UID -> why a pod's devices are far from its CPUs.
    """

    state: State
    managers: Managers
    capacity: NodeCapacity
    refused: Mapping[str, Refused] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    ready: bool = True
    paused: bool = False
    drift: tuple[str, ...] = ()
    devices: NodeDevices = NO_DEVICES
    misaligned: Mapping[str, Mark] = field(default_factory=dict)

    def status(self, *, pods: bool = True) -> dict[str, Any]:
        """The view as `pinfold status -o json` has it. pods: those too."""
        status = encode_status(
            self.state,
            self.managers,
            self.refused,
            self.problems,
            ready=self.ready,
            paused=self.paused,
            pods=pods,
            misaligned=self.misaligned,
        )
        return {**status, "drift": list(self.drift)}

    def same_as(self, other: NodeView) -> bool:
        """Whether nothing differs. Large values are the same object as long as nothing has changed."""
        return (
            self.state is other.state
            and self.managers is other.managers
            and self.capacity is other.capacity
            and (self.refused is other.refused or self.refused == other.refused)
            and (self.devices is other.devices or self.devices == other.devices)
            and self.misaligned == other.misaligned
            and (self.problems, self.ready, self.paused, self.drift)
            == (other.problems, other.ready, other.paused, other.drift)
        )


def find_pod(view: NodeView, name: str) -> Pod | None:
    """The pod of this name ("namespace/name"), here or refused."""
    if name in view.refused:
        return view.refused[name].pod
    return next((each.pod for each in view.state.pods.values() if each.pod.namespaced_name == name), None)


class NodeBoard:
    """Holds the newest view. `publish` is called by one thread, the rest by any."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._view: NodeView | None = None
        self._number = 0
        self._listeners: list[Callable[[NodeView], None]] = []

    def publish(self, view: NodeView) -> None:
        """Show this from now on, and tell the listeners where it differs from the one before."""
        with self._lock:
            if self._view is not None and view.same_as(self._view):
                return
            self._view = view
            self._number += 1
            listeners = tuple(self._listeners)
        for listener in listeners:
            listener(view)

    def read(self) -> tuple[int, NodeView]:
        """The newest view, and how many there have been. Raises LookupError before the first one."""
        with self._lock:
            if self._view is None:
                raise LookupError("no view has been published yet")
            return self._number, self._view

    def listen(self, listener: Callable[[NodeView], None]) -> None:
        """Call `listener` with every view from now on, in the publisher's thread: it must hand over and return."""
        with self._lock:
            self._listeners.append(listener)
