"""Clients of a real agent that go in the middle of a call leave nothing in its log: anybody on the socket could fill it."""

from __future__ import annotations

import json
from pathlib import Path

from tests.agents import pod_text, running
from tests.serve.clients import client, names
from tests.serve.raw_http2 import RawClient

LEAVERS = 30


def test_clients_that_leave_before_their_answer_are_not_logged(tmp_path: Path) -> None:
    with running(tmp_path) as agent:
        agent.manifest("p", pod_text("p", "1"))
        agent.until_pod("p")
        with client(agent.socket) as stub:
            leavers = [RawClient(agent.socket, window=0) for _ in range(LEAVERS)]  # answers to them cannot be written
            for leaver in leavers:
                leaver.call("/v1.PodResourcesLister/List")
            names(stub)
            for leaver in leavers:
                leaver.close()
            names(stub)
        assert agent.stop() == 0
        events = [json.loads(line) for line in agent.log().splitlines()]
    assert not [event for event in events if event["level"] == "error" or "traceback" in event]
