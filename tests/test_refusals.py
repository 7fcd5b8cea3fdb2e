"""A running agent whose pod waits while others come and go: each reason is logged and counted once, and the newest shown."""

from __future__ import annotations

import json
import re
import urllib.request
from pathlib import Path

from tests.agents import PATIENCE_SECONDS, Agent, pod_text, running
from tests.serve.browser import free_port


def refusals(agent: Agent) -> list[str]:
    """The reasons that were logged of pod c, in their order."""
    lines = [json.loads(line) for line in agent.log().splitlines()]
    return [each["reason"] for each in lines if each["event"] == "refused" and each["pod"] == "default/c"]


def counted(agent: Agent) -> dict[str, float]:
    """Reason -> how often the agent says that pods were refused for it."""
    url = f"http://127.0.0.1:{agent.config['http']['port']}/metrics"
    with urllib.request.urlopen(url, timeout=PATIENCE_SECONDS) as answer:
        text = answer.read().decode()
    found = re.findall(r'^pinfold_admission_rejections_total\{reason="(.*)"\} (.*)$', text, re.M)
    return {reason: float(value) for reason, value in found if float(value)}


def until_reason(agent: Agent, reason: str) -> str:
    """The UID under which pod c is refused, once it is for this reason and nobody else is."""
    (refused,) = agent.until(lambda status: [each["reason"] for each in status["refused"]] == [reason])["refused"]
    uid: str = refused["uid"]
    return uid


def test_reasons_that_take_turns_are_logged_and_counted_once_while_the_status_shows_the_newest(tmp_path: Path) -> None:
    """Of 31 CPUs c wants 20: beside `own` they are not free, beside `mixed` they are, but the node has too little left."""
    with running(tmp_path, http={"port": free_port()}) as agent:
        agent.manifest("own", pod_text("own", "12"))
        agent.until_pod("own")
        agent.manifest("c", pod_text("c", "20"))
        uids = {until_reason(agent, "UnexpectedAdmissionError")}
        for _ in range(3):
            agent.manifest("mixed", pod_text("mixed", "12500m"))
            agent.until_pod("mixed")
            agent.remove("own")
            uids.add(until_reason(agent, "OutOfcpu"))
            agent.manifest("own", pod_text("own", "12"))
            agent.until_pod("own")
            agent.remove("mixed")
            agent.until(lambda status: [pod["name"] for pod in status["pods"]] == ["own"])
            uids.add(until_reason(agent, "UnexpectedAdmissionError"))
        assert refusals(agent) == ["UnexpectedAdmissionError", "OutOfcpu"]
        assert counted(agent) == {"UnexpectedAdmissionError": 1, "OutOfcpu": 1}
        assert len(uids) == 1

        agent.manifest("c", pod_text("c", "21"))
        agent.until(lambda status: status["refused"][0]["uid"] not in uids)
        assert refusals(agent) == ["UnexpectedAdmissionError", "OutOfcpu", "UnexpectedAdmissionError"]
        agent.remove("own")
        agent.until_pod("c")
