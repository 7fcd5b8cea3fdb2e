"""Devices and dynamic resources from another PodResources server (the kubelet's), so that agents can be pointed at pinfold alone.

It is asked in the background and with a deadline: no client of ours ever waits for it. While it does not answer, what it told
last stays, and its age is a metric.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import grpc
import grpc.aio

from agent.model.devices import DeviceNodes
from agent.model.numa import MAX_NODES, NodeMask
from agent.model.podresources import Passed, PassedDevices
from agent.proto import podresources_v1_pb2 as v1
from agent.proto import podresources_v1alpha1_pb2 as v1alpha1
from agent.proto.podresources_v1_pb2_grpc import PodResourcesListerStub
from agent.serve.health import SourceHealth
from agent.serve.loop import ServingLoop

_log = logging.getLogger("pinfold")  # facts: see agent.log
RECEIVE_BYTES = 16 * 1024 * 1024
_CHANNEL = (
    ("grpc.max_receive_message_length", RECEIVE_BYTES),
    ("grpc.max_reconnect_backoff_ms", 5000),
    ("grpc.http2.bdp_probe", 0),  # a local socket has no delay to measure, and the measuring keeps gRPC's threads awake
)
NOTHING = PassedDevices()
# between two looks while somebody waits: far below a kubelet's 100 a second
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.1, 1.0
FIRST_QUIET_SECONDS = 1.0  # to the look after one that had news or a new pod; each further one takes twice as long
_RETRY_SECONDS = 5.0  # after a failure, at most


@dataclass(frozen=True, slots=True)
class UpstreamAccess:
    """path: of the socket. Seconds: between two looks where nothing changes, and until one is given up."""

    path: Path
    period_seconds: float = 60.0
    timeout_seconds: float = 2.0


class Upstream:
    """Asks between `start` and `stop`. uids: of the pods that are here now. changed: called when it tells something new.

    awaited: whether a pod waits for its devices; then it is asked more often, and `changed` is called each time.

    Every call wakes gRPC's threads some dozens of times. So it is asked when there may be something new: at once when other pods
    are here, then after 1 s, 2 s, 4 s and so on up to the period (the kubelet prepares dynamic resources after it has admitted).
    """

    def __init__(
        self,
        loop: ServingLoop,
        access: UpstreamAccess,
        uids: Callable[[], frozenset[str]],
        changed: Callable[[], None],
        awaited: Callable[[], bool] = lambda: False,
    ) -> None:
        self._loop = loop
        self._access = access
        self._uids = uids
        self._changed = changed
        self._awaited = awaited
        self._task: asyncio.Task[None] | None = None
        self._due = asyncio.Event()
        self._devices = NOTHING
        self._answered_at: float | None = None
        self._trouble = ""
        self._deaf = False  # in trouble, and not only for being asked too often

    def start(self) -> None:
        """Begin to ask."""
        self._loop.run(self._begin())

    def stop(self) -> None:
        """Ask no more."""
        self._loop.run(self._end())

    def look(self) -> None:
        """Ask soon: other pods are here than before."""
        self._loop.call(self._due.set)

    def devices(self) -> PassedDevices:
        """What was told last."""
        return self._devices

    @property
    def known(self) -> bool:
        """Whether it has answered at all."""
        return self._answered_at is not None

    @property
    def answering(self) -> bool:
        """Whether an answer can be expected: before the first one, too."""
        return not self._deaf

    def health(self) -> SourceHealth:
        """For the metrics. Age: since the last answer, None where there has been none."""
        age = None if self._answered_at is None else time.monotonic() - self._answered_at
        return SourceHealth(not self._trouble and age is not None, age)

    async def _begin(self) -> None:
        self._task = asyncio.create_task(self._run())

    async def _end(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        async with grpc.aio.insecure_channel(f"unix:{quote(str(self._access.path))}", options=_CHANNEL) as channel:
            stub = PodResourcesListerStub(channel)
            pause, quiet = FIRST_PAUSE_SECONDS, FIRST_QUIET_SECONDS
            while True:
                due = self._due.is_set()
                self._due.clear()
                news = await self._ask(stub)
                awaited = self._awaited()
                quiet = FIRST_QUIET_SECONDS if due or news or awaited else 2 * quiet
                quiet = min(quiet, self._access.period_seconds, _RETRY_SECONDS if self._trouble else math.inf)
                wait = quiet
                if awaited:
                    self._changed()
                    wait = min(wait, pause)
                    pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
                else:
                    pause = FIRST_PAUSE_SECONDS
                try:
                    async with asyncio.timeout(wait):
                        await self._due.wait()
                except TimeoutError:
                    continue

    async def _ask(self, stub: PodResourcesListerStub) -> bool:
        """Whether it has told something new, or answers again: a kubelet that has restarted learns its devices one by one."""
        uids = self._uids()
        try:
            # a time-out of our own: gRPC's would set a timer of its threads for every call
            async with asyncio.timeout(self._access.timeout_seconds):
                listed = await stub.List(v1.ListPodResourcesRequest())  # type: ignore[misc] # stubs are sync
                allocatable = await stub.GetAllocatableResources(v1.AllocatableResourcesRequest())  # type: ignore[misc]
        except TimeoutError:
            self._deaf = True
            self._failed(f"no answer within {self._access.timeout_seconds:g} s")
            return False
        except grpc.aio.AioRpcError as error:
            self._deaf = error.code() is not grpc.StatusCode.RESOURCE_EXHAUSTED
            self._failed(f"{error.code().name}: {error.details()}")
            return False
        # gRPC gives None for bytes that are no such message
        read = isinstance(listed, v1.ListPodResourcesResponse)
        if not read or not isinstance(allocatable, v1.AllocatableResourcesResponse):
            self._deaf = True
            self._failed("the answer cannot be read")
            return False
        again = bool(self._trouble)
        if again:
            _log.info("upstream PodResources answers again", extra={"facts": {"socket": self._access.path}})
            self._trouble = ""
        self._answered_at, self._deaf = time.monotonic(), False
        told = passed_devices(listed, allocatable, uids)
        if told == self._devices:
            return again
        self._devices = told
        self._changed()
        return True

    def _failed(self, why: str) -> None:
        if not self._trouble:  # said once; the age metric tells how long it lasts
            facts = {"socket": self._access.path, "error": why}
            _log.warning("upstream PodResources does not answer", extra={"facts": facts})
        self._trouble = why


def passed_devices(
    listed: v1.ListPodResourcesResponse, allocatable: v1.AllocatableResourcesResponse, uids: frozenset[str]
) -> PassedDevices:
    """The devices and dynamic resources of an answer; its CPUs and memory are left to those who decide them."""
    pods: dict[tuple[str, str], Mapping[str, Passed]] = {}
    nodes: dict[tuple[str, str], Mapping[str, DeviceNodes]] = {}
    for pod in listed.pod_resources:
        key = pod.namespace, pod.name
        containers = {each.name: _passed(each) for each in pod.containers if each.devices or each.dynamic_resources}
        if containers:
            pods[key] = containers
        if held := {each.name: device_nodes(each.devices) for each in pod.containers if each.devices}:
            nodes[key] = held
    kept = v1.AllocatableResourcesResponse(devices=allocatable.devices)
    return PassedDevices(
        pods, kept.SerializeToString(deterministic=True), uids, nodes, device_nodes(allocatable.devices)
    )


def device_nodes(devices: Iterable[v1.ContainerDevices]) -> DeviceNodes:
    """The NUMA nodes of every device, by resource. A device may be told in several entries, one per node."""
    found: dict[str, dict[str, NodeMask]] = {}
    for each in devices:
        mask = 0
        for node in each.topology.nodes:
            if 0 <= node.ID < MAX_NODES:  # plugins have told -1 for "nowhere"
                mask |= 1 << node.ID
        of_resource = found.setdefault(each.resource_name, {})
        for device in each.device_ids:
            of_resource[device] = of_resource.get(device, 0) | mask
    return {resource: tuple(sorted(masks.values())) for resource, masks in sorted(found.items()) if masks}


def _passed(container: v1.ContainerResources) -> Passed:
    new = v1.ContainerResources(devices=container.devices, dynamic_resources=container.dynamic_resources)
    devices = [
        v1alpha1.ContainerDevices(resource_name=each.resource_name, device_ids=each.device_ids)
        for each in container.devices
    ]
    old = v1alpha1.ContainerResources(devices=devices)
    return Passed(new.SerializeToString(deterministic=True), old.SerializeToString(deterministic=True))
