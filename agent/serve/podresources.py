"""The PodResources services on unix sockets, answered from bytes that were made when the node last changed.

One socket per configured client group, each with its own rate limit, so that a busy group takes nothing from the others. The
kubelet has one socket and one limit. Source: kubelet apis/podresources/server_v1.go, server_v1alpha1.go, grpc/ratelimit.go.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias
from urllib.parse import quote

import grpc
import grpc.aio
from google.protobuf.message import DecodeError, Message

from agent.formats.podresources import Answers
from agent.proto import podresources_v1_pb2 as v1
from agent.proto import podresources_v1alpha1_pb2 as v1alpha1
from agent.serve.grpc_bounds import TOO_MANY_UNREAD, Bounds, Unread, bounded_server
from agent.serve.loop import ServingLoop
from agent.serve.sockets import SocketAccess, SocketFile, SocketPathError
from agent.serve.token_bucket import RateLimit, TokenBucket

KUBELET_LIMIT = RateLimit(per_second=100.0, burst=10)
RATE_LIMITED = "rejected by rate limit"  # the kubelet's text
UNREAD_BYTES = 16 * 1024 * 1024
# The largest real request holds two names, 320 bytes. So many calls that one refused for them would be over the rate limit, too.
BOUNDS = Bounds(connections=320, streams=8, request_bytes=4096, calls=1000)
_STOP_SECONDS = 1.0  # for calls that are being answered; an answer that is not read by then is dropped
_OPTIONS = (
    # One that answers pings but opens no flow-control window ends with its connection. Others reconnect without noticing.
    ("grpc.max_connection_age_ms", 600_000),
    ("grpc.max_connection_age_grace_ms", 10_000),
)

Context: TypeAlias = grpc.aio.ServicerContext[bytes, bytes]
Handler: TypeAlias = Callable[[bytes, Context], Awaitable[bytes]]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One socket. client_group: who it is for, a label of the metrics. limit: None for none.

    unread_bytes: how much may wait for clients that do not read before further calls are refused.
    """

    access: SocketAccess
    client_group: str = "default"
    limit: RateLimit | None = KUBELET_LIMIT
    unread_bytes: int = UNREAD_BYTES


@dataclass(frozen=True, slots=True)
class CallKind:
    """What the counters tell apart. code: the gRPC status of the answer, as in StatusCode's names."""

    client_group: str
    api_version: str
    method: str
    code: str


class RefusedError(Exception):
    """A call that is answered with an error."""

    def __init__(self, code: grpc.StatusCode, text: str) -> None:
        super().__init__(text)
        self.code = code


@dataclass(frozen=True, slots=True)
class Method:
    """One method of the services. answer: raises RefusedError where there is none."""

    api_version: str
    name: str
    request: type[Message]
    answer: Callable[[Answers, Message], bytes]


def _get(answers: Answers, request: Message) -> bytes:
    assert isinstance(request, v1.GetPodResourcesRequest)
    answer = answers.get.get((request.pod_namespace, request.pod_name))
    if answer is None:
        # The kubelet returns a plain Go error here, which gRPC sends as UNKNOWN.
        text = f"pod {request.pod_name} in namespace {request.pod_namespace} not found"
        raise RefusedError(grpc.StatusCode.UNKNOWN, text)
    return answer


METHODS = (
    Method("v1", "List", v1.ListPodResourcesRequest, lambda answers, _: answers.list),
    Method("v1", "GetAllocatableResources", v1.AllocatableResourcesRequest, lambda answers, _: answers.allocatable),
    Method("v1", "Get", v1.GetPodResourcesRequest, _get),
    Method("v1alpha1", "List", v1alpha1.ListPodResourcesRequest, lambda answers, _: answers.list_v1alpha1),
)


class PodResourcesServer:
    """Serves PodResources on every endpoint between `start` and `stop`. `publish` may be called from any thread."""

    def __init__(self, loop: ServingLoop, endpoints: Sequence[Endpoint]) -> None:
        self._loop = loop
        self._answers = Answers()
        self._servings = [_Serving(endpoint, lambda: self._answers) for endpoint in endpoints]

    def start(self, answers: Answers) -> None:
        """Begin to answer. Raises SocketInUseError or SocketPathError, and then serves nothing."""
        self.publish(answers)
        try:
            for serving in self._servings:
                self._loop.run(serving.start())
        except BaseException:
            self.stop()
            raise

    def publish(self, answers: Answers) -> None:
        """Answer from these from now on."""
        self._answers = answers

    def stop(self) -> None:
        """Remove the sockets, let calls that are being answered end, and close."""
        for serving in self._servings:
            self._loop.run(serving.stop())

    def calls(self) -> Mapping[CallKind, int]:
        """How many calls were answered since the start, by kind; every method of every endpoint has an entry for OK."""
        copies = [dict(serving.calls) for serving in self._servings]  # in one step each: calls go on meanwhile
        return {kind: count for copy in copies for kind, count in copy.items()}


class _Serving:
    """One endpoint's socket, server, limits and counters. Lives on the event loop."""

    def __init__(self, endpoint: Endpoint, answers: Callable[[], Answers]) -> None:
        self._endpoint = endpoint
        self._answers = answers
        self._file = SocketFile(endpoint.access)
        self._bucket = TokenBucket(endpoint.limit) if endpoint.limit else None
        self._unread = Unread(endpoint.unread_bytes)
        self._server: grpc.aio.Server | None = None
        self.calls: Counter[CallKind] = Counter({self._kind(method, grpc.StatusCode.OK): 0 for method in METHODS})

    async def start(self) -> None:
        path = self._file.claim()
        server = bounded_server(BOUNDS, _OPTIONS)
        server.add_generic_rpc_handlers(tuple(self._services()))
        try:
            server.add_insecure_port(f"unix:{quote(str(path))}")
        except RuntimeError as error:
            raise SocketPathError(self._endpoint.access.path, f"cannot listen: {error}", "see the log above") from error
        self._server = server
        await server.start()
        self._file.expose()

    async def stop(self) -> None:
        self._file.release()
        if self._server is not None:
            await self._server.stop(_STOP_SECONDS)
            self._server = None

    def _services(self) -> list[grpc.GenericRpcHandler[bytes, bytes]]:
        services: dict[str, dict[str, grpc.RpcMethodHandler[bytes, bytes]]] = {}
        for method in METHODS:
            handlers = services.setdefault(f"{method.api_version}.PodResourcesLister", {})
            # Without serializers the handler gets and returns the message bytes as they are.
            handlers[method.name] = grpc.unary_unary_rpc_method_handler(self._handler(method))
        return [grpc.method_handlers_generic_handler(service, handlers) for service, handlers in services.items()]

    def _handler(self, method: Method) -> Handler:
        ok = self._kind(method, grpc.StatusCode.OK)

        async def handle(request: bytes, context: Context) -> bytes:
            try:
                answer = self._answer(method, request, context)
            except RefusedError as refusal:
                self.calls[self._kind(method, refusal.code)] += 1
                await context.abort(refusal.code, str(refusal))
            self.calls[ok] += 1
            return answer

        return handle

    def _answer(self, method: Method, request: bytes, context: Context) -> bytes:
        if self._bucket is not None and not self._bucket.take():
            raise RefusedError(grpc.StatusCode.RESOURCE_EXHAUSTED, RATE_LIMITED)
        try:
            message = method.request.FromString(request)
        except DecodeError as error:
            text = f"grpc: error unmarshalling request: {error}"
            raise RefusedError(grpc.StatusCode.INTERNAL, text) from error
        answer = method.answer(self._answers(), message)
        if not self._unread.take(len(answer), context):
            raise RefusedError(grpc.StatusCode.RESOURCE_EXHAUSTED, TOO_MANY_UNREAD)
        return answer

    def _kind(self, method: Method, code: grpc.StatusCode) -> CallKind:
        return CallKind(self._endpoint.client_group, method.api_version, method.name, code.name)
