"""The container runtime's socket (CRI, runtime.v1): whose containers run, and cpusets through the runtime instead of past it.

What a runtime answers is not taken for the truth: an update of an exited container says OK, a failed one may be half applied, and
its status then still shows the old values. So every kind of setting is sent alone, and the cgroup is read back.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import TypeVar

import grpc

from agent.model.cpuset import CPUSet
from agent.node.cgroup import Hierarchy
from agent.node.cgroup_errors import (
    CgroupError,
    CgroupGoneError,
    CgroupPermissionError,
    NotEffectiveError,
    RuntimeCallError,
)
from agent.node.enforcer import Groups
from agent.policy.cgroup_names import ContainerCgroup, parse_cgroup
from agent.policy.cgroup_settings import CFS_PERIOD_US, Observed, Settings
from agent.proto import cri_runtime_v1_pb2 as cri
from agent.proto import cri_runtime_v1_pb2_grpc as cri_grpc

POD_UID = "io.kubernetes.pod.uid"  # the kubelet's labels (pkg/kubelet/types/labels.go)
CONTAINER_NAME = "io.kubernetes.container.name"
MAX_ANSWER = 16 << 20  # bytes, as the kubelet's own client
Request = TypeVar("Request")
Answer = TypeVar("Answer")
_ALIVE = (cri.CONTAINER_CREATED, cri.CONTAINER_RUNNING)


class CRIClient:
    """endpoint: a socket's path, with or without unix:// in front. Calls take `timeout_seconds` at most."""

    def __init__(self, endpoint: str, timeout_seconds: float = 10.0) -> None:
        self._path = endpoint.removeprefix("unix://")
        self._timeout = timeout_seconds
        self._channel = grpc.insecure_channel(
            f"unix://{self._path}",
            options=[
                ("grpc.max_receive_message_length", MAX_ANSWER),
                ("grpc.max_reconnect_backoff_ms", 2000),  # a runtime is back seconds after its restart
                ("grpc.enable_http_proxy", 0),
                ("grpc.http2.bdp_probe", 0),  # a local socket has no delay to measure
            ],
        )
        self._stub = cri_grpc.RuntimeServiceStub(self._channel)

    def close(self) -> None:
        self._channel.close()

    def version(self) -> str:
        """ "containerd 1.6.20". Raises RuntimeCallError."""
        answer = self._call(self._stub.Version, cri.VersionRequest(version="v1"))
        return f"{answer.runtime_name} {answer.runtime_version}"

    def instances(self) -> Mapping[str, ContainerCgroup]:
        """The containers that are created or run, by id, as the kubelet has labelled them. Raises RuntimeCallError.

        Sandboxes are listed after the containers, so that one whose sandbox came in between is not missed.
        """
        containers = self._call(self._stub.ListContainers, cri.ListContainersRequest()).containers
        sandboxes = self._call(self._stub.ListPodSandbox, cri.ListPodSandboxRequest()).items
        uids = {each.id: each.labels.get(POD_UID) or each.metadata.uid for each in sandboxes}
        found: dict[str, ContainerCgroup] = {}
        for each in containers:
            uid = each.labels.get(POD_UID) or uids.get(each.pod_sandbox_id, "")
            name = each.labels.get(CONTAINER_NAME) or each.metadata.name
            if each.state in _ALIVE and uid and name:
                found[each.id] = ContainerCgroup(uid, name)
        return found

    def update(self, container_id: str, resources: cri.LinuxContainerResources) -> None:
        """Tell one container. Raises CgroupGoneError for one that is not there, RuntimeCallError for all else."""
        request = cri.UpdateContainerResourcesRequest(container_id=container_id, linux=resources)
        self._call(self._stub.UpdateContainerResources, request)

    def _call(self, method: grpc.UnaryUnaryMultiCallable[Request, Answer], request: Request) -> Answer:
        try:
            return method(request, timeout=self._timeout)
        except grpc.RpcError as error:
            code, text = error.code(), (error.details() or "")[:500]
            if code is grpc.StatusCode.NOT_FOUND:
                raise CgroupGoneError(self._path, f"the runtime has no such container: {text}") from error
            refused = code is grpc.StatusCode.UNKNOWN  # the runtime works, and runc or the kernel said no
            hint = "see the runtime's log; the agent tries again in the next period" if refused else None
            raise RuntimeCallError(self._path, f"{code.name}: {text}", hint=hint) from error


class RuntimeWriter:
    """Backend `cri`: the runtime writes the cgroups of containers. It has no call for those around them, of pods and QoS classes:
    these are written past it, so that a container starts outside exclusive CPUs before the runtime is told of it.

    around: writes these; the hierarchy itself where it is None.
    """

    def __init__(self, hierarchy: Hierarchy, client: CRIClient, around: Groups | None = None) -> None:
        self._hierarchy = hierarchy
        self._client = client
        self._around = around or hierarchy

    def observe(self, group: PurePosixPath) -> Observed:
        """What the container's cgroup says, whatever the runtime believes."""
        return self._hierarchy.observe(group)

    def memory_usage(self, group: PurePosixPath) -> int | None:
        return self._hierarchy.memory_usage(group)

    def write(self, group: PurePosixPath, settings: Settings) -> None:
        """Tell the runtime, one kind of setting at a time, and see that the cgroup says so. The first refusal is raised after the
        last call. Raises ValueError for an empty set: a runtime takes it for "no change"."""
        parsed = parse_cgroup(group)
        if parsed is None:
            raise RuntimeCallError(str(group), "is not a cgroup of the kubelet's: the runtime cannot write it")
        if not parsed.container_id:
            self._write_around(group, settings)
            return
        refused: list[CgroupError] = []
        for resources in _one_at_a_time(settings):
            try:
                self._client.update(parsed.container_id, resources)
            except CgroupError as error:
                refused.append(error)
        if refused:
            raise refused[0]
        self._require(group, settings)

    def _write_around(self, group: PurePosixPath, settings: Settings) -> None:
        try:
            self._around.write(group, settings)
        except CgroupPermissionError as error:
            raise CgroupPermissionError(
                str(group),
                f"the agent may not write {error.path}, and the runtime has no call for it: containers start on every CPU",
                number=error.errno,
                hint="mount /sys/fs/cgroup read-write, or set enforcement.containersOnly: true to put up with that",
            ) from error

    def _require(self, group: PurePosixPath, settings: Settings) -> None:
        seen = self._hierarchy.observe(group)
        if settings.cpus is not None and not seen.cpus == seen.effective == settings.cpus:
            found = f"{seen.effective} (configured: {str(seen.cpus)!r})"
            raise NotEffectiveError(str(group), f"the runtime took CPUs {settings.cpus}, its tasks have {found}")
        if settings.mems is not None and seen.mems != settings.mems:
            found = f"{CPUSet(seen.mems)}"
            raise NotEffectiveError(
                str(group), f"the runtime took memory nodes {CPUSet(settings.mems)}, it has {found!r}"
            )


def _one_at_a_time(settings: Settings) -> list[cri.LinuxContainerResources]:
    """Messages that each change one thing: of several in one message, some may be done and others not."""
    calls: list[cri.LinuxContainerResources] = []
    if settings.mems is not None:
        calls.append(cri.LinuxContainerResources(cpuset_mems=_not_empty(CPUSet(settings.mems))))
    if settings.cpus is not None:
        calls.append(cri.LinuxContainerResources(cpuset_cpus=_not_empty(settings.cpus)))
    if settings.quota_us is not None:
        calls.append(cri.LinuxContainerResources(cpu_quota=settings.quota_us, cpu_period=CFS_PERIOD_US))
    if settings.shares is not None:
        calls.append(cri.LinuxContainerResources(cpu_shares=settings.shares))
    if settings.memory_bytes is not None:
        calls.append(cri.LinuxContainerResources(memory_limit_in_bytes=settings.memory_bytes))
    return calls


def _not_empty(ids: CPUSet) -> str:
    if not ids:
        raise ValueError("an empty set is never sent: a runtime takes it for no change")
    return str(ids)
