"""`pinfold podresources check` against real servers: what it shows, and what it says when it cannot."""

from __future__ import annotations

import grp
import json
import os
import pwd
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from agent.commands.podresources import command
from agent.errors import AgentError
from agent.formats.podresources import Answers, AnswersEncoder
from agent.model.cpuset import CPUSet
from agent.model.podresources import ContainerView, PodResourcesView, PodView
from agent.model.state import MemoryBlock
from agent.proto import podresources_v1_pb2 as v1
from agent.serve.loop import ServingLoop
from agent.serve.podresources import Endpoint, PodResourcesServer
from agent.serve.podresources_client import PodNotFoundError, PodResourcesCallError, PodResourcesConnectError
from agent.serve.sockets import SocketAccess
from agent.serve.token_bucket import RateLimit

GIB = 1 << 30
VIEW = PodResourcesView(
    pods=(
        PodView(
            "trainer",
            "team-a",
            (
                ContainerView("main", cpus=CPUSet.parse("2-3"), memory=(MemoryBlock("memory", GIB, 0b11),)),
                ContainerView("logs"),
            ),
        ),
        PodView("bubble", "default", (ContainerView("a"),), CPUSet.parse("4-7"), (MemoryBlock("memory", 1000, 1),)),
    ),
    allocatable_cpus=CPUSet.parse("2-7"),
    allocatable_memory=(MemoryBlock("hugepages-2Mi", 512 << 20, 2),),
)
TEXT = """\
{path}: answers
allocatable  cpus 2-7
allocatable  hugepages-2Mi 512Mi numa 1
team-a/trainer
  main  cpus 2-3  memory 1Gi numa 0-1
  logs  cpus -
    runs on the node's shared pool: CPUs of its own take a Guaranteed pod and a whole number of CPUs
    memory of certain NUMA nodes takes a Guaranteed pod
default/bubble  pod level: cpus 4-7  memory 1000 numa 0
  a  cpus -
    runs on the pod's shared pool: the pod's CPUs without its containers' own ones
    uses the pod's memory, on the pod's NUMA nodes
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "s" / "kubelet.sock"


@pytest.fixture
def server(loop: ServingLoop, path: Path) -> Iterator[PodResourcesServer]:
    server = PodResourcesServer(loop, [Endpoint(SocketAccess(path), limit=RateLimit(0.0001, 8))])
    server.start(AnswersEncoder().encode(VIEW))
    yield server
    server.stop()


def check(path: Path, *arguments: str) -> str:
    """The output. Raises what the command raises."""
    result = CliRunner().invoke(command, ["check", "--socket", os.fspath(path), *arguments])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.output


def test_every_pod_is_shown_with_why_something_is_empty(server: PodResourcesServer, path: Path) -> None:
    assert check(path) == TEXT.format(path=path)


def test_one_pod_is_shown_by_namespace_and_name(server: PodResourcesServer, path: Path) -> None:
    assert "team-a/trainer\n  main  cpus 2-3" in check(path, "team-a/trainer")
    assert "default/bubble" in check(path, "bubble")


def test_json_has_lists_in_kernel_syntax_and_bytes(server: PodResourcesServer, path: Path) -> None:
    found: dict[str, Any] = json.loads(check(path, "-o", "json", "team-a/trainer"))
    assert found["socket"] == os.fspath(path)
    assert found["allocatable"] == {
        "cpus": "2-7",
        "memory": [{"type": "hugepages-2Mi", "bytes": 512 << 20, "numa": "1"}],
        "devices": [],
    }
    main, logs = found["pods"][0]["containers"]
    assert main == {
        "name": "main",
        "cpus": "2-3",
        "why_no_cpus": "",
        "memory": [{"type": "memory", "bytes": GIB, "numa": "0-1"}],
        "why_no_memory": "",
        "devices": [],
    }
    assert logs["why_no_cpus"].startswith("runs on the node's shared pool")


def test_without_policies_the_policies_are_the_reason(server: PodResourcesServer, path: Path) -> None:
    server.publish(AnswersEncoder().encode(PodResourcesView((PodView("web", "default", (ContainerView("c"),)),))))
    shown = check(path)
    assert "allocatable  cpus none (CPU policy none)" in shown
    assert "CPU policy none: no container gets CPUs of its own" in shown
    assert "memory policy None: no container gets memory of certain NUMA nodes" in shown


def test_a_node_without_pods_says_so(server: PodResourcesServer, path: Path) -> None:
    server.publish(Answers())
    assert "no active pods" in check(path)


def test_devices_of_a_kubelet_are_shown(server: PodResourcesServer, path: Path) -> None:
    device = v1.ContainerDevices(resource_name="nvidia.com/gpu", device_ids=["GPU-0", "GPU-1"])
    container = v1.ContainerResources(name="c", devices=[device])
    listing = v1.ListPodResourcesResponse(
        pod_resources=[v1.PodResources(name="p", namespace="default", containers=[container])]
    )
    server.publish(Answers(list=listing.SerializeToString()))
    assert "    nvidia.com/gpu: GPU-0 GPU-1\n" in check(path)


def test_nothing_that_another_program_sent_reaches_the_terminal_raw(server: PodResourcesServer, path: Path) -> None:
    server.publish(AnswersEncoder().encode(PodResourcesView((PodView("a\x1b[2J\nb c", "default"),))))
    assert "default/a\\u001b[2J\\u000ab\\u0020c\n" in check(path)


@pytest.mark.parametrize("cpu", [-1, 1 << 60])
def test_impossible_cpu_ids_are_refused(server: PodResourcesServer, path: Path, cpu: int) -> None:
    server.publish(Answers(allocatable=v1.AllocatableResourcesResponse(cpu_ids=[cpu]).SerializeToString()))
    with pytest.raises(PodResourcesCallError, match="impossible CPU ids"):
        check(path)


def test_an_unknown_pod_is_the_answer_no(server: PodResourcesServer, path: Path) -> None:
    with pytest.raises(PodNotFoundError, match="pod nope in namespace default not found") as refusal:
        check(path, "nope")
    assert refusal.value.exit_status == 1
    assert "active" in refusal.value.hint


def test_a_pod_of_that_name_elsewhere_is_named(server: PodResourcesServer, path: Path) -> None:
    with pytest.raises(PodNotFoundError) as refusal:
        check(path, "trainer")
    assert "team-a/trainer" in refusal.value.hint


def test_the_rate_limit_is_explained(server: PodResourcesServer, path: Path) -> None:
    for _ in range(4):
        check(path)  # two calls each, of eight
    with pytest.raises(PodResourcesCallError, match="RESOURCE_EXHAUSTED: rejected by rate limit") as refusal:
        check(path)
    assert "podResources.qps" in refusal.value.hint


def listener(path: Path) -> socket.socket:
    path.parent.mkdir()
    made = socket.socket(socket.AF_UNIX)
    made.bind(os.fspath(path))
    return made


def refused(path: Path) -> AgentError:
    with pytest.raises(PodResourcesConnectError) as refusal:
        check(path)
    assert str(path) in str(refusal.value)
    return refusal.value


def test_a_missing_socket_is_told(path: Path) -> None:
    assert "no such socket" in str(refused(path))


def test_a_socket_that_a_dead_process_left_is_told(path: Path) -> None:
    listener(path).close()
    assert "nobody listens" in str(refused(path))


@contextmanager
def as_nobody() -> Iterator[None]:
    """Without root's right to connect everywhere."""
    mine = os.geteuid()
    if mine == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(mine)


def test_a_socket_without_permission_is_told_with_its_owner() -> None:
    with tempfile.TemporaryDirectory() as folder, listener(Path(folder) / "s" / "kubelet.sock") as made:
        made.listen()
        Path(folder).chmod(0o755)
        path = Path(folder) / "s" / "kubelet.sock"
        path.chmod(0)
        owner = f"owner {pwd.getpwuid(os.geteuid()).pw_name}, group {grp.getgrgid(path.stat().st_gid).gr_name}"
        with as_nobody():
            refusal = refused(path)
    assert str(refusal) == f"{path}: not permitted ({owner}, mode 0000)"
    assert "join the group that owns the socket" in refusal.hint


def test_a_server_that_hangs_is_not_waited_for(path: Path) -> None:
    with listener(path) as made:
        made.listen()
        with pytest.raises(PodResourcesCallError) as refusal:
            check(path, "--timeout", "0.2")
    assert "DEADLINE_EXCEEDED" in str(refusal.value) or "UNAVAILABLE" in str(refusal.value)
