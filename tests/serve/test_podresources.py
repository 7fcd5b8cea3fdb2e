"""The PodResources server over real sockets, called with stubs as a monitoring agent has them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import pytest

from agent.formats.podresources import Answers, AnswersEncoder
from agent.model.cpuset import CPUSet
from agent.model.podresources import ContainerView, PodResourcesView, PodView
from agent.model.state import MemoryBlock
from agent.proto import podresources_v1_pb2 as v1
from agent.proto import podresources_v1alpha1_pb2 as v1alpha1
from agent.proto.podresources_v1alpha1_pb2_grpc import PodResourcesListerStub as OldStub
from agent.serve.loop import ServingLoop
from agent.serve.podresources import KUBELET_LIMIT, Endpoint, PodResourcesServer
from agent.serve.sockets import SocketAccess, SocketInUseError
from agent.serve.token_bucket import RateLimit
from tests.serve.clients import SECONDS, channel, client, code_of, names, raw_call
from tests.threads import woken

VIEW = PodResourcesView(
    pods=(
        PodView("db-0", "team-a", (ContainerView("db", cpus=CPUSet.parse("2-3")),)),
        PodView("web", "default", (ContainerView("web"),)),
    ),
    allocatable_cpus=CPUSet.parse("2-7"),
    allocatable_memory=(MemoryBlock("memory", 1 << 30, 1),),
)
ANSWERS = AnswersEncoder().encode(VIEW)
Start = Callable[..., PodResourcesServer]


def pods(*names: str) -> Answers:
    return AnswersEncoder().encode(PodResourcesView(tuple(PodView(name, "default") for name in names)))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "s" / "kubelet.sock"


@pytest.fixture
def start(loop: ServingLoop, path: Path) -> Iterator[Start]:
    """Start a server on `path` without a limit, or on the endpoints given; all are stopped at the end."""
    started = []

    def start(*endpoints: Endpoint, answers: Answers = ANSWERS) -> PodResourcesServer:
        server = PodResourcesServer(loop, endpoints or [Endpoint(SocketAccess(path), limit=None)])
        server.start(answers)
        started.append(server)
        return server

    yield start
    for server in started:
        server.stop()


def test_every_method_sends_the_prepared_bytes(start: Start, path: Path) -> None:
    start()
    with channel(path) as opened:
        call = {
            name: raw_call(opened, name)(request.SerializeToString(), timeout=SECONDS)
            for name, request in {
                "/v1.PodResourcesLister/List": v1.ListPodResourcesRequest(),
                "/v1.PodResourcesLister/GetAllocatableResources": v1.AllocatableResourcesRequest(),
                "/v1.PodResourcesLister/Get": v1.GetPodResourcesRequest(pod_name="db-0", pod_namespace="team-a"),
                "/v1alpha1.PodResourcesLister/List": v1alpha1.ListPodResourcesRequest(),
            }.items()
        }
    assert list(call.values()) == [
        ANSWERS.list,
        ANSWERS.allocatable,
        ANSWERS.get[("team-a", "db-0")],
        ANSWERS.list_v1alpha1,
    ]


def test_the_generated_clients_read_the_answers(start: Start, path: Path) -> None:
    start()
    with client(path) as stub, channel(path) as opened:
        (first, second) = stub.List(v1.ListPodResourcesRequest(), timeout=SECONDS).pod_resources
        assert (first.name, list(first.containers[0].cpu_ids)) == ("db-0", [2, 3])
        assert (second.name, list(second.containers[0].cpu_ids)) == ("web", [])
        assert list(stub.GetAllocatableResources(v1.AllocatableResourcesRequest(), timeout=SECONDS).cpu_ids) == [
            2, 3, 4, 5, 6, 7,
        ]  # fmt: skip
        old = OldStub(opened).List(v1alpha1.ListPodResourcesRequest(), timeout=SECONDS).pod_resources
        assert [pod.name for pod in old] == ["db-0", "web"]


@pytest.mark.parametrize(("namespace", "name"), [("default", "db-0"), ("team-a", "nope"), ("", ""), ("ns", "näme")])
def test_an_unknown_pod_gets_the_kubelets_code_and_text(start: Start, path: Path, namespace: str, name: str) -> None:
    start()
    with client(path) as stub, pytest.raises(grpc.RpcError) as refusal:
        stub.Get(v1.GetPodResourcesRequest(pod_name=name, pod_namespace=namespace), timeout=SECONDS)
    assert (refusal.value.code(), refusal.value.details()) == (
        grpc.StatusCode.UNKNOWN,
        f"pod {name} in namespace {namespace} not found",
    )


def test_a_method_that_does_not_exist_is_unimplemented(start: Start, path: Path) -> None:
    start()
    with channel(path) as opened, pytest.raises(grpc.RpcError) as refusal:
        raw_call(opened, "/v1.PodResourcesLister/Delete")(b"", timeout=SECONDS)
    assert refusal.value.code() is grpc.StatusCode.UNIMPLEMENTED


def test_a_change_is_seen_by_the_next_call(start: Start, path: Path) -> None:
    server = start(answers=pods("a"))
    with client(path) as stub:
        assert names(stub) == ["a"]
        server.publish(pods("a", "b"))
        assert names(stub) == ["a", "b"]


def test_an_answer_is_of_one_state_even_while_states_change(start: Start, path: Path) -> None:
    states = [pods(*(f"{letter}{number}" for number in range(50))) for letter in "abc"]
    server = start(answers=states[0])
    done = threading.Event()

    def change() -> None:
        while not done.is_set():
            for state in states:
                server.publish(state)

    writer = threading.Thread(target=change)
    writer.start()
    try:
        with client(path) as stub:
            for _ in range(100):
                assert len({name[0] for name in names(stub)}) == 1
    finally:
        done.set()
        writer.join()


def test_an_answer_of_16_mib_arrives_whole(start: Start, path: Path) -> None:
    answers = Answers(list=ANSWERS.list * ((16 << 20) // len(ANSWERS.list)))
    start(answers=answers)
    with channel(path) as opened:
        assert raw_call(opened, "/v1.PodResourcesLister/List")(b"", timeout=SECONDS) == answers.list


def test_the_default_limit_is_the_kubelets() -> None:
    assert (KUBELET_LIMIT.per_second, KUBELET_LIMIT.burst) == (100, 10)
    assert Endpoint(SocketAccess(Path("kubelet.sock"))).limit is KUBELET_LIMIT


def test_above_the_limit_calls_are_refused_with_the_kubelets_code_and_text(start: Start, path: Path) -> None:
    start(Endpoint(SocketAccess(path), limit=RateLimit(per_second=0.0001, burst=3)))
    with client(path) as stub:
        codes = [code_of(stub) for _ in range(5)]
        # One bucket for all methods.
        with pytest.raises(grpc.RpcError) as refusal:
            stub.GetAllocatableResources(v1.AllocatableResourcesRequest(), timeout=SECONDS)
    assert codes == ["OK"] * 3 + ["RESOURCE_EXHAUSTED"] * 2
    assert (refusal.value.code(), refusal.value.details()) == (
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        "rejected by rate limit",
    )


def test_client_groups_have_a_socket_and_a_budget_each(start: Start, path: Path) -> None:
    tight = RateLimit(per_second=0.0001, burst=1)
    other = path.with_name("dcgm.sock")
    server = start(
        Endpoint(SocketAccess(path), limit=tight), Endpoint(SocketAccess(other), client_group="dcgm", limit=tight)
    )
    with client(path) as stub, client(other) as dcgm:
        assert [code_of(stub), code_of(stub)] == ["OK", "RESOURCE_EXHAUSTED"]
        assert code_of(dcgm) == "OK"
        server.publish(pods("new"))
    calls = {(kind.client_group, kind.code): count for kind, count in server.calls().items() if kind.method == "List"
             and kind.api_version == "v1"}  # fmt: skip
    assert calls == {("default", "OK"): 1, ("default", "RESOURCE_EXHAUSTED"): 1, ("dcgm", "OK"): 1}


def test_calls_are_counted_by_method_version_and_answer(start: Start, path: Path) -> None:
    server = start()
    with client(path) as stub, channel(path) as opened:
        for _ in range(3):
            names(stub)
        OldStub(opened).List(v1alpha1.ListPodResourcesRequest(), timeout=SECONDS)
        with pytest.raises(grpc.RpcError):
            stub.Get(v1.GetPodResourcesRequest(pod_name="nope"), timeout=SECONDS)
    assert {(kind.api_version, kind.method, kind.code): count for kind, count in server.calls().items()} == {
        ("v1", "List", "OK"): 3,
        ("v1", "GetAllocatableResources", "OK"): 0,
        ("v1", "Get", "OK"): 0,
        ("v1", "Get", "UNKNOWN"): 1,
        ("v1alpha1", "List", "OK"): 1,
    }


def test_a_stopped_server_leaves_no_file_and_can_be_followed_by_another(start: Start, path: Path) -> None:
    start().stop()
    assert list(path.parent.iterdir()) == []
    start(answers=pods("after"))
    with client(path) as stub:
        assert names(stub) == ["after"]


def test_a_socket_in_use_is_refused_and_nothing_else_is_left_open(start: Start, loop: ServingLoop, path: Path) -> None:
    start()
    free = path.with_name("free.sock")
    second = PodResourcesServer(loop, [Endpoint(SocketAccess(free)), Endpoint(SocketAccess(path))])
    with pytest.raises(SocketInUseError, match=rf"kubelet\.sock: in use by process {os.getpid()} "):
        second.start(ANSWERS)
    assert not free.exists()
    with client(path) as stub:
        assert names(stub) == ["db-0", "web"]


AGENT = """
import sys, time
from pathlib import Path
from agent.formats.podresources import Answers
from agent.serve.loop import ServingLoop
from agent.serve.podresources import Endpoint, PodResourcesServer
from agent.serve.sockets import SocketAccess
with ServingLoop() as loop:
    PodResourcesServer(loop, [Endpoint(SocketAccess(Path(sys.argv[1])))]).start(Answers())
    print(flush=True)
    time.sleep(600)
"""


def test_the_socket_of_a_killed_agent_is_taken_over(start: Start, path: Path) -> None:
    command = [sys.executable, "-c", AGENT, os.fspath(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as agent:
        assert agent.stdout
        agent.stdout.readline()
        agent.send_signal(signal.SIGKILL)
    assert path.is_socket()
    start()
    with client(path) as stub:
        assert names(stub) == ["db-0", "web"]


def test_a_path_with_signs_of_its_own_in_urls_is_a_path(start: Start, path: Path) -> None:
    odd = path.with_name("a %20 b?c#d.sock")
    start(Endpoint(SocketAccess(odd)))
    assert [one.name for one in path.parent.iterdir()] == [odd.name]
    with client(odd) as stub:
        assert names(stub) == ["db-0", "web"]


def test_eight_clients_at_once_all_get_whole_answers(start: Start, path: Path) -> None:
    start()
    seen: Counter[bytes] = Counter()

    def ask() -> None:
        with channel(path) as opened:
            for _ in range(25):
                seen[raw_call(opened, "/v1.PodResourcesLister/List")(b"", timeout=SECONDS)] += 1

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == {ANSWERS.list: 200}


def test_an_idle_server_wakes_no_thread_of_ours(start: Start, path: Path) -> None:
    start()
    with client(path) as stub:
        names(stub)
        assert woken("serving", 0.5) == 0
