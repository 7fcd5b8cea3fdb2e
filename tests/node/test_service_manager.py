"""What systemd hears on the notification socket: a real datagram socket, by path and in the abstract namespace."""

from __future__ import annotations

import secrets
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from agent.node.service_manager import ServiceManager

PID = 4711


@contextmanager
def systemd(address: str) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as heard:
        heard.bind("\0" + address[1:] if address.startswith("@") else address)
        heard.settimeout(10)
        yield heard


def lines(heard: socket.socket) -> list[str]:
    return heard.recv(4096).decode().split("\n")


@pytest.mark.parametrize("abstract", [False, True], ids=["path", "abstract"])
def test_readiness_and_status_arrive_together(tmp_path: Path, abstract: bool) -> None:
    address = f"@pinfold-test-{secrets.token_hex(8)}" if abstract else str(tmp_path / "notify")
    with systemd(address) as heard:
        ServiceManager.of({"NOTIFY_SOCKET": address}, PID).ready("ready: 2 pods")
        assert lines(heard) == ["READY=1", "STATUS=ready: 2 pods"]


def test_a_status_of_several_lines_cannot_smuggle_in_another_message(tmp_path: Path) -> None:
    address = str(tmp_path / "notify")
    with systemd(address) as heard:
        ServiceManager(address).status("broken\nMAINPID=1")
        assert lines(heard) == ["STATUS=broken MAINPID=1"]


def test_a_reload_carries_its_time_so_that_systemd_knows_which_one_is_meant(tmp_path: Path) -> None:
    address = str(tmp_path / "notify")
    with systemd(address) as heard:
        before = time.monotonic_ns() // 1000
        ServiceManager(address).reloading()
        word, stamp = lines(heard)
        assert word == "RELOADING=1"
        assert before <= int(stamp.removeprefix("MONOTONIC_USEC=")) <= time.monotonic_ns() // 1000


@pytest.mark.parametrize(
    ("environment", "seconds"),
    [
        pytest.param({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": str(PID)}, 30.0, id="ours"),
        pytest.param({"WATCHDOG_USEC": "500000"}, 0.5, id="of whoever runs"),
        pytest.param({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "1"}, None, id="of another process"),
        pytest.param({"WATCHDOG_USEC": "-1"}, None, id="nonsense"),
        pytest.param({}, None, id="none"),
    ],
)
def test_the_watchdog_is_fed_only_where_it_is_ours(
    tmp_path: Path, environment: dict[str, str], seconds: float | None
) -> None:
    address = str(tmp_path / "notify")
    with systemd(address) as heard:
        service = ServiceManager.of({"NOTIFY_SOCKET": address, **environment}, PID)
        assert service.watchdog_seconds == seconds
        service.alive()
        service.stopping()
        first = lines(heard)
        assert first == (["STOPPING=1"] if seconds is None else ["WATCHDOG=1"])


@pytest.mark.parametrize("address", ["", "/nowhere/notify"])
def test_without_a_service_manager_the_agent_goes_on(address: str) -> None:
    service = ServiceManager(address, 1.0)
    service.ready("ready")
    service.alive()
    service.stopping()
