"""The sections of whoever is served on this host: PodResources, node service, HTTP, control. Meaning: `agent.server_config`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from agent.config_schema_values import PathText, Section, SocketMode, check_address, check_certificates


class ClientGroup(Section):
    """A further PodResources socket for one group of clients, with a rate limit of its own; qps 0: none."""

    socket: PathText
    mode: SocketMode = "0660"
    group: str = ""
    qps: Annotated[float, Field(ge=0)] = 100.0
    burst: Annotated[int, Field(ge=1)] = 10


class UpstreamSection(Section):
    """Another PodResources server, the kubelet's say, whose devices and dynamic resources are passed through. The NUMA nodes of
    a pod's devices are hints for its CPUs and memory. periodSeconds: between two questions where nothing changes; when other
    pods are here it is asked at once, and soon again. waitSeconds: how long a pod beside a kubelet that asks for devices stays
    unplaced until they are told; 0: it is placed at once.
    """

    socket: PathText = "/var/lib/kubelet/pod-resources/kubelet.sock"
    periodSeconds: Annotated[float, Field(ge=0.05, le=3600)] = 60.0
    timeoutSeconds: Annotated[float, Field(gt=0, le=60)] = 2.0
    waitSeconds: Annotated[float, Field(ge=0, le=300)] = 2.0


class PodResourcesSection(Section):
    """The PodResources socket. qps 0: no rate limit. shape: which release's answers are given; default by kubeletVersion.

    clients: name of the group, a label of the metrics -> its socket. upstream: None for none.
    """

    socket: PathText = "/run/pinfold/pod-resources/kubelet.sock"
    mode: SocketMode = "0660"
    group: str = ""
    qps: Annotated[float, Field(ge=0)] = 100.0
    burst: Annotated[int, Field(ge=1)] = 10
    shape: Literal["1.36", "1.37"] | None = None
    clients: Annotated[
        dict[Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]{0,31}$")], ClientGroup], Field(max_length=16)
    ] = {}
    upstream: UpstreamSection | None = None

    @model_validator(mode="after")
    def _sockets(self) -> PodResourcesSection:
        sockets = [self.socket, *(each.socket for each in self.clients.values())]
        twice = {path for path in sockets if sockets.count(path) > 1}
        if twice:
            raise ValueError(f"two groups of clients have one socket: {min(twice)}")
        if "default" in self.clients:
            raise ValueError("clients: the group `default` is the one of podResources.socket itself")
        if self.upstream is not None and self.upstream.socket in sockets:
            raise ValueError(f"upstream: {self.upstream.socket} is pinfold's own socket")
        return self


class NodeServiceSection(Section):
    """The node service's socket (pinfold.node.v1), which only tells. An empty path: none."""

    socket: str = "/run/pinfold/node.sock"
    mode: SocketMode = "0660"
    group: str = ""


class HTTPSection(Section):
    """Status page, metrics and health over HTTP. port 0: none. With certificate and key https; beyond loopback they and clientCA
    are needed: clients without a certificate of it get the metrics alone.
    """

    address: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535)] = 9557
    kubeletMetrics: bool = True
    certificate: str = ""
    key: str = ""
    clientCA: str = ""

    @model_validator(mode="after")
    def _beyond_loopback(self) -> HTTPSection:
        check_certificates(self.certificate, self.key, self.clientCA)
        check_address(self.address, self.clientCA)
        return self


class ControlSection(Section):
    """The socket that carries what changes anything; root's alone."""

    socket: PathText = "/run/pinfold/control.sock"
