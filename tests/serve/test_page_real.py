"""The status page in a real browser, from a real agent."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.model.cpuset import CPUSet
from tests.agents import Agent, pod_text, running
from tests.serve.browser import Browser, browsing, free_port, missing

pytestmark = pytest.mark.real

_OWNERS = """
const owners = {};
for (const square of document.querySelectorAll('rect.cpu'))
  owners[square.dataset.cpu] = square.querySelector('title').textContent.split('\\n').pop();
return owners;
"""
_LIT = (
    "return [...document.querySelectorAll('rect.lit')].map(square => Number(square.dataset.cpu)).sort((a, b) => a - b)"
)
_TEXT = "return document.querySelector('main').innerText"


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Agent]:
    with running(tmp_path, http={"port": free_port()}) as agent:
        yield agent


@pytest.fixture
def browser(agent: Agent, tmp_path: Path) -> Iterator[Browser]:
    if why := missing():
        pytest.skip(why)
    with browsing(tmp_path) as browser:
        yield browser


def address(agent: Agent) -> str:
    return f"http://127.0.0.1:{agent.config['http']['port']}/"


def test_every_cpu_shows_its_owner_without_a_complaint_of_the_browser(agent: Agent, browser: Browser) -> None:
    agent.manifest("db", pod_text("db", "4"))
    agent.manifest("web", pod_text("web"))
    agent.until(lambda status: len(status["pods"]) == 2)
    browser.open(address(agent))
    owners = {int(cpu): owner for cpu, owner in browser.run(_OWNERS).items()}
    held = CPUSet.parse(agent.cpus()["db"])
    assert set(owners) == set(range(32))
    assert {cpu for cpu, owner in owners.items() if owner == "default/db: exclusive, container main"} == set(held)
    assert owners[0] == "reserved for the system"
    assert {owner for cpu, owner in owners.items() if cpu not in held and cpu} == {
        "shared by all containers without CPUs of their own"
    }
    assert browser.complaints() == []


def test_pointing_at_a_container_lights_its_cpus(agent: Agent, browser: Browser) -> None:
    agent.manifest("db", pod_text("db", "4"))
    agent.until_pod("db")
    browser.open(address(agent))
    held = list(CPUSet.parse(agent.cpus()["db"]))
    browser.point_at(".pods tr[data-cpus] td")
    assert browser.run(_LIT) == held
    browser.point_at("h1")
    assert browser.run(_LIT) == []
    browser.point_at(f"rect.cpu[data-cpu='{held[0]}']")
    assert browser.run(_LIT) == held
    browser.run("document.querySelector('.pods tr[data-cpus]').focus()")
    assert browser.run(_LIT) == held


def test_the_page_follows_changes_and_outlives_a_restart_of_the_agent(agent: Agent, browser: Browser) -> None:
    browser.open(address(agent))
    browser.run("window.sameDocument = true")
    agent.manifest("late", pod_text("late", "2"))
    browser.until(f"{_TEXT}.includes('default/late')")
    agent.manifest("huge", pod_text("huge", "200"))
    text = browser.until(_TEXT, lambda text: "Refused pods (1)" in text)
    assert "default/huge" in text
    assert "Asks for 200 exclusive CPUs; free now: NUMA 0:" in text
    assert browser.complaints() == []

    agent.kill()
    browser.until("return document.getElementById('link').textContent", lambda text: "no answer" in text)
    agent.remove("late")
    agent.start()
    agent.until(lambda status: not status["pods"])
    browser.until(f"return !({_TEXT.removeprefix('return ')}).includes('default/late')")
    browser.until("return document.getElementById('link').textContent === 'live'")
    assert browser.run("return window.sameDocument") is True


def test_the_reasoning_of_a_refusal_is_one_link_away(agent: Agent, browser: Browser) -> None:
    agent.manifest("a", pod_text("a", "20"))
    agent.until_pod("a")
    agent.manifest("b", pod_text("b", "20"))
    agent.until(lambda status: len(status["refused"]) == 1)
    browser.open(address(agent))
    browser.run("document.querySelector('.refusal a').click()")
    text = browser.until(_TEXT, lambda text: "Why: default/b" in text)
    assert "would fit without any one of: default/a" in text
    assert "NUMA 1: " in text
    assert browser.complaints() == []


def test_what_a_manifest_says_stays_text(agent: Agent, browser: Browser) -> None:
    hostile = "<img src=x onerror=document.title=1><script>document.title=2</script>"
    agent.manifest("bad", f"apiVersion: v1\nkind: Pod\nmetadata: {{name: '{hostile}'}}\nspec: {{containers: []}}\n")
    agent.until(lambda status: bool(status["problems"] or status["refused"]))
    browser.open(address(agent))
    assert "onerror" in browser.run(_TEXT)
    assert browser.run("return document.querySelectorAll('main img, main script').length") == 0
    assert browser.run("return document.title").endswith("pinfold")
    assert browser.complaints() == []


def test_a_phone_sees_everything_without_scrolling_the_page_sideways(agent: Agent, tmp_path: Path) -> None:
    if why := missing():
        pytest.skip(why)
    agent.manifest("db", pod_text("db", "4"))
    agent.until_pod("db")
    with browsing(tmp_path, width=500) as browser:  # the narrowest window that it opens
        browser.open(address(agent))
        widths = browser.run("return [document.documentElement.scrollWidth, window.innerWidth]")
        assert widths[0] <= widths[1]
