"""The devices that a kubelet gives to pods: what a look is told of them, and what is said where they are far from the CPUs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from agent.keeper import Keeper
from agent.log import say
from agent.model.devices import NO_DEVICES, NodeDevices
from agent.model.podresources import PassedDevices
from agent.model.state import Mark, State
from agent.policy.device_placement import is_awaiting
from agent.policy.pod_events import PodEvent, device_events

if TYPE_CHECKING:
    from agent.serve.podresources_upstream import Upstream

_log = logging.getLogger("pinfold")


class DeviceWatch:
    """Called by the daemon's loop. upstream: the kubelet's PodResources; None where it is not configured."""

    def __init__(self, keeper: Keeper, upstream: Upstream | None = None, wait_seconds: float = 0.0) -> None:
        self._keeper = keeper
        self._upstream = upstream
        self._wait = wait_seconds
        self._told: Mapping[str, Mark] = {}
        self._made: tuple[PassedDevices, State, NodeDevices] | None = None

    def seen(self) -> NodeDevices:
        """What the kubelet has told of the devices of the pods that are here."""
        if self._upstream is None:
            return NO_DEVICES
        passed, state, answering = self._upstream.devices(), self._keeper.state, self._upstream.answering
        made = self._made
        if made is None or made[0] is not passed or made[1] is not state or made[2].answering != answering:
            allocatable = passed.allocatable_nodes if self._upstream.known else None
            devices = NodeDevices(_by_uid(passed, state), allocatable, answering, self._wait, passed.uids)
            self._made = made = (passed, state, devices)
        return made[2]

    def tell(self, announce: Callable[[PodEvent], None]) -> None:
        """Say which pods' devices have turned out to be elsewhere since the last time; nobody is moved for them."""
        before, self._told = self._told, self._keeper.misaligned
        if before == self._told:
            return
        state = self._keeper.state
        for uid, mark in self._told.items():
            if uid in state.pods and before.get(uid) != mark:
                pod = state.pods[uid].pod
                text = "devices on other NUMA nodes"
                say(_log, logging.WARNING, text, pod=pod.namespaced_name, uid=uid, message=mark.message)
        for event in device_events(before, self._told, state):
            announce(event)


def devices_awaited(state: State) -> bool:
    """Whether a pod waits for the kubelet to tell its devices."""
    return any(is_awaiting(record.unplaced) for record in state.pods.values())


def _by_uid(passed: PassedDevices, state: State) -> Mapping[str, Mapping[str, Mapping[str, tuple[int, ...]]]]:
    """A pod that came after the question was asked has the devices of nobody, whatever its name."""
    if not passed.nodes:
        return {}
    return {
        uid: passed.nodes[key]
        for uid, record in state.pods.items()
        if uid in passed.uids and (key := (record.pod.namespace, record.pod.name)) in passed.nodes
    }
