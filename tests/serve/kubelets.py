"""A server that stands for a kubelet's PodResources socket: real gRPC, answers as a test tells it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent import futures
from contextlib import contextmanager
from pathlib import Path

import grpc

from agent.proto import podresources_v1_pb2 as v1
from agent.proto import podresources_v1_pb2_grpc as v1_grpc


class Kubelet(v1_grpc.PodResourcesListerServicer):
    """hang: it never answers. refusal: what it answers instead. devices: all that the node has."""

    def __init__(self, *pods: v1.PodResources, devices: list[v1.ContainerDevices] | None = None) -> None:
        self.pods = list(pods)
        self.devices = devices or []
        self.hang = False
        self.refusal: grpc.StatusCode | None = None
        self.asked = 0

    def List(self, request: object, context: grpc.ServicerContext) -> v1.ListPodResourcesResponse:  # noqa: N802 - the method's name
        self.asked += 1
        if self.hang:
            time.sleep(5)
        if self.refusal is not None:
            context.abort(self.refusal, "rejected by rate limit")
        return v1.ListPodResourcesResponse(pod_resources=self.pods)

    def GetAllocatableResources(self, request: object, context: object) -> v1.AllocatableResourcesResponse:  # noqa: N802
        return v1.AllocatableResourcesResponse(devices=self.devices, cpu_ids=[4095])

    def Get(self, request: object, context: object) -> v1.GetPodResourcesResponse:  # noqa: N802
        raise NotImplementedError("pinfold asks for lists")


@contextmanager
def serving(kubelet: Kubelet, path: Path) -> Iterator[None]:
    server = grpc.server(futures.ThreadPoolExecutor(4))
    v1_grpc.add_PodResourcesListerServicer_to_server(kubelet, server)
    server.add_insecure_port(f"unix:{path}")
    server.start()
    try:
        yield
    finally:
        server.stop(None).wait()


def device(resource: str, *names: str, numa: int | None = None) -> v1.ContainerDevices:
    """Devices of one NUMA node, or of none."""
    topology = None if numa is None else v1.TopologyInfo(nodes=[v1.NUMANode(ID=numa)])
    return v1.ContainerDevices(resource_name=resource, device_ids=names, topology=topology)


def holding(pod: str, *devices: v1.ContainerDevices, container: str = "main") -> v1.PodResources:
    """A pod in namespace default with these devices."""
    told = v1.ContainerResources(name=container, devices=devices)
    return v1.PodResources(name=pod, namespace="default", containers=[told])
