"""The `pods` source against a kubelet's Pods service that is well, and against ones that are not."""

from __future__ import annotations

import json
import os
import queue
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest

from agent.kube import pods_socket, pods_source
from agent.kube.http_access import Access
from agent.kube.kubelet_source import KubeletSource
from agent.kube.pods_socket import MAX_POD_BYTES, PodsError, probe
from agent.kube.pods_source import PodsAccess, PodsSource
from agent.kube.source import Feed
from agent.proto import pods_v1alpha1_pb2 as v1alpha1
from agent.serve.loop import ServingLoop
from tests.kube.pods_service import (
    SYNCED,
    Event,
    Events,
    Kubelet,
    added,
    deleted,
    follow,
    modified,
    pod_bytes,
    serving,
    tells,
)
from tests.kube.servers import pod, pod_list, served, wait_until
from tests.shared import SHARED
from tests.threads import woken

A, B, C = pod("a", 1, "2"), pod("b", 2), pod("c", 3)
CUT = grpc.StatusCode.UNAVAILABLE


@contextmanager
def watching(path: Path, timeout: float = 10.0) -> Iterator[Feed]:
    with ServingLoop() as loop:
        feed = PodsSource(PodsAccess(path, timeout), loop).feed
        feed.start(lambda: None)
        try:
            yield feed
        finally:
            feed.stop()


@contextmanager
def followed(directory: Path, kubelet: Kubelet, timeout: float = 10.0) -> Iterator[Feed]:
    """A source and this kubelet."""
    with serving(directory / "pods.sock", kubelet), watching(directory / "pods.sock", timeout) as feed:
        yield feed


def names(feed: Feed) -> list[str]:
    return [each.pod.name for each in feed.view().wanted]


def until_names(feed: Feed, *wanted: str) -> None:
    wait_until(lambda: names(feed) == list(wanted), feed.view)


def until_fault(feed: Feed, text: str) -> None:
    wait_until(lambda: text in feed.view().fault, feed.view)


def kubelet_of(*pods: Any) -> Kubelet:
    return Kubelet(pods={each["metadata"]["uid"]: each for each in pods})


def test_a_list_and_then_every_change_and_nothing_else_is_asked(tmp_path: Path) -> None:
    kubelet = kubelet_of(A, B)
    with followed(tmp_path, kubelet) as feed:
        until_names(feed, "a", "b")
        assert (feed.view().synced, feed.view().fault, feed.view().problems) == (True, "", ())
        kubelet.add(C)
        until_names(feed, "a", "b", "c")
        kubelet.remove("uid-b")
        until_names(feed, "a", "c")
        kubelet.add(pod("a", 1, "2", status={"phase": "Succeeded"}))
        wait_until(lambda: feed.view().wanted[0].terminal)
        assert (kubelet.watched, kubelet.asked) == (1, [])


def test_an_empty_node_is_an_answer(tmp_path: Path) -> None:
    with followed(tmp_path, Kubelet()) as feed:
        wait_until(lambda: feed.view().synced)
        assert feed.view().wanted == ()


def test_a_list_counts_when_it_is_whole(tmp_path: Path) -> None:
    rest: Events = queue.SimpleQueue()

    def slowly(context: grpc.ServicerContext) -> Iterator[Event]:
        yield added(A)
        yield from follow(rest, context)

    with followed(tmp_path, Kubelet(slowly)) as feed:
        rest.put(added(B))
        time.sleep(0.1)
        assert (feed.view().synced, feed.view().wanted) == (False, ())
        rest.put(SYNCED)
        until_names(feed, "a", "b")


def test_half_a_list_takes_nothing_away_and_a_whole_one_replaces(tmp_path: Path) -> None:
    first = tells(added(A), added(B), SYNCED, then=CUT, text="shutting down")
    half = tells(added(A), then=CUT, text="half")
    gate: Events = queue.SimpleQueue()

    def late(context: grpc.ServicerContext) -> Iterator[Event]:
        yield from follow(gate, context)

    with followed(tmp_path, Kubelet(first, half, late)) as feed:
        until_fault(feed, "half")
        assert names(feed) == ["a", "b"]
        assert feed.view().silent
        for event in (added(A), added(C), SYNCED):
            gate.put(event)
        until_names(feed, "a", "c")
        assert not feed.view().silent


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_after_any_history_the_pods_are_the_kubelets(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    kubelet = Kubelet()
    with followed(tmp_path, kubelet) as feed:
        for step in range(300):
            name = f"p{rng.randrange(12)}"
            match rng.choice(["add", "add", "remove", "repeat", "late", "garbage"]):
                case "add":
                    kubelet.add(pod(name, step, str(1 + step % 3)))
                case "remove" if f"uid-{name}" in kubelet.pods:
                    kubelet.remove(f"uid-{name}")
                case "repeat" if f"uid-{name}" in kubelet.pods:
                    kubelet.tell(modified(kubelet.pods[f"uid-{name}"]))
                case "late" if f"uid-{name}" not in kubelet.pods:
                    kubelet.tell(modified(pod(name)))
                case "garbage":
                    kubelet.tell(Event(type=rng.choice([1, 2, 3]), pod=rng.randbytes(20)))  # type: ignore[arg-type]
            if step in (100, 200):
                kubelet.cut()
        kubelet.cut()  # a last whole list: what the garbage had said of a pod was lost with it
        wanted = {uid: each["metadata"]["creationTimestamp"] for uid, each in kubelet.pods.items()}

        def held() -> dict[str, str]:
            return {each.pod.uid: each.pod.creation_timestamp for each in feed.view().wanted}

        wait_until(lambda: held() == wanted and not feed.view().silent, held)
        assert feed.view().problems == ()


@pytest.mark.parametrize(
    ("code", "text", "said"),
    [
        ("FAILED_PRECONDITION", "Kubelet is initializing", "does not know its pods yet"),
        ("RESOURCE_EXHAUSTED", "rejected by rate limit", "100 calls a second"),
        ("RESOURCE_EXHAUSTED", "watch client channel closed", "100 events behind"),
        ("UNAVAILABLE", "the connection is draining", "restarting"),
        ("UNIMPLEMENTED", "unknown method WatchPods", "featureGates: {PodsAPI: true}"),
        ("INTERNAL", "error marshalling initial watch event pod", "are kept"),
        ("UNKNOWN", "", "are kept"),
    ],
)
def test_an_error_is_shown_with_what_it_means_and_asked_away(tmp_path: Path, code: str, text: str, said: str) -> None:
    kubelet = Kubelet(
        tells(added(A), SYNCED, then=grpc.StatusCode[code], text=text),
        tells(then=grpc.StatusCode[code], text=text),
        pods={"uid-b": B},
    )
    with followed(tmp_path, kubelet) as feed:
        until_fault(feed, f"{code}: {text}")
        assert said in feed.view().fault
        assert names(feed) == ["a"]
        until_names(feed, "b")
        assert feed.view().fault == ""


def test_a_server_without_the_service_says_which_gate_is_needed(tmp_path: Path) -> None:
    with serving(tmp_path / "pods.sock", None), watching(tmp_path / "pods.sock") as feed:
        until_fault(feed, "UNIMPLEMENTED")
        assert "PodsAPI" in feed.view().fault
        assert not feed.view().synced


def test_repetitions_change_nothing(tmp_path: Path) -> None:
    kubelet = Kubelet(tells(added(A), added(A), added(B), SYNCED, added(A), SYNCED, modified(B), deleted(C), added(C)))
    with followed(tmp_path, kubelet) as feed:
        until_names(feed, "a", "b", "c")
        assert kubelet.watched == 1


def test_a_change_that_comes_after_its_pod_was_deleted_does_not_bring_it_back(tmp_path: Path) -> None:
    kubelet = kubelet_of(A, B)
    with followed(tmp_path, kubelet) as feed:
        until_names(feed, "a", "b")
        kubelet.remove("uid-a")
        kubelet.tell(modified(A))
        kubelet.add(C)
        until_names(feed, "b", "c")
        assert kubelet.asked == ["uid-a"]


def test_a_change_of_a_pod_that_was_never_added_adds_it(tmp_path: Path) -> None:
    kubelet = kubelet_of(A)
    with followed(tmp_path, kubelet) as feed:
        until_names(feed, "a")
        kubelet.pods["uid-b"] = B
        kubelet.tell(modified(B))
        until_names(feed, "a", "b")


def test_an_event_of_an_unknown_type_leads_to_a_new_list(tmp_path: Path) -> None:
    later = Event(type=9, pod=pod_bytes(B))  # type: ignore[arg-type] # what a later release may bring
    kubelet = Kubelet(tells(added(A), SYNCED, later), pods={"uid-c": C})
    with followed(tmp_path, kubelet) as feed:
        until_fault(feed, "unknown type 9")
        assert names(feed) == ["a"]
        until_names(feed, "c")


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"{}", "2 bytes are not a core/v1 Pod"),
        (b"", "without uid"),
        (
            pod_bytes({"metadata": {"name": "a", "namespace": "default"}}),
            "pod default/a: an event about a pod without uid",
        ),
    ],
    ids=["no message", "empty", "no uid"],
)
def test_an_unreadable_pod_is_named_and_ends_none(tmp_path: Path, data: bytes, said: str) -> None:
    bad = Event(type=v1alpha1.ADDED, pod=data)
    whole = tells(added(A), SYNCED, then=CUT)
    kubelet = Kubelet(whole, tells(bad, added(B), SYNCED), pods={})  # `a` is not listed, but may be the unreadable one
    with followed(tmp_path, kubelet) as feed:
        until_names(feed, "a", "b")
        assert said in feed.view().problems[0]
        assert feed.view().fault == ""


@pytest.mark.parametrize("kind", ["ADDED", "MODIFIED", "DELETED"])
def test_an_unreadable_change_is_named_and_ends_none(tmp_path: Path, kind: str) -> None:
    bad = Event(type=v1alpha1.EventType.Value(kind), pod=b"\xff")
    with followed(tmp_path, Kubelet(tells(added(A), added(B), SYNCED, bad, added(C)))) as feed:
        until_names(feed, "a", "b", "c")
        assert len(feed.view().problems) == 1


def test_a_pod_that_does_not_parse_keeps_its_last_form_and_the_others_go_on(tmp_path: Path) -> None:
    broken = pod("a", 1, "two")
    with followed(tmp_path, Kubelet(tells(added(A), SYNCED, modified(broken), added(B)))) as feed:
        until_names(feed, "a", "b")
        (problem,) = feed.view().problems
        assert "invalid quantity 'two'" in problem
        assert "its last form is used" in problem


def test_a_message_of_absurd_size_is_not_read(tmp_path: Path) -> None:
    huge = pod("b", metadata={"annotations": {"x": "x" * (MAX_POD_BYTES + 1)}})
    with followed(tmp_path, Kubelet(tells(added(A), SYNCED, added(huge)), tells(added(A), SYNCED))) as feed:
        until_fault(feed, "RESOURCE_EXHAUSTED")
        assert names(feed) == ["a"]


def test_more_pods_than_any_node_has_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pods_source, "MAX_PODS", 2)
    with followed(tmp_path, Kubelet(tells(added(A), SYNCED, then=CUT), tells(added(A), added(B), added(C)))) as feed:
        until_fault(feed, "more than 2 pods")
        assert names(feed) == ["a"]


def test_a_list_that_does_not_end_is_given_up(tmp_path: Path) -> None:
    kubelet = Kubelet(tells(added(A)), pods={"uid-b": B})
    with followed(tmp_path, kubelet, timeout=0.3) as feed:
        until_fault(feed, "no whole list of pods within 0.3 s")
        until_names(feed, "b")


def test_while_the_stream_stands_a_quiet_kubelet_is_there(tmp_path: Path) -> None:
    kubelet = Kubelet(pods={"uid-a": A})
    with followed(tmp_path, kubelet) as feed:
        until_names(feed, "a")
        before = feed.view()
        wait_until(lambda: feed.view().heard > before.heard + 0.1)
        assert feed.view().wanted is before.wanted
        kubelet.watches.append(tells(then=CUT, text="gone"))
        kubelet.cut()
        until_fault(feed, "has ended")
        lost = feed.view()
        assert before.heard + 0.1 < lost.heard  # its age counts from the end of the stream, not from the last event
        until_fault(feed, "gone")
        assert feed.view().heard == lost.heard


def test_between_events_no_thread_of_ours_wakes(tmp_path: Path) -> None:
    kubelet = kubelet_of(A)
    with followed(tmp_path, kubelet) as feed:
        until_names(feed, "a")
        assert (woken("source-pods", 0.7), woken("serving", 0.7)) == (0, 0)
        kubelet.add(B)
        until_names(feed, "a", "b")


def test_a_source_that_waits_for_its_list_can_be_ended(tmp_path: Path) -> None:
    kubelet = Kubelet(tells(added(A)))
    with followed(tmp_path, kubelet, timeout=3600.0) as feed:
        wait_until(lambda: kubelet.watched == 1)
        feed.stop()
        assert "source-pods" not in {thread.name for thread in threading.enumerate()}


STANDS_STILL = """
import sys, time
from pathlib import Path
from tests.kube.pods_service import Kubelet, serving
from tests.kube.servers import pod
with serving(Path(sys.argv[1]), Kubelet(pods={"uid-a": pod("a")})):
    print("serves", flush=True)
    time.sleep(60)
"""


def test_a_kubelet_that_stands_still_is_found_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pods_socket, "KEEPALIVE_SECONDS", 1)
    monkeypatch.setattr(pods_socket, "PING_TIMEOUT_SECONDS", 1)
    path = tmp_path / "pods.sock"
    command = [sys.executable, "-c", STANDS_STILL, str(path)]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            with watching(path, timeout=1.0) as feed:
                until_names(feed, "a")
                process.send_signal(signal.SIGSTOP)
                wait_until(lambda: feed.view().silent, feed.view)
                assert names(feed) == ["a"]
                process.send_signal(signal.SIGCONT)
                wait_until(lambda: not feed.view().silent, feed.view)
        finally:
            process.kill()


def test_a_restarted_kubelet_is_followed_on_its_new_socket(tmp_path: Path) -> None:
    path = tmp_path / "pods.sock"
    with serving(path, kubelet_of(A)), watching(path) as feed:
        until_names(feed, "a")
        path.unlink()
        with serving(path, kubelet_of(A, B)):
            assert names(feed) == ["a"]  # the old one still stands
    with watching(path) as feed:
        with serving(path, kubelet_of(A)):
            until_names(feed, "a")
        wait_until(lambda: feed.view().silent, feed.view)
        assert names(feed) == ["a"]
        with serving(path, kubelet_of(A, B)):
            until_names(feed, "a", "b")
            assert not feed.view().silent


def test_a_source_ends_at_once_in_every_situation(tmp_path: Path) -> None:
    path = tmp_path / "pods.sock"
    with serving(path, Kubelet(tells(added(A)))), watching(path):
        time.sleep(0.1)  # in the middle of the list
    with serving(path, kubelet_of(A)), watching(path) as feed:
        until_names(feed, "a")
    with watching(path) as feed:
        until_fault(feed, "no such socket")


# --- the socket ---


def test_no_socket_says_what_serves_it(tmp_path: Path) -> None:
    with pytest.raises(PodsError, match="no such socket") as found:
        probe(tmp_path / "none", 1.0)
    assert "featureGates: {PodsAPI: true}" in found.value.hint


def test_a_file_is_no_socket(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(PodsError, match="is not a socket"):
        probe(tmp_path / "file", 1.0)


def test_a_socket_that_nobody_serves(tmp_path: Path) -> None:
    path = tmp_path / "pods.sock"
    subprocess.run(
        [sys.executable, "-c", f"import socket; socket.socket(socket.AF_UNIX).bind({str(path)!r})"], check=True
    )
    with pytest.raises(PodsError, match="UNAVAILABLE"):
        probe(path, 5.0)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a socket away")
def test_a_socket_of_another_user_is_not_believed(tmp_path: Path) -> None:
    path = tmp_path / "pods.sock"
    with serving(path, kubelet_of(A)):
        assert probe(path, 5.0) == 1
        os.chown(path, 12345, -1)
        with pytest.raises(PodsError, match="owned by user 12345, not by root"):
            probe(path, 5.0)
        with watching(path) as feed:
            until_fault(feed, "owned by user 12345")
            assert not feed.view().synced


def test_an_error_of_the_probe_has_its_meaning(tmp_path: Path) -> None:
    with serving(tmp_path / "pods.sock", None), pytest.raises(PodsError, match="UNIMPLEMENTED") as found:
        probe(tmp_path / "pods.sock", 5.0)
    assert "PodsAPI" in found.value.hint


# --- the same pods ---


@pytest.mark.shared
@pytest.mark.parametrize("capture", ["host-v1-2cpu", "host-v1-with-apiserver", "vm-v2-2numa-smt"])
def test_a_real_kubelets_pods_are_what_its_http_port_says(shared_dir: Path, tmp_path: Path, capture: str) -> None:
    listed = json.loads((SHARED / "samples/kubelet" / capture / "pods.json").read_text())
    with served(lambda asked, to: to.json(pod_list(*listed["items"]))) as part:
        source = KubeletSource(Access(part.url)).feed
        source.start(lambda: None)
        with followed(tmp_path, kubelet_of(*listed["items"])) as feed:
            wait_until(lambda: feed.view().synced and source.view().synced)
            theirs = source.view()
            assert theirs.wanted
            assert [replace(each, source="kubelet") for each in feed.view().wanted] == list(theirs.wanted)
            assert (feed.view().instances, feed.view().running) == (theirs.instances, theirs.running)
        source.stop()
