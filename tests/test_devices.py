"""CPUs go where the kubelet's devices are: a running agent beside a kubelet's /pods and its PodResources socket."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import pytest
from click.testing import CliRunner

from agent.cli import cli
from agent.client import connect, watch
from agent.model.cpuset import CPUSet
from agent.proto import podresources_v1_pb2 as v1
from agent.serve.podresources_upstream import passed_devices
from tests.agents import Agent, running
from tests.formats.test_podresources import recorded
from tests.kube.servers import Answer, Asked, pod_list, served, wait_until
from tests.kube.servers import pod as listed
from tests.serve.browser import free_port
from tests.serve.kubelets import Kubelet, device, holding, serving
from tests.serve.test_podresources_upstream import samples

GPU = "example.com/gpu"
NODES = (CPUSet.parse("0-7,16-23"), CPUSet.parse("8-15,24-31"))
ALL = [device(GPU, "gpu-0", numa=0), device(GPU, "gpu-1", numa=1)]


def asking(name: str, resource: str = GPU) -> dict[str, Any]:
    """A pod that asks for a device, as a kubelet lists it."""
    made = listed(name, 1, "2")
    resources = made["spec"]["containers"][0]["resources"]
    resources["limits"][resource] = resources["requests"][resource] = "1"
    return made


@dataclass
class Node:
    """The two sockets of a kubelet, and the agent beside it."""

    path: Path
    resources: Kubelet
    pods: dict[str, Any] = field(default_factory=dict)
    events: list[tuple[str, str]] = field(default_factory=list)
    port: int = 0
    agent: Agent | None = None
    over: threading.Event = field(default_factory=threading.Event)

    def answer(self, asked: Asked, to: Answer) -> None:
        """The kubelet lists the pods; the API server knows none and takes Events."""
        if asked.method == "POST":
            self.events.append((asked.body["reason"], asked.body["involvedObject"]["name"]))
            to.json(asked.body, 201)
        elif asked.watch:
            to.open()
            self.over.wait()
        else:
            to.json(pod_list(*self.pods.values()) if asked.path == "/pods" else pod_list())

    def until(self, name: str, done: Callable[[Mapping[str, Any]], bool]) -> Mapping[str, Any]:
        assert self.agent is not None
        seen: list[Mapping[str, Any]] = []

        def look(status: Mapping[str, Any]) -> bool:
            seen[:] = [pod for pod in status["pods"] if pod["name"] == name]
            return bool(seen) and done(seen[0])

        self.agent.until(look)
        return seen[0]

    def metric(self, name: str, **labels: str) -> float:
        return next(each.value for each in samples(self.port, name) if labels.items() <= each.labels.items())


@contextmanager
def beside(tmp_path: Path, *, wait: float = 20.0, up: bool = True, period: float = 0.2) -> Iterator[Node]:
    """up: whether the kubelet's PodResources socket is there. period: between two questions, where nothing changes."""
    node = Node(tmp_path / "kubelet.sock", Kubelet(devices=ALL), port=free_port())
    upstream = {"socket": str(node.path), "periodSeconds": period, "timeoutSeconds": 1.0, "waitSeconds": wait}
    with served(node.answer) as server, serving(node.resources, node.path) if up else nullcontext():
        config = {
            "sources": {
                "manifests": None,
                "kubelet": {"url": server.url, "periodSeconds": 0.5},
                "apiserver": {"url": server.url},
            },
            "topologyManagerPolicy": "single-numa-node",
            "podResources": {"socket": str(tmp_path / "pr" / "kubelet.sock"), "qps": 0, "upstream": upstream},
            "reports": {"kubernetes": {"nodeResourceTopology": False, "placementAnnotations": False}},
            "http": {"port": node.port},
        }
        try:
            with running(tmp_path, **config) as agent:
                node.agent = agent
                yield node
        finally:
            node.over.set()


def placed(pod: Mapping[str, Any]) -> bool:
    return bool(pod["containers"][0]["isolation"] == "container")


def cpus(pod: Mapping[str, Any]) -> CPUSet:
    return CPUSet.parse(pod["containers"][0]["cpus"])


def test_cpus_follow_the_device_that_is_told_after_the_pod_was_seen(tmp_path: Path) -> None:
    with beside(tmp_path) as node:
        node.pods["a"] = asking("a")
        waiting = node.until("a", lambda pod: bool(pod["unplaced"]))
        assert "waits for the kubelet to tell its devices: example.com/gpu" in waiting["unplaced"]
        assert not placed(waiting)
        node.resources.pods = [holding("a", device(GPU, "gpu-1", numa=1))]
        pod = node.until("a", placed)
        assert cpus(pod) <= NODES[1]
        assert (pod["unplaced"], pod["misaligned"]) == ("", "")
        assert node.events == []
        assert node.resources.asked < 60


def test_cpus_follow_a_device_whose_plugin_came_after_the_last_question(tmp_path: Path) -> None:
    with beside(tmp_path, period=3600.0) as node:
        node.resources.devices = []
        node.pods["first"] = listed("first", 1, "2")
        node.until("first", placed)
        asked = node.resources.asked
        wait_until(lambda: node.resources.asked > asked)  # by now the agent knows that there are no devices
        node.resources.devices = ALL
        node.resources.pods = [holding("a", device(GPU, "gpu-1", numa=1))]
        node.pods["a"] = asking("a")
        assert cpus(node.until("a", placed)) <= NODES[1]


def test_a_device_where_no_cpus_are_left_leaves_the_pod_unplaced_with_the_reason(tmp_path: Path) -> None:
    with beside(tmp_path) as node:
        node.pods["big"] = listed("big", 1, "16")
        node.until("big", placed)
        node.pods["a"] = asking("a")
        where = next(index for index, cpus_there in enumerate(NODES) if cpus(node.until("big", placed)) <= cpus_there)
        node.resources.pods = [holding("a", device(GPU, f"gpu-{where}", numa=where))]
        pod = node.until("a", lambda pod: "cannot be allocated" in pod["unplaced"])
        assert not placed(pod)
        wait_until(lambda: ("Unplaced", "a") in node.events)
        assert node.agent is not None
        explained = node.agent.control.call("explain", {"pod": "a"})["pods"][0]["text"]
        assert "example.com/gpu and cpu have none in common" in explained
        del node.pods["big"]
        assert cpus(node.until("a", placed)) <= NODES[where]


def test_devices_that_turn_out_elsewhere_are_reported_and_nobody_is_moved(tmp_path: Path) -> None:
    with beside(tmp_path, wait=0.0) as node:
        node.pods["a"] = asking("a")
        before = cpus(node.until("a", placed))
        far = next(index for index, there in enumerate(NODES) if not before <= there)
        node.resources.pods = [holding("a", device(GPU, f"gpu-{far}", numa=far))]
        pod = node.until("a", lambda pod: bool(pod["misaligned"]))
        assert pod["misaligned"] == f"container main: 1 of {GPU} on NUMA node {far}, its CPUs on {1 - far}"
        assert cpus(pod) == before
        wait_until(lambda: node.events == [("DevicesElsewhere", "a")], lambda: node.events)
        assert node.metric("pinfold_marked_pods", mark="misaligned") == 1
        assert node.agent is not None
        assert node.agent.log().count("devices on other NUMA nodes") == 1
        with connect(tmp_path / "node.sock") as service:
            now = next(watch(service))
        assert [each.misaligned for each in now.pods.values()] == [pod["misaligned"]]


def test_a_socket_that_is_not_there_is_no_preference_and_said_once(tmp_path: Path) -> None:
    with beside(tmp_path, wait=300.0, up=False) as node:
        node.pods["a"], node.pods["b"] = asking("a"), asking("b")
        for name in node.pods:
            assert placed(node.until(name, placed))
        assert node.agent is not None
        assert node.agent.log().count("upstream PodResources does not answer") == 1


def test_a_kubelet_that_answers_too_often_asked_is_waited_for(tmp_path: Path) -> None:
    with beside(tmp_path) as node:
        node.resources.refusal = grpc.StatusCode.RESOURCE_EXHAUSTED
        node.pods["a"] = asking("a")
        node.until("a", lambda pod: bool(pod["unplaced"]))
        node.resources.pods = [holding("a", device(GPU, "gpu-1", numa=1))]
        node.resources.refusal = None
        assert cpus(node.until("a", placed)) <= NODES[1]


def test_devices_that_are_never_told_are_not_waited_for_long(tmp_path: Path) -> None:
    with beside(tmp_path, wait=0.5) as node:
        node.pods["a"] = asking("a")
        assert node.until("a", placed)["unplaced"] == ""


def test_what_is_no_device_of_this_node_is_not_waited_for(tmp_path: Path) -> None:
    with beside(tmp_path, wait=300.0) as node:
        node.pods["first"] = asking("first")
        node.until("first", lambda pod: bool(pod["unplaced"]))
        node.resources.pods = [holding("first", device(GPU, "gpu-0", numa=0))]
        node.until("first", placed)  # by now all devices of the node are known
        node.pods["a"] = asking("a", "example.com/licence")
        assert node.until("a", placed)["unplaced"] == ""


def test_recorded_decisions_with_devices_replay_to_the_same(tmp_path: Path) -> None:
    with beside(tmp_path) as node:
        for number, name in enumerate("abcd"):
            node.pods[name] = asking(name)
            node.until(name, lambda pod: bool(pod["unplaced"]))
            node.resources.pods = [
                *node.resources.pods,
                holding(name, device(GPU, f"gpu-{number % 2}", numa=number % 2)),
            ]
            node.until(name, placed)
        assert node.agent is not None
        node.agent.stop()
    decisions = tmp_path / "state" / "decisions.jsonl"
    assert decisions.read_text().count('"devices"') == 4
    found = CliRunner().invoke(cli, ["replay", "--check", str(decisions)])
    assert (found.exit_code, found.output.strip().splitlines()[-1]) == (0, "replay: 5 ok, 0 differ, 0 known")


@pytest.mark.shared
def test_a_recorded_kubelet_without_devices_says_nothing(shared_dir: Path) -> None:
    folder = shared_dir / "samples" / "kubelet" / "vm-v2-2numa-smt"
    listing = v1.ListPodResourcesResponse.FromString(recorded(folder / "podresources-List.txt"))
    all_of_it = v1.AllocatableResourcesResponse.FromString(
        recorded(folder / "podresources-GetAllocatableResources.txt")
    )
    told = passed_devices(listing, all_of_it, frozenset({"u"}))
    assert (len(listing.pod_resources) > 0, told.nodes, told.allocatable_nodes) == (True, {}, {})
