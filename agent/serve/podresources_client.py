"""PodResources as a monitoring agent calls it, on the socket of pinfold or of a kubelet, and what its answers mean."""

from __future__ import annotations

import grp
import os
import pwd
import socket
import stat
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote

import grpc

from agent.errors import AgentError
from agent.model.cpuset import MAX_CPUS, CPUSet
from agent.model.numa import node_mask
from agent.proto import podresources_v1_pb2 as v1
from agent.proto.podresources_v1_pb2_grpc import PodResourcesListerStub

PODRESOURCES_SOCKET = Path("/run/pinfold/pod-resources/kubelet.sock")
RECEIVE_BYTES = 16 * 1024 * 1024  # what kubelet clients commonly ask for

T = TypeVar("T")


class PodResourcesConnectError(AgentError):
    """The socket cannot be used."""


class PodResourcesCallError(AgentError):
    """The server answered with an error, or with something that is no sensible answer."""


class PodNotFoundError(AgentError):
    """The server knows no such active pod."""

    exit_status = 1


@dataclass(frozen=True, slots=True)
class Seen:
    """One look at a server. found: the pods asked for."""

    found: tuple[v1.PodResources, ...]
    allocatable: v1.AllocatableResourcesResponse


def look(path: Path, pod: tuple[str, str] | None, timeout_seconds: float) -> Seen:
    """List every pod, or Get one by (namespace, name), and GetAllocatableResources.

    Raises PodResourcesConnectError, PodResourcesCallError, PodNotFoundError.
    """
    _try_connect(path)
    with grpc.insecure_channel(
        f"unix:{quote(str(path))}", options=[("grpc.max_receive_message_length", RECEIVE_BYTES)]
    ) as channel:
        stub = PodResourcesListerStub(channel)

        def call(function: Callable[..., T], request: object) -> T:
            return function(request, timeout=timeout_seconds)

        try:
            allocatable = call(stub.GetAllocatableResources, v1.AllocatableResourcesRequest())
            if pod is None:
                return Seen(tuple(call(stub.List, v1.ListPodResourcesRequest()).pod_resources), allocatable)
            namespace, name = pod
            try:
                answer = call(stub.Get, v1.GetPodResourcesRequest(pod_name=name, pod_namespace=namespace))
            except grpc.RpcError as error:
                if "not found" not in (error.details() or ""):
                    raise
                listed = call(stub.List, v1.ListPodResourcesRequest()).pod_resources
                raise _not_found(path, namespace, name, listed) from error
            return Seen((answer.pod_resources,), allocatable)
        except grpc.RpcError as error:
            raise _call_error(path, error) from error


def cpu_set(ids: Iterable[int]) -> CPUSet:
    """CPU ids as a set. Raises PodResourcesCallError for ids that no machine has."""
    found = list(ids)
    if any(not 0 <= cpu < MAX_CPUS for cpu in found):
        raise PodResourcesCallError("the answer holds impossible CPU ids", hint="see who listens on that socket")
    return CPUSet.of(found)


def block_nodes(memory: v1.ContainerMemory) -> CPUSet:
    """The NUMA nodes of a memory entry, as a set that prints in kernel syntax. Raises PodResourcesCallError."""
    return CPUSet(node_mask(cpu_set(node.ID for node in memory.topology.nodes)))


def why_no_cpus(
    pod: v1.PodResources, container: v1.ContainerResources, allocatable: v1.AllocatableResourcesResponse
) -> str:
    """Why a container tells no CPUs, as far as the answers say; "" where it tells some."""
    if container.cpu_ids:
        return ""
    if pod.cpu_ids:
        return "runs on the pod's shared pool: the pod's CPUs without its containers' own ones"
    if not allocatable.cpu_ids:
        return "CPU policy none: no container gets CPUs of its own"
    return "runs on the node's shared pool: CPUs of its own take a Guaranteed pod and a whole number of CPUs"


def why_no_memory(
    pod: v1.PodResources, container: v1.ContainerResources, allocatable: v1.AllocatableResourcesResponse
) -> str:
    """The same for memory blocks."""
    if container.memory:
        return ""
    if pod.memory:
        return "uses the pod's memory, on the pod's NUMA nodes"
    if not allocatable.memory:
        return "memory policy None: no container gets memory of certain NUMA nodes"
    return "memory of certain NUMA nodes takes a Guaranteed pod"


def _try_connect(path: Path) -> None:
    """Connect once by hand: gRPC tells only that a server is unavailable, not why."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.settimeout(2.0)
            probe.connect(os.fspath(path))
    except FileNotFoundError as error:
        hint = "start the agent (systemctl start pinfold), or name its socket with --socket"
        raise PodResourcesConnectError(f"{path}: no such socket", hint=hint) from error
    except PermissionError as error:
        hint = "join the group that owns the socket, or run as root; podResources.group and mode configure it"
        raise PodResourcesConnectError(f"{path}: not permitted{_ownership(path)}", hint=hint) from error
    except ConnectionRefusedError as error:
        hint = "a process that died left the socket; start the agent (systemctl start pinfold)"
        raise PodResourcesConnectError(f"{path}: nobody listens", hint=hint) from error
    except OSError as error:
        hint = "see whether the path is a socket and its server answers"
        raise PodResourcesConnectError(f"{path}: {error.strerror or error}", hint=hint) from error


def _ownership(path: Path) -> str:
    try:
        found = path.stat()
        owner, group = pwd.getpwuid(found.st_uid).pw_name, grp.getgrgid(found.st_gid).gr_name
    except (OSError, KeyError):
        return ""
    return f" (owner {owner}, group {group}, mode {stat.S_IMODE(found.st_mode):04o})"


def _not_found(path: Path, namespace: str, name: str, listed: Iterable[v1.PodResources]) -> PodNotFoundError:
    elsewhere = sorted(pod.namespace for pod in listed if pod.name == name)
    hint = "only active pods are told: one that was refused, has ended or is not there yet is not (pinfold status)"
    if elsewhere:
        hint = f"there is one of that name in namespace {', '.join(elsewhere)}: name it {elsewhere[0]}/{name}"
    return PodNotFoundError(f"{path}: pod {name} in namespace {namespace} not found", hint=hint)


def _call_error(path: Path, error: grpc.RpcError) -> PodResourcesCallError:
    code = error.code()
    hints = {
        grpc.StatusCode.RESOURCE_EXHAUSTED: "another client uses up the rate limit; try again, or raise podResources.qps",
        grpc.StatusCode.UNIMPLEMENTED: "this server is too old for the call, or is no PodResources server",
        grpc.StatusCode.DEADLINE_EXCEEDED: "the server hangs; see its log",
    }
    return PodResourcesCallError(
        f"{path}: {code.name}: {error.details()}", hint=hints.get(code, "see the server's log")
    )
