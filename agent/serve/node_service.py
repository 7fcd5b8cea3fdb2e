"""The node service `pinfold.node.v1.Node` on a unix socket of its own, with health and reflection beside it. It only tells.

What clients may cost is bounded: size of a request, number of calls and watchers, one explanation at a time, bytes and time for
readers that do not read.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import TypeVar
from urllib.parse import quote

import grpc
import grpc.aio
from google.protobuf.message import DecodeError, Message
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from agent.errors import AgentError
from agent.formats.documents import MAX_BYTES
from agent.formats.explanation import Explanation, explain, explain_each
from agent.formats.manifests import decode_manifests
from agent.formats.node_messages import explanation_message
from agent.policy.occupancy import Origin
from agent.proto import node_v1_pb2 as v1
from agent.serve.board import NodeBoard, NodeView, find_pod
from agent.serve.grpc_bounds import TOO_MANY_UNREAD, Bounds, Unread, bounded_server
from agent.serve.loop import ServingLoop
from agent.serve.node_feed import NodeFeed
from agent.serve.occupancy_feed import OccupancyFeed, change_event, position_of
from agent.serve.sockets import SocketAccess, SocketFile, SocketPathError

SERVICE = v1.DESCRIPTOR.services_by_name["Node"].full_name
MAX_WATCHERS = 64
MAX_EXPLAINED = 32  # manifests of one call
MAX_WAITING = 8  # for an explanation
_BEAT_SECONDS = 30
_MAX_BEAT_SECONDS = 3600
_READ_SECONDS = 60.0  # for one event
_STOP_SECONDS = 1.0
UNREAD_BYTES = 8 * 1024 * 1024  # kept twice: every answer is made for its call
BOUNDS = Bounds(
    connections=MAX_WATCHERS + 16, streams=MAX_WATCHERS + 16, request_bytes=MAX_BYTES + 4096, calls=2 * MAX_WATCHERS
)

Context = grpc.aio.ServicerContext[bytes, bytes]
M = TypeVar("M", bound=Message)


class NodeService:
    """Serves between `start` and `stop`. name: of the node. The board must hold a view before `start`.

    origin: what occupancy reports say of the node, its name where not given.
    """

    def __init__(
        self, loop: ServingLoop, access: SocketAccess, board: NodeBoard, name: str, origin: Origin | None = None
    ) -> None:
        self._loop = loop
        self._file = SocketFile(access)
        self._board = board
        self._feed = NodeFeed(name)
        self._occupancy = OccupancyFeed(origin or Origin(name))
        self._health = health.aio.HealthServicer()  # type: ignore[attr-defined] # missing in the stubs
        self._server: grpc.aio.Server | None = None
        self._watchers = 0
        self._unread = Unread(UNREAD_BYTES)
        self._explaining = asyncio.Lock()
        self._waiting = 0

    @property
    def watchers(self) -> int:
        """How many clients watch now."""
        return self._watchers

    def start(self) -> None:
        """Begin to answer. Raises SocketInUseError or SocketPathError."""
        self._loop.run(self._start())
        self._board.listen(lambda view: self._loop.call(lambda: self._show(view)))

    def stop(self) -> None:
        """Remove the socket, end every stream, and close."""
        self._loop.run(self._stop())

    async def _start(self) -> None:
        self._show(self._board.read()[1])
        path = self._file.claim()
        server = bounded_server(BOUNDS)
        server.add_generic_rpc_handlers((self._handlers(),))
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        names = (SERVICE, health_pb2.DESCRIPTOR.services_by_name["Health"].full_name, reflection.SERVICE_NAME)
        reflection.enable_server_reflection(names, server)
        try:
            server.add_insecure_port(f"unix:{quote(str(path))}")
        except RuntimeError as error:
            raise SocketPathError(self._file.access.path, f"cannot listen: {error}", "see the log above") from error
        self._server = server
        await server.start()
        self._file.expose()

    async def _stop(self) -> None:
        self._file.release()
        if self._server is not None:
            await self._server.stop(_STOP_SECONDS)
            self._server = None

    def _show(self, view: NodeView) -> None:
        self._feed.show(view)
        serving = health_pb2.HealthCheckResponse
        status = serving.SERVING if view.ready else serving.NOT_SERVING
        self._tasks = [asyncio.ensure_future(self._health.set(name, status)) for name in ("", SERVICE)]

    def _handlers(self) -> grpc.GenericRpcHandler[bytes, bytes]:
        # Without serializers the methods get the message bytes as they are: what is no message must not fill the log.
        handlers = {
            "Status": grpc.unary_unary_rpc_method_handler(self._status),
            "Watch": grpc.unary_stream_rpc_method_handler(self._watch),
            "Explain": grpc.unary_unary_rpc_method_handler(self._explain),
            "GetOccupancy": grpc.unary_unary_rpc_method_handler(self._get_occupancy),
            "WatchOccupancy": grpc.unary_stream_rpc_method_handler(self._watch_occupancy),
        }
        return grpc.method_handlers_generic_handler(SERVICE, handlers)

    # --- methods ---

    async def _status(self, data: bytes, context: Context) -> bytes:
        await _decode(v1.StatusRequest, data, context)
        return await self._answer(v1.StatusResponse(state=self._feed.whole()), context)

    async def _watch(self, data: bytes, context: Context) -> None:
        await self._send(self._events(await _decode(v1.WatchRequest, data, context)), context)

    async def _send(self, events: AsyncIterator[bytes], context: Context) -> None:
        if self._watchers >= MAX_WATCHERS:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, f"{MAX_WATCHERS} clients watch already")
        self._watchers += 1
        try:
            async for event in events:
                try:
                    async with asyncio.timeout(_READ_SECONDS):
                        await context.write(event)
                except TimeoutError:
                    await context.abort(grpc.StatusCode.ABORTED, f"an event was not read within {_READ_SECONDS:g} s")
        finally:
            self._watchers -= 1

    async def _events(self, request: v1.WatchRequest) -> AsyncIterator[bytes]:
        feed = self._feed
        beat = min(request.beat_seconds or _BEAT_SECONDS, _MAX_BEAT_SECONDS)
        resume = (request.resume.epoch, request.resume.generation)
        at = feed.find(resume) if request.HasField("resume") else None
        if at is None:
            at = feed.number
            yield _whole(feed, 0)
        elif feed.number == at:
            yield v1.WatchEvent(kind=v1.WatchEvent.CHANGE, state=feed.node_only()).SerializeToString()
        while True:
            if not await feed.wait(at, beat):
                position = v1.Position(epoch=feed.position[0], generation=feed.position[1])
                yield v1.WatchEvent(kind=v1.WatchEvent.BEAT, state=v1.State(position=position)).SerializeToString()
            elif (change := feed.after(at)) is not None:
                at = change.number
                yield change.event
            else:
                lost, at = feed.number - at, feed.number
                yield _whole(feed, lost)

    async def _get_occupancy(self, data: bytes, context: Context) -> bytes:
        await _decode(v1.GetOccupancyRequest, data, context)
        report = self._occupancy.of(self._board.read()[1])
        text = self._occupancy.whole(report)
        return await self._answer(v1.GetOccupancyResponse(position=position_of(report), report_json=text), context)

    async def _watch_occupancy(self, data: bytes, context: Context) -> None:
        request = await _decode(v1.WatchOccupancyRequest, data, context)
        await self._send(self._occupancy_events(request), context)

    async def _occupancy_events(self, request: v1.WatchOccupancyRequest) -> AsyncIterator[bytes]:
        feed, reports = self._feed, self._occupancy
        beat = min(request.beat_seconds or _BEAT_SECONDS, _MAX_BEAT_SECONDS)
        at = feed.number
        report = reports.of(self._board.read()[1])
        sent = reports.find(request.resume) if request.HasField("resume") else None
        if sent is None:
            kind, sent = v1.OccupancyEvent.WHOLE, report
            text = reports.whole(report)
            yield v1.OccupancyEvent(kind=kind, position=position_of(report), report_json=text).SerializeToString()
        while True:
            report = reports.of(self._board.read()[1])
            if report is not sent:
                yield change_event(sent, report).SerializeToString()
                sent = report
            elif not await feed.wait(at, beat):
                kind = v1.OccupancyEvent.BEAT
                yield v1.OccupancyEvent(kind=kind, position=position_of(sent)).SerializeToString()
            at = feed.number

    async def _explain(self, data: bytes, context: Context) -> bytes:
        request = await _decode(v1.ExplainRequest, data, context)
        if self._waiting >= MAX_WAITING:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many explanations are asked for at once")
        self._waiting += 1
        try:
            async with self._explaining:  # costs as much as a decision or many
                view = self._board.read()[1]
                explained = await asyncio.to_thread(_explanations, view, request)
        except LookupError as error:
            await context.abort(grpc.StatusCode.NOT_FOUND, str(error.args[0]))
        except AgentError as error:
            await context.abort(
                grpc.StatusCode.INVALID_ARGUMENT, f"{error} ({error.hint})" if error.hint else str(error)
            )
        finally:
            self._waiting -= 1
        messages = [explanation_message(each.text, each.encoded, json.dumps(each.encoded)) for each in explained]
        return await self._answer(v1.ExplainResponse(explanations=messages), context)

    async def _answer(self, message: Message, context: Context) -> bytes:
        """Its bytes. Ends the call where too many wait already."""
        answer = message.SerializeToString()
        if not self._unread.take(len(answer), context):
            del message, answer  # the error's traceback would keep them until the client is gone
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, TOO_MANY_UNREAD)
        return answer


async def _decode(kind: type[M], data: bytes, context: Context) -> M:
    """The request. What is no message ends the call."""
    try:
        return kind.FromString(data)
    except DecodeError as error:
        await context.abort(grpc.StatusCode.INTERNAL, f"grpc: error unmarshalling request: {error}")
        raise AssertionError from error  # abort has raised


def _whole(feed: NodeFeed, lost: int) -> bytes:
    event = v1.WatchEvent(kind=v1.WatchEvent.WHOLE, state=feed.whole(), lost_changes=lost)
    return event.SerializeToString()


class TooManyManifestsError(AgentError):
    """More pods than one call may ask about."""


def _explanations(view: NodeView, request: v1.ExplainRequest) -> list[Explanation]:
    """Of a pod that is known by name, or of a manifest's pods. Raises LookupError where the name is unknown, AgentError."""
    if request.WhichOneof("subject") != "manifest":
        pod = find_pod(view, request.pod)
        if pod is None:
            raise LookupError(f"no pod {request.pod} is here, and none was refused")
        return [explain(view.managers, view.capacity, view.state, pod, view.devices)]
    found = decode_manifests(request.manifest, "manifest", pod_level_resources=view.managers.gates.pod_level_resources)
    if found.problems:
        raise found.problems[0]
    if len(found.pods) > MAX_EXPLAINED:
        raise TooManyManifestsError(f"{len(found.pods)} pods", hint=f"ask about {MAX_EXPLAINED} at a time")
    return list(explain_each(view.managers, view.capacity, view.state, (each.pod for each in found.pods)))
