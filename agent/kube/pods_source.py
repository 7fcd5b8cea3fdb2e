"""The `pods` source: the kubelet's own Pods service (KEP-4188, v1alpha1) on its local socket: one stream, and no reads besides.

The stream begins with every pod and says when that is all (INITIAL_SYNC_COMPLETE): only then do they replace what was known.
Afterwards it tells every change at once. A stream that ends, for whatever reason, is begun anew with a whole list.
Source: pkg/kubelet/apis/pods/server.go of 1.36.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

import grpc

from agent.errors import AgentError
from agent.formats.pod_messages import PodMessageError, decode_pod_message
from agent.formats.pods import JSONObject, describe
from agent.kube.json_objects import uid_of
from agent.kube.listed_pods import MAX_PODS, ListedPods
from agent.kube.pods_socket import PodsError, call_error, check_socket
from agent.kube.pods_stream import EventLoop, PodsStream
from agent.kube.source import Feed
from agent.proto import pods_v1alpha1_pb2 as v1alpha1

NAME = "pods"


@dataclass(frozen=True, slots=True)
class PodsAccess:
    """path: of the socket. timeout_seconds: until the whole list must be there, and for the answer to a question."""

    path: Path
    timeout_seconds: float = 10.0


class PodsSource:
    """The pods of the kubelet behind one socket. loop: keeps the stream."""

    def __init__(self, access: PodsAccess, loop: EventLoop) -> None:
        self._access = access
        self._loop = loop
        self._pods = ListedPods(NAME)
        self._stream: PodsStream | None = None
        self.feed = Feed(NAME, self._follow, self._wake)

    def _wake(self) -> None:
        stream = self._stream
        if stream is not None:
            stream.cancel()

    def _follow(self) -> float:
        """One stream, to its end, which is an error always: the kubelet has no reason to end it. Raises PodsError."""
        path = self._access.path
        check_socket(path)
        with PodsStream(self._loop, path) as stream:  # a new one: the socket may be that of a new kubelet
            self._stream = stream
            try:
                self._read_list(stream)
                with self.feed.standing():
                    while (event := stream.next()) is not None:
                        self._take(event, stream)
            except grpc.RpcError as error:
                raise call_error(path, error) from error
        raise PodsError(f"{path}: the kubelet has ended the stream of pods", hint="it is begun again with a whole list")

    def _read_list(self, stream: PodsStream) -> None:
        """Take over all pods that come before INITIAL_SYNC_COMPLETE. Raises PodsError where that does not come in time."""
        listed: dict[str, JSONObject] = {}
        unreadable: list[AgentError] = []
        end = time.monotonic() + self._access.timeout_seconds
        try:
            while (event := stream.next(end)) is not None and event.type != v1alpha1.INITIAL_SYNC_COMPLETE:
                self._stage(event, listed, unreadable)
        except TimeoutError as error:
            seconds = f"{self._access.timeout_seconds:g} s"
            raise PodsError(f"{self._access.path}: no whole list of pods within {seconds}") from error
        if event is None:
            raise PodsError(f"{self._access.path}: the stream ended before the list of pods was whole")
        self._pods.replace(list(listed.values()), unreadable)
        self._publish()

    def _stage(
        self, event: v1alpha1.WatchPodsEvent, listed: dict[str, JSONObject], unreadable: list[AgentError]
    ) -> None:
        try:
            obj = self._object(event)
        except PodMessageError as error:
            unreadable.append(error)
        else:
            if event.type == v1alpha1.DELETED:
                listed.pop(uid_of(obj), None)
            else:
                listed[uid_of(obj)] = obj
        if len(listed) + len(unreadable) > MAX_PODS:
            raise PodsError(f"{self._access.path}: more than {MAX_PODS} pods on one node")

    def _take(self, event: v1alpha1.WatchPodsEvent, stream: PodsStream) -> None:
        """A change after the list. Repetitions change nothing, and what cannot be read ends no pod."""
        if event.type == v1alpha1.INITIAL_SYNC_COMPLETE:
            return
        try:
            obj = self._object(event)
        except PodMessageError as error:
            self._pods.unreadable(error)
            self._publish()
            return
        uid = uid_of(obj)
        if event.type == v1alpha1.DELETED:
            self._pods.drop(uid)
        elif event.type == v1alpha1.ADDED or uid in self._pods or self._is_here(uid, stream):
            self._pods.put(obj)
        self._publish()

    def _object(self, event: v1alpha1.WatchPodsEvent) -> JSONObject:
        """The pod of an event. Raises PodMessageError; PodsError for an event that nobody knows."""
        if event.type not in (v1alpha1.ADDED, v1alpha1.MODIFIED, v1alpha1.DELETED):
            raise PodsError(f"{self._access.path}: an event of the unknown type {event.type}")
        obj = decode_pod_message(event.pod)
        if not uid_of(obj):
            raise PodMessageError(f"pod {describe(obj)}: an event about a pod without uid")
        return obj

    def _is_here(self, uid: str, stream: PodsStream) -> bool:
        """Whether the kubelet has a pod of which a change came before it was added, or after it was deleted."""
        try:
            stream.get(uid, self._access.timeout_seconds)
        except grpc.RpcError as error:
            if error.code() is grpc.StatusCode.NOT_FOUND:
                return False
            raise
        return True

    def _publish(self) -> None:
        self.feed.publish(self._pods.view(time.monotonic()))
