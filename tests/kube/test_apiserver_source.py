"""The `apiserver` source against servers that behave as API servers do on bad days."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from agent.kube.apiserver_source import APIServerSource
from agent.kube.http_access import Access, AccessConfigError
from agent.kube.list_watch import Pace
from agent.kube.source import LONGEST_WAIT_SECONDS, Feed, backoff
from tests.kube.servers import (
    Answer,
    Asked,
    HTTPPart,
    bookmark,
    certificate,
    event,
    pod,
    pod_list,
    served,
    wait_until,
)
from tests.shared import SHARED

Watch = Callable[[Answer, str], None]  # the stream, the resourceVersion that was asked for


@contextmanager
def followed(
    lists: list[object], watches: list[Watch], tls: tuple[Path, Path] | None = None, node: str = "n1", **access: Any
) -> Iterator[tuple[Feed, HTTPPart]]:
    """A source and its server, which gives these answers in order and holds the watch after the last one open."""
    release = threading.Event()

    def answer(asked: Asked, to: Answer) -> None:
        turns = watches if asked.watch else lists
        if not turns:
            if asked.watch:
                to.open()
            release.wait()
        elif asked.watch:
            watches.pop(0)(to, asked.query["resourceVersion"])
        else:
            listed = lists.pop(0)
            listed(to, "") if callable(listed) else to.json(listed)

    with served(answer, tls) as part:
        source = APIServerSource(Access(part.url, **access), node, Pace(60.0, 1.0)).feed
        source.start(lambda: None)
        try:
            yield source, part
        finally:
            source.stop()
            release.set()


def names(source: Feed) -> list[str]:
    return [each.pod.name for each in source.view().wanted]


def sends(*events: object, end: bool = True) -> Watch:
    def watch(to: Answer, version: str) -> None:
        to.open()
        to.send(*events)
        if end:
            to.end()

    return watch


def refuses(status: int, **headers: str) -> Callable[[Answer, str], None]:
    return lambda to, version: to.json({"kind": "Status", "message": f"no: {status}"}, status, **headers)


def lists_of(part: HTTPPart) -> int:
    return sum(not asked.watch for asked in part.asked)


def test_it_lists_once_then_watches_and_asks_for_this_node_alone() -> None:
    change = sends(event("ADDED", pod("b", 12)), event("DELETED", pod("a", 13)), end=False)
    with followed([pod_list(pod("a", 9), version=10)], [change]) as (source, part):
        wait_until(lambda: names(source) == ["b"])
        first, second, *_ = part.asked
        assert first.query == {"fieldSelector": "spec.nodeName=n1", "limit": "250"}
        assert (second.query["resourceVersion"], second.query["allowWatchBookmarks"]) == ("10", "true")
        assert second.query["fieldSelector"] == "spec.nodeName=n1"
        assert lists_of(part) == 1
        assert source.view().wanted[0].source == "apiserver"


def test_before_the_first_list_it_is_silent() -> None:
    with followed([refuses(500)], []) as (source, part):
        part.until(lambda: len(part.asked) > 1)
        view = source.view()
        assert view.silent
        assert not view.synced
        assert "HTTP 500: no: 500" in view.fault


def test_a_watch_that_ends_goes_on_from_the_last_version_without_a_new_list() -> None:
    watches = [sends(event("ADDED", pod("b", 12))), sends(bookmark(40)), sends(event("ADDED", pod("c", 41)))]
    with followed([pod_list(pod("a", 9), version=10)], watches) as (source, part):
        part.until(lambda: len(part.asked) == 5)
        assert [asked.query["resourceVersion"] for asked in part.asked if asked.watch] == ["10", "12", "40", "41"]
        assert names(source) == ["a", "b", "c"]
        assert lists_of(part) == 1


def test_a_stream_cut_inside_an_event_loses_nothing_and_doubles_nothing() -> None:
    def cut(to: Answer, version: str) -> None:
        to.open()
        to.send(event("ADDED", pod("b", 12)))
        to.send_raw(json.dumps(event("DELETED", pod("a", 13))).encode()[:40])

    again = sends(event("DELETED", pod("a", 13)), end=False)
    with followed([pod_list(pod("a", 9), version=10)], [cut, again]) as (source, part):
        wait_until(lambda: names(source) == ["b"])
        assert [asked.query["resourceVersion"] for asked in part.asked if asked.watch][:2] == ["10", "12"]


def test_repeated_and_late_events_change_nothing() -> None:
    stale = [event("ADDED", pod("a", 9)), event("DELETED", pod("b", 11)), event("MODIFIED", pod("gone", 5))]
    watch = sends(event("ADDED", pod("b", 12)), *stale, event("ADDED", pod("c", 13)), end=False)
    with followed([pod_list(pod("a", 9), version=10)], [watch]) as (source, _):
        wait_until(lambda: "c" in names(source))
        assert names(source) == ["a", "b", "c"]


@pytest.mark.parametrize(
    "gone",
    [
        refuses(410),
        refuses(504),
        sends(event("ERROR", {"kind": "Status", "code": 410, "message": "too old resource version"})),
        sends(event("ERROR", {"kind": "Status", "code": 500, "message": "RequestWatchProgress is disabled"})),
        sends({"type": "ADDED"}),
        sends(event("ADDED", {"kind": "Pod"})),
        sends(event("SURPRISE", pod("x", 99))),
    ],
    ids=["410", "504", "410 in the stream", "500 in the stream", "no object", "no version", "unknown type"],
)
def test_where_a_watch_cannot_go_on_it_lists_again(gone: Watch) -> None:
    lists: list[object] = [pod_list(pod("a", 9), version=10), pod_list(pod("b", 30), version=50)]
    with followed(lists, [gone]) as (source, part):
        wait_until(lambda: names(source) == ["b"])
        part.until(lambda: part.asked[-1].query.get("resourceVersion") == "50")
        wait_until(lambda: not source.view().fault)


def test_a_server_that_is_busy_or_broken_is_asked_again_and_the_pods_stay() -> None:
    bad = [refuses(500), refuses(429, Retry_After="1"), lambda to, version: to.raw(b"<html>", 200)]
    with followed([pod_list(pod("a", 9), version=10)], list(bad)) as (source, part):
        part.until(lambda: not source.view().fault and len(part.asked) == 5)
        assert names(source) == ["a"]
        assert lists_of(part) == 1


def test_losing_the_server_is_shown_and_silent_and_releases_nothing() -> None:
    with followed([pod_list(pod("a", 9), version=10)], [refuses(503)]) as (source, _):
        wait_until(lambda: bool(source.view().fault))
        view = source.view()
        assert view.silent
        assert [each.pod.name for each in view.wanted] == ["a"]
        assert "the pods known from there are kept" in view.fault


def test_a_token_is_read_anew_for_every_request_and_refusal_is_explained(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("old\n")
    tls = certificate(tmp_path)

    def rotates(to: Answer, version: str) -> None:
        token.write_text("new\n")
        refuses(401)(to, version)

    with followed([rotates, pod_list(pod("a"))], [], tls, token_file=token, ca_file=tls[0]) as (source, part):
        wait_until(lambda: names(source) == ["a"])
        assert [asked.token for asked in part.asked][:2] == ["old", "new"]


def test_a_certificate_of_somebody_else_is_refused_and_no_token_is_sent(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    ours, theirs = certificate(tmp_path), certificate(tmp_path / "other")
    token = tmp_path / "token"
    token.write_text("secret")
    with followed([pod_list()], [], theirs, token_file=token, ca_file=ours[0]) as (source, part):
        wait_until(lambda: bool(source.view().fault))
        assert "certificate" in source.view().fault
        assert "caFile" in source.view().fault
        assert not part.asked
        assert "secret" not in source.view().fault


def test_a_certificate_for_another_name_is_refused(tmp_path: Path) -> None:
    tls = certificate(tmp_path, address="127.0.0.9")
    with followed([pod_list()], [], tls, ca_file=tls[0]) as (source, _):
        wait_until(lambda: bool(source.view().fault))
        assert "not valid for '127.0.0.1'" in source.view().fault


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"url": "http://10.0.0.1:8080"}, "clear text"),
        ({"url": "http://127.0.0.1", "token_file": Path("t")}, "not sent in clear text"),
        ({"url": "https://10.0.0.1", "verify": False}, "unchecked certificate"),
        ({"url": "ftp://10.0.0.1"}, "not an address"),
        ({"url": "https://"}, "not an address"),
    ],
)
def test_unsafe_addresses_are_refused(values: dict[str, Any], expected: str) -> None:
    with pytest.raises(AccessConfigError, match=expected):
        Access(**values)


def test_pages_are_put_together() -> None:
    pages: list[object] = [pod_list(pod("a"), more="t1", version=7), pod_list(pod("b", 2), more="t2", version=7)]
    with followed([*pages, pod_list(pod("c", 3), version=7)], []) as (source, part):
        wait_until(lambda: names(source) == ["a", "b", "c"])
        assert [asked.query.get("continue") for asked in part.asked[:3]] == [None, "t1", "t2"]


def test_a_page_that_is_no_list_does_not_end_pods() -> None:
    lists: list[object] = [pod_list(pod("a"), version=10), {"kind": "Status"}, pod_list(version=20)]
    with followed(lists, [refuses(410)]) as (source, _):
        wait_until(lambda: "not a PodList" in source.view().fault)
        assert names(source) == ["a"]
        wait_until(lambda: names(source) == [])


def test_a_pod_that_cannot_be_read_keeps_its_last_form_and_is_named() -> None:
    broken = pod("a", 12)
    broken["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "many"}}
    watch = sends(event("MODIFIED", broken), event("ADDED", {**pod("b", 13), "spec": 5}), end=False)
    with followed([pod_list(pod("a", 9, "2"), version=10)], [watch]) as (source, _):
        wait_until(lambda: len(source.view().problems) == 2)
        assert names(source) == ["a"]
        assert "cpu" in source.view().problems[0]
        assert "its last form is used" in source.view().problems[0]


def test_a_pod_of_another_node_is_passed_over() -> None:
    foreign = pod("b", 12, "2")
    foreign["spec"]["nodeName"] = "n2"
    with followed([pod_list(pod("a", 9), foreign, version=13)], []) as (source, _):
        wait_until(lambda: source.view().synced)
        assert names(source) == ["a"]
        assert "is bound to node n2" in source.view().problems[0]


def test_an_event_without_end_is_given_up() -> None:
    def endless(to: Answer, version: str) -> None:
        to.open()
        for _ in range(9):
            to.send_raw(b"x" * (1 << 20))

    with followed([pod_list(pod("a"), version=10)], [endless]) as (source, _):
        wait_until(lambda: "a line of more than" in source.view().fault)
        assert names(source) == ["a"]


def test_silence_beyond_the_end_of_a_watch_means_a_dead_server() -> None:
    def hangs(to: Answer, version: str) -> None:
        to.open()
        threading.Event().wait(20)

    def answer(asked: Asked, to: Answer) -> None:
        hangs(to, "") if asked.watch else to.json(pod_list(pod("a"), version=10))

    with served(answer) as part:
        source = APIServerSource(Access(part.url), "n1", Pace(0.2, 0.1)).feed
        source.start(lambda: None)
        try:
            part.until(lambda: sum(asked.watch for asked in part.asked) > 1)
            assert lists_of(part) == 1
        finally:
            source.stop()


def test_waits_grow_with_jitter_and_heed_the_server() -> None:
    rng = random.Random(1)
    waits = [backoff(failures, rng) for failures in range(20)]
    assert all(0.25 * 2**n <= wait <= 0.5 * 2**n for n, wait in enumerate(waits[:6]))
    assert max(waits) <= LONGEST_WAIT_SECONDS
    assert len(set(waits)) == 20
    assert backoff(0, rng, 30.0) == 30.0


@pytest.mark.shared
def test_a_recorded_watch_of_a_real_cluster_is_followed(shared_dir: Path) -> None:
    stream = json.loads((SHARED / "samples/kubelet/host-v1-resize/watch-stream.json").read_text())
    first = int(stream[0]["object"]["metadata"]["resourceVersion"])
    events = [{"type": each["type"], "object": each["object"]} for each in stream]
    last: dict[str, str] = {}
    for each in events:
        if each["type"] == "DELETED":
            last.pop(each["object"]["metadata"]["uid"], None)
        elif each["type"] != "BOOKMARK":
            last[each["object"]["metadata"]["uid"]] = each["object"]["metadata"]["name"]
    with followed([pod_list(version=first - 1)], [sends(*events, end=False)], node="feas-node") as (source, _):
        wait_until(lambda: sorted(names(source)) == sorted(last.values()), lambda: (names(source), last))
        assert not source.view().problems
