"""The kubelet's Pods service as a real gRPC server on a socket in the test, well-behaved or as a test tells it."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, TypeAlias

import grpc
from google.protobuf.message import Message

from agent.proto import core_v1_pb2 as core
from agent.proto import pods_v1alpha1_pb2 as v1alpha1
from agent.proto.meta_v1_pb2 import Time
from agent.proto.pods_v1alpha1_pb2_grpc import PodsServicer, add_PodsServicer_to_server
from agent.proto.quantity_pb2 import Quantity

Event = v1alpha1.WatchPodsEvent
Events: TypeAlias = "queue.SimpleQueue[Event | None]"
Watch = Callable[[grpc.ServicerContext], Iterator[Event]]

SYNCED = Event(type=v1alpha1.INITIAL_SYNC_COMPLETE)


def pod_bytes(obj: Mapping[str, Any]) -> bytes:
    """The message of a pod that is given as a JSON object."""
    pod = core.Pod()
    _fill(pod, obj)
    return pod.SerializeToString()


def added(obj: Mapping[str, Any]) -> Event:
    return Event(type=v1alpha1.ADDED, pod=pod_bytes(obj))


def modified(obj: Mapping[str, Any]) -> Event:
    return Event(type=v1alpha1.MODIFIED, pod=pod_bytes(obj))


def deleted(obj: Mapping[str, Any]) -> Event:
    """As the kubelet tells it: of the pod only its names."""
    names = {key: obj["metadata"].get(key) for key in ("name", "namespace", "uid")}
    return Event(type=v1alpha1.DELETED, pod=pod_bytes({"metadata": names}))


def _fill(message: Any, obj: Mapping[str, Any]) -> None:
    for key, value in obj.items():
        if value is None or key not in message.DESCRIPTOR.fields_by_name:
            continue
        target = getattr(message, key)
        if isinstance(value, list):
            for each in value:
                _fill_one(target.add(), each)
        elif isinstance(target, Message):
            target.SetInParent()
            _fill_one(target, value)
        elif isinstance(value, dict):
            for name, each in value.items():
                if isinstance(each, str) and message.DESCRIPTOR.name == "ObjectMeta":
                    target[name] = each
                else:
                    target[name].CopyFrom(Quantity(string=str(each)))
        else:
            setattr(message, key, value)


def _fill_one(message: Any, value: Any) -> None:
    match message:
        case Time():
            message.seconds = int(datetime.fromisoformat(value).timestamp()) if value else 0
        case core.EphemeralContainer():
            _fill(message.ephemeralContainerCommon, value)
        case _:
            _fill(message, value)


class Kubelet(PodsServicer):
    """Serves `pods`. watches: what the first streams do instead of that; asked: UIDs of GetPod; watched: streams so far."""

    def __init__(self, *watches: Watch, pods: Mapping[str, Mapping[str, Any]] | None = None) -> None:
        self.pods = dict(pods or {})
        self.watches = list(watches)
        self.watched = 0
        self.asked: list[str] = []
        self._streams: list[Events] = []

    def add(self, *pods: Mapping[str, Any]) -> None:
        for each in pods:
            known = each["metadata"]["uid"] in self.pods
            self.pods[each["metadata"]["uid"]] = each
            self.tell(modified(each) if known else added(each))

    def remove(self, uid: str) -> None:
        self.tell(deleted(self.pods.pop(uid)))

    def tell(self, *events: Event) -> None:
        for stream in self._streams:
            for each in events:
                stream.put(each)

    def cut(self) -> None:
        """End every stream, as a kubelet does that restarts."""
        for stream in self._streams:
            stream.put(None)

    def WatchPods(self, request: Any, context: grpc.ServicerContext) -> Iterator[Event]:  # noqa: N802 - the service's name
        self.watched += 1
        yield from (self.watches.pop(0) if self.watches else self.well)(context)

    def GetPod(self, request: Any, context: grpc.ServicerContext) -> v1alpha1.GetPodResponse:  # noqa: N802
        self.asked.append(request.podUID)
        if request.podUID not in self.pods:
            context.abort(grpc.StatusCode.NOT_FOUND, f"pod with UID {request.podUID} not found")
        return v1alpha1.GetPodResponse(pod=pod_bytes(self.pods[request.podUID]))

    def ListPods(self, request: Any, context: grpc.ServicerContext) -> v1alpha1.ListPodsResponse:  # noqa: N802
        return v1alpha1.ListPodsResponse(pods=[pod_bytes(each) for each in self.pods.values()])

    def well(self, context: grpc.ServicerContext) -> Iterator[Event]:
        """Everything, then every change, until one of the two ends it."""
        mine: Events = queue.SimpleQueue()
        self._streams.append(mine)
        yield from map(added, list(self.pods.values()))
        yield SYNCED
        yield from follow(mine, context)


def follow(events: Events, context: grpc.ServicerContext) -> Iterator[Event]:
    """Events as they come, up to None."""
    while context.is_active():
        try:
            event = events.get(timeout=0.02)
        except queue.Empty:
            continue
        if event is None:
            return
        yield event


def tells(*events: Event, then: grpc.StatusCode | None = None, text: str = "") -> Watch:
    """A stream of these events that then ends with an error, or stays open."""

    def watch(context: grpc.ServicerContext) -> Iterator[Event]:
        yield from events
        if then is not None:
            context.abort(then, text)
        yield from follow(queue.SimpleQueue(), context)

    return watch


@contextmanager
def serving(path: Path, kubelet: PodsServicer | None) -> Iterator[None]:
    """A server on this socket; None: one without the service. Its streams are cut at the end, as when a kubelet ends."""
    server = grpc.server(ThreadPoolExecutor(8), options=[("grpc.max_send_message_length", -1)])
    if kubelet is not None:
        add_PodsServicer_to_server(kubelet, server)
    assert server.add_insecure_port(f"unix:{path}")
    server.start()
    try:
        yield
    finally:
        server.stop(None).wait()
