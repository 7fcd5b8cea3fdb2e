"""A whole agent among hostile manifests and hostile clients: nothing they send is obeyed, and all goes on."""

from __future__ import annotations

import http.client
import json
import random
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from agent.client import connect
from agent.proto import node_v1_pb2 as node_v1
from agent.proto import podresources_v1_pb2 as v1
from agent.proto.podresources_v1_pb2_grpc import PodResourcesListerStub
from tests.agents import PATIENCE_SECONDS, Agent, pod_text, running
from tests.certificates import make_ca, make_pair
from tests.serve.browser import free_port

ESCAPES = ("\x1b]0;owned\x07", "\x1b[2J", "\u202egnp.exe", "<script>alert(1)</script>", '"} 1\nfake_metric 1')


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    with running(tmp_path_factory.mktemp("agent"), http={"port": free_port()}) as agent:
        agent.manifest("good", pod_text("good", "2"))
        agent.until_pod("good")
        yield agent


def port(agent: Agent) -> int:
    number: int = agent.config["http"]["port"]
    return number


def get(agent: Agent, path: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port(agent), timeout=PATIENCE_SECONDS)
    connection.request("GET", path)
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, text


def everything_answers(agent: Agent) -> None:
    """All servers of the agent serve an honest client."""
    assert agent.status()["pods"][0]["name"] == "good"
    assert get(agent, "/readyz")[0] == 200
    with grpc.insecure_channel(f"unix:{agent.socket}") as channel:
        listed = PodResourcesListerStub(channel).List(v1.ListPodResourcesRequest(), timeout=PATIENCE_SECONDS)
        assert [pod.name for pod in listed.pod_resources] == ["good"]
    with connect(agent.directory / "node.sock") as client:
        state = client.stub.Status(node_v1.StatusRequest(), timeout=PATIENCE_SECONDS).state
        assert [pod.name for pod in state.pods] == ["good"]


def hostile_manifests() -> Iterator[tuple[str, str]]:
    for number, escape in enumerate(ESCAPES):
        for where in ("name", "namespace", "uid", "container", "cpu", "key"):
            meta = {"name": f"bad-{number}", "namespace": "default"}
            size = {"cpu": "1", "memory": "1Gi"}
            container = {"name": "main", "resources": {"limits": size}}
            if where in ("name", "namespace", "uid"):
                meta[where] = escape
            elif where == "container":
                container["name"] = escape
            elif where == "cpu":
                size["cpu"] = escape
            else:
                size[escape] = "1"
            pod = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {"containers": [container]}}
            yield f"bad-{number}-{where}", json.dumps(pod)
    yield "deep", "[" * 5000
    yield "huge", "a: " + "x" * 3_000_000
    yield "binary", "\x00\x01\x02"
    yield "bomb", "a: &a [x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a]\nc: [*b,*b,*b,*b,*b,*b,*b,*b]\n"


def test_what_manifests_say_is_shown_and_never_obeyed(agent: Agent) -> None:
    manifests = list(hostile_manifests())
    for name, text in manifests:
        agent.manifest(name, text)
    try:
        agent.until(lambda status: len(status["problems"]) + len(status["refused"]) >= len(manifests) - len(ESCAPES))
        everything_answers(agent)
        page, metrics = get(agent, "/")[1], get(agent, "/metrics")[1]
        verbose = get(agent, "/readyz?verbose")[1]
        command = [sys.executable, "-m", "agent", "status", "--socket", str(agent.directory / "control.sock")]
        shown = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        for text in (page, metrics, verbose, agent.log(), shown.stdout, shown.stderr):
            assert "\x1b" not in text
            assert "\x07" not in text
        assert "<script>alert" not in page
        assert "\u202e" not in page
        assert "\nfake_metric" not in metrics
        assert all(line == "" or line.startswith("{") for line in agent.log().splitlines()), "one object per line"
    finally:
        for name, _ in manifests:
            agent.remove(name)
    agent.until(lambda status: not status["problems"] and not status["refused"])


@pytest.mark.parametrize("server", ["http", "podresources", "node", "control"])
def test_noise_on_one_socket_disturbs_no_other(agent: Agent, server: str) -> None:
    noise = random.Random(server)
    paths = {
        "podresources": agent.socket,
        "node": agent.directory / "node.sock",
        "control": agent.directory / "control.sock",
    }
    for _ in range(40):
        data = noise.randbytes(noise.randrange(1, 5000))
        if server == "http":
            client = socket.create_connection(("127.0.0.1", port(agent)), PATIENCE_SECONDS)
        else:
            client = socket.socket(socket.AF_UNIX)
            client.settimeout(PATIENCE_SECONDS)
            client.connect(str(paths[server]))
        with client:
            try:
                client.sendall(
                    noise.choice((b"", b"GET / HTTP/1.1\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"{")) + data
                )
            except (BrokenPipeError, ConnectionResetError):
                continue  # it has had enough already
    everything_answers(agent)


def test_json_of_every_kind_is_answered_on_the_control_socket(agent: Agent) -> None:
    for value in (
        "null",
        "[]",
        "{}",
        '{"method": 1}',
        '{"method": "status", "params": []}',
        '{"method": "explain"}',
        "1e999",
    ):
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(PATIENCE_SECONDS)
            client.connect(str(agent.directory / "control.sock"))
            client.sendall(value.encode() + b"\n")
            answer = json.loads(client.makefile("rb").readline())
            assert isinstance(answer, dict)
    everything_answers(agent)


def test_the_sockets_are_closed_to_others(agent: Agent) -> None:
    sockets = {path.name: path.stat().st_mode & 0o777 for path in agent.directory.rglob("*.sock")}
    assert sockets == {"control.sock": 0o600, "kubelet.sock": 0o660, "node.sock": 0o660}


def test_beyond_loopback_strangers_get_the_metrics_alone(tmp_path: Path) -> None:
    ca, number = make_ca(tmp_path), free_port()
    server, client = make_pair(ca, tmp_path, "server", "node-1"), make_pair(ca, tmp_path, "client", "operator")
    section = {"address": "0.0.0.0", "port": number, "certificate": str(server.certificate), "key": str(server.key)}
    with running(tmp_path, http={**section, "clientCA": str(ca.certificate)}):

        def ask(path: str, *, known: bool) -> int:
            context = ssl.create_default_context(cafile=ca.certificate)
            if known:
                context.load_cert_chain(client.certificate, client.key)
            connection = http.client.HTTPSConnection("127.0.0.1", number, timeout=PATIENCE_SECONDS, context=context)
            connection.request("GET", path)
            status = connection.getresponse().status
            connection.close()
            return status

        assert [ask(path, known=True) for path in ("/", "/live", "/metrics", "/readyz")] == [200] * 4
        assert ask("/metrics", known=False) == 200
        assert [ask(path, known=False) for path in ("/", "/live", "/explain?pod=a", "/readyz")] == [403] * 4


@pytest.mark.parametrize(
    "section",
    [
        {"address": "0.0.0.0"},
        {"address": "0.0.0.0", "certificate": "c", "key": "k"},
        {"certificate": "c"},
        {"clientCA": "c"},
    ],
)
def test_half_a_tls_configuration_is_refused(tmp_path: Path, section: dict[str, str]) -> None:
    agent = Agent(tmp_path, {"http": {"port": 9, **section}})
    path = agent.write_config()
    command = [sys.executable, "-m", "agent", "config", "show", "--config", str(path)]
    refused = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert refused.returncode == 2
    assert "http" in refused.stderr
