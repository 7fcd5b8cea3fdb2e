"""The thread of whoever talks to a server, and its end; and how a source that fails is tried again."""

from __future__ import annotations

import threading
import time

import pytest

from agent.errors import AgentError
from agent.kube import source, worker
from agent.kube.source import Feed
from agent.kube.worker import Worker
from tests.kube.servers import wait_until


def test_a_thread_that_waits_is_woken_and_ends() -> None:
    waiting, awake = threading.Event(), threading.Event()

    def work() -> None:
        waiting.set()
        awake.wait()

    one = Worker("one", work, awake.set)
    one.start()
    waiting.wait()
    one.stop()
    assert one.stopping.is_set()
    assert "one" not in {each.name for each in threading.enumerate()}


def test_one_that_cannot_be_woken_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "STOP_SECONDS", 0.1)
    awake = threading.Event()

    def work() -> None:
        awake.wait()

    one = Worker("deaf", work, lambda: None)
    one.start()
    one.stop()
    assert "deaf" in {each.name for each in threading.enumerate()}
    awake.set()


def test_one_that_never_began_ends_too() -> None:
    one = Worker("never", lambda: None, lambda: pytest.fail("nobody waits"))
    one.stop()
    assert one.stopping.is_set()


def test_waits_grow_with_failures_and_begin_anew_after_a_good_time(monkeypatch: pytest.MonkeyPatch) -> None:
    failures: list[int] = []
    monkeypatch.setattr(source, "LONGEST_WAIT_SECONDS", 0.05)

    def at_once(count: int, *_: object) -> float:
        failures.append(count)
        return 0.0

    monkeypatch.setattr(source, "backoff", at_once)

    def work() -> float:
        if len(failures) == 3:
            time.sleep(0.1)  # followed well, until it broke
        raise AgentError("gone")

    feed = Feed("some", work, lambda: None)
    feed.start(lambda: None)
    wait_until(lambda: len(failures) > 4)
    feed.stop()
    assert failures[:5] == [0, 1, 2, 0, 1]


def test_a_defect_is_a_fault_of_the_source_which_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(source, "FIRST_WAIT_SECONDS", 0.01)
    well = threading.Event()

    def work() -> float:
        if not well.is_set():
            raise KeyError("metadata")
        feed.heard()
        return 60.0

    feed = Feed("some", work, lambda: None)
    feed.start(lambda: None)
    wait_until(lambda: feed.view().fault.startswith("internal error: KeyError: 'metadata'"))
    well.set()
    wait_until(lambda: not feed.view().fault)
    feed.stop()
    assert caplog.records[0].getMessage() == "a pod source failed"
    assert caplog.records[0].exc_info
