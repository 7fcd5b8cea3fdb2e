"""The stream of the kubelet's Pods service, kept by an event loop and read by a thread that sleeps until there is something.

gRPC's own streams for threads look five times a second whether something has come.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Callable, Coroutine
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar
from urllib.parse import quote

import grpc
import grpc.aio

from agent.kube.pods_socket import PodsError, channel_options
from agent.proto import pods_v1alpha1_pb2 as v1alpha1
from agent.proto.pods_v1alpha1_pb2_grpc import PodsStub

T = TypeVar("T")
_Call = grpc.aio.UnaryStreamCall[v1alpha1.WatchPodsRequest, v1alpha1.WatchPodsEvent]


class EventLoop(Protocol):
    """An event loop in a thread of its own."""

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop and wait for its result."""

    def call(self, function: Callable[[], object]) -> None:
        """Call `function` on the loop soon, and do not wait."""


class PodsStream:
    """A connection of its own, to whoever listens now, with one WatchPods. Use as a context manager.

    Methods raise grpc.RpcError where the service answers with an error, PodsError after `cancel`.
    """

    def __init__(self, loop: EventLoop, path: Path) -> None:
        self._loop = loop
        self._path = path
        self._channel: grpc.aio.Channel | None = None
        self._call: _Call | None = None

    def __enter__(self) -> Self:
        self._wait(self._open())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._channel is not None:
            self._loop.run(self._channel.close(None))

    def next(self, end: float | None = None) -> v1alpha1.WatchPodsEvent | None:
        """The next event; None where the service has ended the stream. Raises TimeoutError at `end` of the monotonic clock."""
        return self._wait(self._read(end))

    def get(self, uid: str, timeout_seconds: float) -> v1alpha1.GetPodResponse:
        """GetPod, beside the stream."""
        return self._wait(self._get(uid, timeout_seconds))

    def cancel(self) -> None:
        """Have `next` return. From any thread, and several times."""
        call = self._call
        if call is not None:
            self._loop.call(call.cancel)

    def _wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        try:
            return self._loop.run(coroutine)
        except concurrent.futures.CancelledError as error:
            raise PodsError(f"{self._path}: the stream of pods was cancelled") from error

    async def _open(self) -> None:
        self._channel = grpc.aio.insecure_channel(f"unix:{quote(str(self._path))}", options=channel_options())
        self._call = PodsStub(self._channel).WatchPods(v1alpha1.WatchPodsRequest())

    async def _read(self, end: float | None) -> v1alpha1.WatchPodsEvent | None:
        assert self._call is not None
        async with asyncio.timeout_at(end):
            event = await self._call.read()
        return event if isinstance(event, v1alpha1.WatchPodsEvent) else None

    async def _get(self, uid: str, timeout_seconds: float) -> v1alpha1.GetPodResponse:
        assert self._channel is not None
        return await PodsStub(self._channel).GetPod(v1alpha1.GetPodRequest(podUID=uid), timeout=timeout_seconds)
