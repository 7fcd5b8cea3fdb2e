"""The control socket over a real unix socket: requests, errors, bounds, who may connect, life and death of the socket file."""

from __future__ import annotations

import json
import os
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from agent.errors import AgentError, BadInputError
from agent.serve.control import MAX_CONNECTIONS, MAX_REQUEST_BYTES, ControlServer
from agent.serve.control_client import AgentNotRunningError, ControlClient, ControlSocketError, RemoteError
from agent.serve.exec_grant import ExecFinished, ExecGrant, ExecGrantError
from agent.serve.sockets import SocketInUseError


class PodUnknownError(BadInputError):
    hint = "see pinfold status"


def handler(method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
    match method:
        case "echo":
            return {"params": params}
        case "refuse":
            raise PodUnknownError("no pod web/app")
        case "fail":
            raise KeyError("a bug of ours")
    raise BadInputError(f"unknown method {method!r}")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run" / "control.sock"


@pytest.fixture
def server(path: Path) -> Iterator[ControlServer]:
    with ControlServer(path, handler) as running:
        yield running


def connect(path: Path) -> socket.socket:
    client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    client.settimeout(10)
    client.connect(os.fspath(path))
    return client


def raw(path: Path, request: bytes) -> list[Any]:
    """The decoded answers until the server closes; the request is all that is sent."""
    with connect(path) as client:
        client.sendall(request)
        client.shutdown(socket.SHUT_WR)
        with client.makefile("rb") as answers:
            return [json.loads(line) for line in answers]


def patiently(path: Path) -> Mapping[str, Any]:
    """An echo, asked for again while earlier connections are still on their way out."""
    while True:
        try:
            return ControlClient(path).call("echo", {})
        except RemoteError as error:
            if error.kind != "ControlBusyError":
                raise


@pytest.mark.usefixtures("server")
def test_a_method_gets_its_parameters_and_its_result_comes_back(path: Path) -> None:
    params = {"pod": "web/app", "ü": ["\n", 1, None]}
    assert ControlClient(path).call("echo", params) == {"params": params}


@pytest.mark.usefixtures("server")
def test_an_agent_error_arrives_as_it_would_have_been_shown(path: Path) -> None:
    with pytest.raises(RemoteError, match="no pod web/app") as caught:
        ControlClient(path).call("refuse", {})
    assert (caught.value.kind, caught.value.hint, caught.value.exit_status) == (
        "PodUnknownError",
        "see pinfold status",
        2,
    )


@pytest.mark.usefixtures("server")
def test_a_bug_is_answered_without_details_and_logged(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(RemoteError, match="internal error"):
        ControlClient(path).call("fail", {})
    assert "a bug of ours" in caplog.text
    assert ControlClient(path).call("echo", {}) == {"params": {}}


@pytest.mark.usefixtures("server")
def test_one_connection_may_ask_several_times(path: Path) -> None:
    line = b'{"method": "echo", "params": {"n": %d}}\n'
    assert raw(path, line % 1 + line % 2) == [{"result": {"params": {"n": n}}} for n in (1, 2)]
    assert raw(path, b'{"method": "echo"}\n') == [{"result": {"params": {}}}]


@pytest.mark.usefixtures("server")
@pytest.mark.parametrize(
    ("request_line", "message"),
    [
        (b"junk\n", "not JSON"),
        (b"\xff\xfe\n", "not JSON"),
        (b"[" * 60_000 + b"\n", "not JSON"),
        (b"[]\n", "without a method"),
        (b'{"method": 5}\n', "without a method"),
        (b'{"method": "echo", "params": []}\n', "params is not an object"),
        (b'{"method": "what"}\n', "unknown method 'what'"),
        (b'{"method": "echo"}', "without an end"),
        (b"x" * (MAX_REQUEST_BYTES + 2), f"within {MAX_REQUEST_BYTES} bytes"),
    ],
    ids=lambda value: value[:20] if isinstance(value, str) else None,
)
def test_what_is_no_request_is_refused_by_name(path: Path, request_line: bytes, message: str) -> None:
    with connect(path) as client:
        client.sendall(request_line)
        client.shutdown(socket.SHUT_WR)
        with client.makefile("rb") as answers:
            error = json.loads(answers.readline())["error"]
    assert message in error["message"]
    assert error["exit_status"] == 2
    assert ControlClient(path).call("echo", {}) == {"params": {}}


@pytest.mark.usefixtures("server")
def test_a_client_that_hangs_up_disturbs_nobody(path: Path) -> None:
    for _ in range(3 * MAX_CONNECTIONS):
        with connect(path) as client:
            client.sendall(b'{"method": "ec')
    assert "params" in patiently(path)


@pytest.mark.usefixtures("server")
def test_too_many_connections_are_told_so(path: Path) -> None:
    clients = [connect(path) for _ in range(MAX_CONNECTIONS)]
    try:
        for client in clients:  # answered: each holds its place
            client.sendall(b'{"method": "echo"}\n')
            assert client.recv(1)
        with pytest.raises(RemoteError, match="open already") as caught:
            ControlClient(path).call("echo", {})
        assert caught.value.kind == "ControlBusyError"
    finally:
        for client in clients:
            client.close()


def test_the_handler_is_called_by_one_thread_at_a_time(path: Path) -> None:
    inside = threading.Semaphore(1)
    overlaps: list[str] = []

    def slow(method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        if not inside.acquire(blocking=False):
            overlaps.append(method)
            return {}
        threading.Event().wait(0.02)
        inside.release()
        return {}

    with ControlServer(path, slow):
        threads = [threading.Thread(target=ControlClient(path).call, args=("m", {})) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert overlaps == []


@pytest.mark.usefixtures("server")
def test_the_socket_is_for_its_owner_only(path: Path) -> None:
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.usefixtures("server")
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become somebody else")
def test_another_user_is_refused_even_where_the_file_would_let_him(path: Path) -> None:
    path.chmod(0o666)
    for directory in (path.parent, *path.parents):
        if directory.is_relative_to("/tmp") and directory != Path("/tmp"):
            directory.chmod(0o755)
    program = (
        "import os, socket, sys\n"
        "s = socket.socket(socket.AF_UNIX); os.setgid(65534); os.setuid(65534); s.connect(sys.argv[1])\n"
        "print(s.makefile().readline())"
    )
    told = subprocess.run([sys.executable, "-c", program, str(path)], capture_output=True, text=True, check=True).stdout
    assert "uid 65534 may not control the agent" in told


def test_a_second_server_is_refused_and_a_dead_ones_socket_taken_over(path: Path) -> None:
    with ControlServer(path, handler):
        second = ControlServer(path, handler)
        with pytest.raises(SocketInUseError):
            second.start()
        assert ControlClient(path).call("echo", {}) == {"params": {}}
    assert not path.exists()
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(os.fspath(path))
    with ControlServer(path, handler):
        assert ControlClient(path).call("echo", {}) == {"params": {}}


def test_without_an_agent_the_client_says_what_to_start(path: Path) -> None:
    with pytest.raises(AgentNotRunningError, match="no agent answers") as caught:
        ControlClient(path).call("status", {})
    assert "systemctl start pinfold" in caught.value.hint


@pytest.mark.parametrize("answer", [b"", b"junk\n", b"{}\n", b'{"error": {}}\n', b"[]\n"])
def test_an_answer_that_is_none_is_an_error_of_the_socket(tmp_path: Path, answer: bytes) -> None:
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(os.fspath(path))
        listener.listen(1)

        def once() -> None:
            client, _ = listener.accept()
            with client:
                client.recv(100)
                client.sendall(answer)

        thread = threading.Thread(target=once)
        thread.start()
        with pytest.raises(ControlSocketError, match="cut off or not ours"):
            ControlClient(path).call("status", {})
        thread.join()


def test_stopping_lets_a_request_under_way_finish(path: Path) -> None:
    entered, go_on = threading.Event(), threading.Event()

    def slow(method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        entered.set()
        go_on.wait(10)
        return {"done": True}

    server = ControlServer(path, slow)
    server.start()
    answers: list[Mapping[str, Any]] = []
    thread = threading.Thread(target=lambda: answers.append(ControlClient(path).call("m", {})))
    thread.start()
    entered.wait(10)
    server.stop()
    go_on.set()
    thread.join()
    assert answers == [{"done": True}]


GRANT = ExecGrant(
    "u", "db", (Path("/sys/fs/cgroup/cpuset/pinfold/u/db"),), "1-2", "0", exclusive=True, must_report=False
)


def test_exec_values_go_over_the_wire_and_back() -> None:
    assert ExecGrant.decode(json.loads(json.dumps({**GRANT.encode(), "of_a_later_version": 1}))) == GRANT
    for finished in (ExecFinished("u", "db", 0), ExecFinished("u", "db", None, 9)):
        assert ExecFinished.decode(json.loads(json.dumps(finished.encode()))) == finished


@pytest.mark.parametrize(
    "damage", [{"cgroups": ["relative"]}, {"cgroups": None}, {"cgroups": [5]}], ids=["relative", "absent", "number"]
)
def test_a_damaged_grant_is_refused(damage: dict[str, Any]) -> None:
    with pytest.raises(ExecGrantError):
        ExecGrant.decode({**GRANT.encode(), **damage})
    with pytest.raises(ExecGrantError):
        ExecGrant.decode({})


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"uid": "u", "container": "db"},
        {"uid": "u", "container": "db", "exit_code": 0, "signal": 9},
        {"uid": "u", "container": "db", "exit_code": "0", "signal": None},
        {"uid": 5, "container": "db", "exit_code": 0, "signal": None},
    ],
)
def test_a_damaged_end_is_refused(params: dict[str, Any]) -> None:
    with pytest.raises(AgentError):
        ExecFinished.decode(params)
