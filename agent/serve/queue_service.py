"""The accountant's query API over gRPC, `pinfold.queues.v1.Queues`, with health and reflection beside it. It only tells.

Answers are those of HTTP: their JSON is the JSON form of the messages, in both directions, so the two cannot differ.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import quote

import grpc
import grpc.aio
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import DecodeError, Message
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from agent.errors import AgentError
from agent.proto import queues_v1_pb2 as v1
from agent.queues.what_if import MAX_BYTES
from agent.serve.grpc_bounds import TOO_MANY_UNREAD, Bounds, Unread, bounded_server
from agent.serve.grpc_tls import GRPCCertificates
from agent.serve.http import HTTPAddressError
from agent.serve.http_messages import is_loopback
from agent.serve.json_messages import message_of
from agent.serve.loop import ServingLoop
from agent.serve.queue_questions import (
    Answer,
    BusyError,
    NotInSyncError,
    QueueQuestions,
    StandbyError,
    UnknownNameError,
)
from agent.serve.sockets import SocketAccess, SocketFile, SocketPathError

SERVICE = v1.DESCRIPTOR.services_by_name["Queues"].full_name
MAX_UNDER_WAY = 16  # questions
_THREADS = 4  # of its own: questions that take long must not hold up probes and scrapes
_STOP_SECONDS = 1.0
UNREAD_BYTES = 16 * 1024 * 1024  # kept twice: every answer is made for its call
BOUNDS = Bounds(connections=128, streams=16, request_bytes=MAX_BYTES, calls=4 * MAX_UNDER_WAY)
_CODES: dict[type[AgentError], grpc.StatusCode] = {
    StandbyError: grpc.StatusCode.UNAVAILABLE,
    NotInSyncError: grpc.StatusCode.FAILED_PRECONDITION,
    UnknownNameError: grpc.StatusCode.NOT_FOUND,
    BusyError: grpc.StatusCode.RESOURCE_EXHAUSTED,
}

Context = grpc.aio.ServicerContext[bytes, bytes]
Ask = Callable[[Any], Answer]  # by the request as its JSON form


class QueueService:
    """Serves between `start` and `stop`, on a socket, on an address, or on both.

    access: of the unix socket, None for none. port: of the address; 0: none, unless there is no socket: then a free one, which
    `port` tells. tls: needed beyond loopback, with a CA of clients.
    """

    def __init__(
        self,
        loop: ServingLoop,
        questions: QueueQuestions,
        access: SocketAccess | None = None,
        address: str = "127.0.0.1",
        port: int = 0,
        tls: GRPCCertificates | None = None,
    ) -> None:
        self.address = address
        self.port = port
        self._loop = loop
        self._questions = questions
        self._file = None if access is None else SocketFile(access)
        self._tls = tls
        self._health = health.aio.HealthServicer()  # type: ignore[attr-defined] # missing in the stubs
        self._server: grpc.aio.Server | None = None
        self._under_way = 0
        self._unread = Unread(UNREAD_BYTES)
        self._threads = ThreadPoolExecutor(_THREADS, "questions")

    def start(self) -> None:
        """Begin to answer. Raises SocketInUseError, SocketPathError, HTTPAddressError, CertificateError."""
        self._loop.run(self._start())

    def stop(self) -> None:
        """Remove the socket and close; a question under way is cut off after a second."""
        self._loop.run(self._stop())

    def show(self, *, ready: bool) -> None:
        """What the health service says from now on."""
        serving = health_pb2.HealthCheckResponse
        status = serving.SERVING if ready else serving.NOT_SERVING
        self._loop.run(self._set(status))

    async def _set(self, status: health_pb2.HealthCheckResponse.ServingStatus) -> None:
        for name in ("", SERVICE):
            await self._health.set(name, status)

    async def _start(self) -> None:
        await self._set(health_pb2.HealthCheckResponse.NOT_SERVING)
        server = bounded_server(BOUNDS)
        server.add_generic_rpc_handlers((self._handlers(),))
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        names = (SERVICE, health_pb2.DESCRIPTOR.services_by_name["Health"].full_name, reflection.SERVICE_NAME)
        reflection.enable_server_reflection(names, server)
        if self._file is not None:
            path = self._file.claim()
            try:
                server.add_insecure_port(f"unix:{quote(str(path))}")
            except RuntimeError as error:
                raise SocketPathError(self._file.access.path, f"cannot listen: {error}", "see the log above") from error
        if self._file is None or self.port:
            self._listen(server)
        self._server = server
        await server.start()
        if self._file is not None:
            self._file.expose()

    def _listen(self, server: grpc.aio.Server) -> None:
        if not is_loopback(self.address) and (self._tls is None or not self._tls.asks_for_certificates):
            raise HTTPAddressError(
                f"queues.grpc: {self.address} is not a loopback address", hint="give certificate, key and clientCA"
            )
        target = f"[{self.address}]:{self.port}" if ":" in self.address else f"{self.address}:{self.port}"
        try:
            if self._tls is None:
                self.port = server.add_insecure_port(target)
            else:
                self.port = server.add_secure_port(target, self._tls.credentials())
        except RuntimeError as error:
            hint = "stop what listens there, or set queues.grpc.port to another one"
            raise HTTPAddressError(f"{self.address} port {self.port}: cannot listen", hint=hint) from error

    async def _stop(self) -> None:
        if self._file is not None:
            self._file.release()
        if self._server is not None:
            await self._server.stop(_STOP_SECONDS)
            self._server = None
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _handlers(self) -> grpc.GenericRpcHandler[bytes, bytes]:
        asked = self._questions
        methods: dict[str, tuple[type[Message], type[Message], Ask]] = {
            "ListQueues": (v1.ListQueuesRequest, v1.ListQueuesResponse, lambda _: asked.queues()),
            "GetQueue": (
                v1.GetQueueRequest,
                v1.GetQueueResponse,
                lambda question: asked.queue(question.get("name", "")),
            ),
            "GetFairShares": (v1.GetFairSharesRequest, v1.GetFairSharesResponse, lambda _: asked.fair_shares()),
            "ListReservations": (
                v1.ListReservationsRequest,
                v1.ListReservationsResponse,
                lambda _: asked.reservations(),
            ),
            "ListNodes": (v1.ListNodesRequest, v1.ListNodesResponse, lambda _: asked.nodes()),
            "CheckResize": (v1.CheckResizeRequest, v1.CheckResizeResponse, asked.check_resize),
            "Reclaim": (v1.ReclaimRequest, v1.ReclaimResponse, asked.reclaim),
            "Simulate": (v1.SimulateRequest, v1.SimulateResponse, asked.simulate),
        }
        handlers = {name: grpc.unary_unary_rpc_method_handler(self._method(*each)) for name, each in methods.items()}
        return grpc.method_handlers_generic_handler(SERVICE, handlers)

    def _method(
        self, request: type[Message], response: type[Message], ask: Ask
    ) -> Callable[[bytes, Context], Awaitable[bytes]]:
        # Without serializers the methods get the message bytes as they are: what is no message must not fill the log.
        async def method(data: bytes, context: Context) -> bytes:
            if self._under_way >= MAX_UNDER_WAY:
                await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "too much is asked at once; try again")
            self._under_way += 1
            try:
                here = asyncio.get_running_loop()
                answer = await here.run_in_executor(self._threads, _answer, data, request, response, ask)
            except DecodeError as error:
                await context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"not a {request.DESCRIPTOR.name}: {error}")
            except AgentError as error:
                code = next((code for kind, code in _CODES.items() if isinstance(error, kind)), None)
                text = f"{error} ({error.hint})" if error.hint else str(error)
                await context.abort(code or grpc.StatusCode.INVALID_ARGUMENT, text)
            finally:
                self._under_way -= 1
            if not self._unread.take(len(answer), context):
                del answer  # the error's traceback would keep it until the client is gone
                await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, TOO_MANY_UNREAD)
            return answer

        return method


def _answer(data: bytes, request: type[Message], response: type[Message], ask: Ask) -> bytes:
    """Raises DecodeError, AgentError."""
    question = MessageToDict(request.FromString(data))
    return message_of(ask(question).encoded(), response).SerializeToString()
