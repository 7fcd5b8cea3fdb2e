"""The `kubelet` source against a /pods that is slow, huge, wrong, or a real one's."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from agent.kube import kubelet_source
from agent.kube.http_access import Access
from agent.kube.kubelet_source import KubeletSource
from agent.kube.source import Feed
from agent.policy.cgroup_names import ContainerCgroup
from tests.kube.servers import Answer, Asked, HTTPPart, certificate, pod, pod_list, served, wait_until
from tests.shared import SHARED


@contextmanager
def polled(*answers: Callable[[Answer], None], period: float = 0.02) -> Iterator[tuple[Feed, HTTPPart]]:
    """A source and a kubelet that gives these answers, the last one for ever."""
    left = list(answers)

    def answer(asked: Asked, to: Answer) -> None:
        (left.pop(0) if len(left) > 1 else left[0])(to)

    with served(answer) as part:
        source = KubeletSource(Access(part.url, timeout_seconds=0.5), period).feed
        source.start(lambda: None)
        try:
            yield source, part
        finally:
            source.stop()


def lists(*pods: object) -> Callable[[Answer], None]:
    return lambda to: to.json(pod_list(*pods))


def names(source: Feed) -> list[str]:
    return [each.pod.name for each in source.view().wanted]


def test_pods_come_and_go() -> None:
    with polled(lists(pod("a")), lists(pod("b", 2), pod("a")), lists(pod("b", 2))) as (source, part):
        wait_until(lambda: names(source) == ["b"])
        assert {asked.path for asked in part.asked} == {"/pods"}


def test_a_kubelet_that_goes_away_ends_no_pod(tmp_path: Path) -> None:
    with polled(lists(pod("a")), lambda to: to.raw(b"busy", 500)) as (source, _):
        wait_until(lambda: bool(source.view().fault))
        assert source.view().silent
        assert names(source) == ["a"]


@pytest.mark.parametrize(
    "bad",
    [
        lambda to: to.raw(b'{"kind": "PodList", "items": ['),
        lambda to: to.raw(b"[" * 100_000),
        lambda to: to.json({"kind": "NodeList", "items": []}),
        lambda to: to.json({"kind": "PodList", "items": {"a": 1}}),
        lambda to: to.raw(b"\xff\xfe"),
        lambda to: to.json(pod_list(*[{}] * 5000)),
    ],
    ids=["cut", "deep", "other kind", "no list", "no text", "too many"],
)
def test_an_answer_that_is_no_list_of_pods_ends_no_pod(bad: Callable[[Answer], None]) -> None:
    with polled(lists(pod("a")), bad) as (source, _):
        wait_until(lambda: bool(source.view().fault))
        assert names(source) == ["a"]


def test_a_pod_without_uid_may_be_any_of_those_known_and_ends_none() -> None:
    nameless = {"metadata": {"name": "a", "namespace": "default"}}
    with polled(lists(pod("a")), lists(nameless, pod("b"))) as (source, _):
        wait_until(lambda: names(source) == ["a", "b"])
        assert "has no uid" in source.view().problems[0]


def test_an_answer_larger_than_any_node_needs_is_not_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kubelet_source, "MAX_BYTES", 10_000)
    with polled(lists(pod("a")), lambda to: to.raw(b" " * 20_000)) as (source, _):
        wait_until(lambda: "more than 10000 bytes" in source.view().fault)


def test_a_slow_kubelet_is_given_up_and_asked_again() -> None:
    def slow(to: Answer) -> None:
        time.sleep(1.0)
        lists(pod("late"))(to)

    with polled(slow, lists(pod("a"))) as (source, _):
        wait_until(lambda: "no answer within 0.5 s" in source.view().fault)
        wait_until(lambda: names(source) == ["a"])


def test_an_unchanged_answer_is_a_sign_of_life_and_no_change() -> None:
    with polled(lists(pod("a"))) as (source, part):
        wait_until(lambda: bool(source.view().wanted))
        before = source.view()
        part.until(lambda: len(part.asked) > 4)
        wait_until(lambda: source.view().heard > before.heard)
        assert source.view().wanted is before.wanted


def test_a_kubelet_with_a_certificate_of_its_own_is_read_on_loopback(tmp_path: Path) -> None:
    tls = certificate(tmp_path, address="10.0.0.7")
    with served(lambda asked, to: to.json(pod_list(pod("a"))), tls) as part:
        source = KubeletSource(Access(part.url, verify=False), 0.02).feed
        source.start(lambda: None)
        try:
            wait_until(lambda: names(source) == ["a"])
        finally:
            source.stop()


@pytest.mark.shared
@pytest.mark.parametrize("capture", ["host-v1-2cpu", "host-v1-with-apiserver", "vm-v2-2numa-smt"])
def test_a_real_kubelets_answer_is_read(shared_dir: Path, capture: str) -> None:
    body = (SHARED / "samples/kubelet" / capture / "pods.json").read_bytes()
    items = json.loads(body)["items"]
    with polled(lambda to: to.raw(body)) as (source, _):
        wait_until(lambda: source.view().synced)
        view = source.view()
        assert not view.problems
        assert sorted(each.pod.name for each in view.wanted) == sorted(item["metadata"]["name"] for item in items)
        for item in items:
            for status in item["status"].get("containerStatuses", ()):
                found = status.get("containerID", "").partition("://")[2]
                if found:
                    uid = item["metadata"]["uid"]
                    assert view.instances[found] == ContainerCgroup(uid, status["name"])


def test_a_server_that_does_not_even_accept_does_not_hold_up_the_end() -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=0) as server:
        port = server.getsockname()[1]
        waiting = [socket.socket() for _ in range(3)]  # fill the backlog: further connections wait
        for each in waiting:
            each.setblocking(False)
            each.connect_ex(("127.0.0.1", port))
        source = KubeletSource(Access(f"http://127.0.0.1:{port}", timeout_seconds=60.0), 0.02).feed
        source.start(lambda: None)
        started = time.monotonic()
        source.stop()
        assert time.monotonic() - started < 30.0  # an upper bound for a busy machine, far below the time-out
        for each in waiting:
            each.close()
