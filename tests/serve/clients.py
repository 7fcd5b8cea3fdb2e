"""PodResources clients for tests: generated stubs over a real socket."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import grpc

from agent.proto import podresources_v1_pb2 as v1
from agent.proto.podresources_v1_pb2_grpc import PodResourcesListerStub

SECONDS = 20.0  # for a call; a test machine may be busy


@contextmanager
def channel(path: Path) -> Iterator[grpc.Channel]:
    options = [("grpc.max_receive_message_length", 64 << 20), ("grpc.use_local_subchannel_pool", 1)]
    with grpc.insecure_channel(f"unix:{quote(str(path))}", options=options) as opened:
        yield opened


@contextmanager
def client(path: Path) -> Iterator[PodResourcesListerStub]:
    with channel(path) as opened:
        yield PodResourcesListerStub(opened)


def raw_call(opened: grpc.Channel, method: str) -> Callable[..., bytes]:
    """A method as bytes in, bytes out."""
    call: Callable[..., bytes] = opened.unary_unary(method, request_serializer=bytes, response_deserializer=bytes)
    return call


def names(stub: PodResourcesListerStub) -> list[str]:
    """The pods of one List."""
    return [pod.name for pod in stub.List(v1.ListPodResourcesRequest(), timeout=SECONDS).pod_resources]


def code_of(stub: PodResourcesListerStub) -> str:
    """The status code of one List."""
    try:
        stub.List(v1.ListPodResourcesRequest(), timeout=SECONDS)
    except grpc.RpcError as error:
        return error.code().name
    return "OK"
