"""CPUs that come and go: a captured machine whose files change, and real kernel events that say so to a running agent."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from agent.node.hotplug import HotplugError, KernelEvents
from tests.agents import TWO_SOCKETS, Agent, pod_text, running

pytestmark = pytest.mark.real
CPUS = "sys/devices/system/cpu"


@dataclass
class Machine:
    """A copy of the captured two-socket machine, under a running agent."""

    root: Path
    agent: Agent
    event: Callable[[], object]

    def online(self, cpus: str, *, off: int | None = None, on: int | None = None) -> None:
        """These CPUs are online from now on, and the kernel says that something has changed."""
        (self.root / CPUS / "online").write_text(f"{cpus}\n")
        for cpu, state in ((off, "0"), (on, "1")):
            if cpu is not None:
                (self.root / CPUS / f"cpu{cpu}" / "online").write_text(f"{state}\n")
        self.event()

    def until_online(self, cpus: str) -> Mapping[str, Any]:
        return self.agent.until(lambda status: status["cpus"]["online"] == cpus)


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    trigger = next(iter(sorted(Path("/sys/devices/system/cpu").glob("cpu[0-9]*/uevent"))), None)
    try:
        KernelEvents()
        assert trigger is not None
        trigger.write_text("change")
    except (OSError, HotplugError) as error:
        pytest.skip(f"no kernel events can be made here: {error}")
    root = tmp_path / "root"
    shutil.copytree(TWO_SOCKETS, root, symlinks=True)
    with running(tmp_path, node={"root": str(root)}) as agent:
        yield Machine(root, agent, lambda: trigger.write_text("change"))


def test_a_shared_cpu_goes_and_comes_back(machine: Machine) -> None:
    machine.agent.manifest("db", pod_text("db", "2"))
    machine.agent.until_pod("db")
    machine.online("0-30", off=31)
    status = machine.until_online("0-30")
    assert status["cpus"]["shared"] == "0,2-16,18-30"
    assert not status["pods"][0]["degraded"]
    machine.online("0-31", on=31)
    status = machine.until_online("0-31")
    assert status["cpus"]["shared"] == "0,2-16,18-31"
    assert machine.agent.cpus() == {"db": "1,17"}


def test_an_exclusive_cpu_goes_the_pod_is_marked_and_well_again_when_it_returns(machine: Machine) -> None:
    machine.agent.manifest("db", pod_text("db", "2"))
    machine.agent.until_pod("db")
    machine.online("0-16,18-31", off=17)
    status = machine.agent.until(lambda status: any(pod["degraded"] for pod in status["pods"]))
    assert "17" in status["pods"][0]["degraded"]
    assert "17" not in status["cpus"]["shared"].split(",")
    machine.agent.manifest("other", pod_text("other", "2"))
    machine.agent.until_pod("other")
    assert machine.agent.cpus()["other"] == "2,18"
    machine.online("0-31", on=17)
    status = machine.agent.until(lambda status: not any(pod["degraded"] for pod in status["pods"]))
    assert machine.agent.cpus()["db"] == "1,17"


def test_events_without_a_change_are_nothing(machine: Machine) -> None:
    machine.agent.manifest("db", pod_text("db", "2"))
    before = machine.agent.until_pod("db")
    machine.event()
    machine.agent.until(lambda status: machine.agent.log().count('"hotplug"') >= 1)
    assert machine.agent.status()["generation"] == before["generation"]


def test_a_tree_that_cannot_be_read_keeps_the_machine_and_says_so(machine: Machine) -> None:
    machine.agent.manifest("db", pod_text("db", "2"))
    machine.agent.until_pod("db")
    (machine.root / CPUS / "online").rename(machine.root / CPUS / "away")
    (machine.root / CPUS / "present").rename(machine.root / CPUS / "gone")
    shutil.move(machine.root / CPUS, machine.root / "cpu")
    machine.event()
    machine.agent.until(lambda status: not status["ready"])
    assert machine.agent.cpus() == {"db": "1,17"}
