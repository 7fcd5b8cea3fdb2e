"""A client of the node service that keeps what the node holds up to date, through restarts of the agent."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Self
from urllib.parse import quote

import grpc

from agent.proto import node_v1_pb2 as v1
from agent.proto.node_v1_pb2_grpc import NodeStub

NODE_SOCKET = "/run/pinfold/node.sock"
_RECEIVE_BYTES = 64 * 1024 * 1024
_RETRY_SECONDS = (0.1, 0.5, 1.0, 2.0, 5.0)
_PASSING = (
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.ABORTED,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.CANCELLED,
)


class Connection:
    """A connection to one agent; use as a context manager. stub: the service's methods."""

    def __init__(self, channel: grpc.Channel) -> None:
        self._channel = channel
        self.stub = NodeStub(channel)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._channel.close()


@dataclass(frozen=True, slots=True)
class NodeNow:
    """What the node holds at one position. pods: by uid, in the order of their admission.

    lost_changes: not told one by one before this, because they were not read in time.
    """

    position: v1.Position
    node: v1.NodeState
    pods: dict[str, v1.Pod]
    lost_changes: int = 0


def connect(socket: str | os.PathLike[str] = NODE_SOCKET) -> Connection:
    """A connection to the agent at this socket; made when it is first used. Calls raise grpc.RpcError."""
    options = [
        ("grpc.max_receive_message_length", _RECEIVE_BYTES),
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.min_reconnect_backoff_ms", 100),
        ("grpc.max_reconnect_backoff_ms", 2000),
    ]
    return Connection(grpc.insecure_channel(f"unix:{quote(os.fspath(socket))}", options=options))


def watch(node: Connection, *, patience_seconds: float = float("inf")) -> Iterator[NodeNow]:
    """What the node holds, now and after every change. Connects again and resumes where a stream ended.

    patience_seconds: how long the agent may be away before grpc.RpcError is raised.
    """
    now: NodeNow | None = None
    failures, away_since = 0, time.monotonic()
    while True:
        request = v1.WatchRequest(resume=now.position if now is not None else None)
        try:
            for event in node.stub.Watch(request):
                failures, away_since = 0, time.monotonic()
                if event.kind != v1.WatchEvent.BEAT:
                    now = _apply(now, event)
                    yield now
                away_since = time.monotonic()  # whoever takes what is yielded may take his time
        except grpc.RpcError as error:
            if error.code() not in _PASSING or time.monotonic() - away_since > patience_seconds:
                raise
        time.sleep(_RETRY_SECONDS[min(failures, len(_RETRY_SECONDS) - 1)])
        failures += 1


def _apply(now: NodeNow | None, event: v1.WatchEvent) -> NodeNow:
    state = event.state
    pods = {} if now is None or event.kind == v1.WatchEvent.WHOLE else dict(now.pods)
    for uid in event.removed_uids:
        pods.pop(uid, None)
    pods.update((pod.uid, pod) for pod in state.pods)
    if event.order:
        pods = {uid: pods[uid] for uid in event.order}
    return NodeNow(state.position, state.node, pods, event.lost_changes)
