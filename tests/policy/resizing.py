"""A node whose pods are resized: what a manifests source wants, what the kernel does, and what happened, on few lines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from agent.model.machine import CPUTopology
from agent.model.pod import Container, Pod, PodCondition, ResourceRequirements
from agent.model.quantity import Quantity
from agent.model.state import PodRecord, State
from agent.policy.managers import Managers
from agent.policy.node_fit import NodeCapacity
from agent.policy.observation import Decision, Observation, Refused, Wanted
from agent.policy.plan import decide, settle
from agent.policy.resize_lifecycle import Actuation
from agent.policy.resize_terms import conditions
from agent.policy.restore import fresh
from tests.nodes import node
from tests.pods import amounts
from tests.states import EPOCH

EXCLUSIVE = {
    "InPlacePodVerticalScalingExclusiveCPUs": True,
    "InPlacePodVerticalScalingExclusiveMemory": True,
    "PodLevelResourceManagers": True,
    "CPUManagerPolicyAlphaOptions": True,
}


def capacity(allocatable: str) -> NodeCapacity:
    """A node of these allocatable amounts ("cpu=4 memory=8Gi") and room for 110 pods."""
    values = {"pods": Quantity.of(110), **amounts(allocatable)}
    return NodeCapacity(values, values)


class Node:
    """Pods by name; `look` decides about them as they are wanted now, `kernel` says what became of their sizes."""

    def __init__(self, managers: Managers, node: NodeCapacity) -> None:
        self.managers, self.node = managers, node
        self.state = State(EPOCH, grants=fresh(managers))
        self.wanted: dict[str, Pod] = {}
        self.refused: Mapping[str, Refused] = {}
        self.now = 0.0

    def want(self, *pods: Pod) -> list[Decision]:
        """The source wants these pods as they are given here, beside those that it wants already."""
        self.wanted |= {pod.name: pod for pod in pods}
        return self.look()

    def end(self, name: str) -> list[Decision]:
        """The source no longer wants this pod, and its containers have stopped."""
        del self.wanted[name]
        return self.look()

    def look(self, *, retry: bool = False) -> list[Decision]:
        self.now += 1
        seen = Observation([Wanted(pod) for pod in self.wanted.values()], now_seconds=self.now)
        plan = decide(self.managers, self.node, self.state, seen, self.refused, retry=retry)
        self.state, self.refused = plan.state, plan.refused
        return list(plan.decisions)

    def kernel(self, errors: Mapping[str, str] | None = None, unsettled: str = "") -> list[Decision]:
        """What became of the sizes: all in force, but for these."""
        plan = settle(self.state, Actuation(errors or {}, frozenset(unsettled.split())))
        self.state = plan.state
        return list(plan.decisions)

    def restart(self) -> list[Decision]:
        """The agent starts again from the state."""
        return self.look(retry=True)

    def record(self, name: str) -> PodRecord:
        return self.state.pods[self.wanted[name].uid]

    def conditions(self, name: str) -> list[PodCondition]:
        return list(conditions(self.record(name).resize))

    def cpus(self, name: str, container: str = "app") -> str:
        return str(self.state.grants.cpu.entries[self.wanted[name].uid][container])


def exclusive_node(topology: CPUTopology, reserved: str = "0", **config: Any) -> Node:
    """A node that resizes exclusive CPUs and memory in place. reserved, config: as for `tests.nodes.node`."""
    managers = node(topology, reserved, feature_gates=EXCLUSIVE, **config)
    return Node(managers, capacity(f"cpu={topology.num_cpus - 1} memory=512Gi"))


def cpu(count: int, memory: str = "1Gi") -> str:
    """Amounts as `tests.pods.amounts` reads them."""
    return f"cpu={count} memory={memory}"


def sizes(pod: Pod, requests: str, limits: str | None = None, *, container: str = "app") -> Pod:
    """The pod with other sizes of one container."""
    resources = ResourceRequirements(amounts(requests), amounts(requests if limits is None else limits))
    changed: tuple[Container, ...] = tuple(
        replace(each, resources=resources) if each.name == container else each for each in pod.containers
    )
    return replace(pod, containers=changed)


def said(decisions: list[Decision]) -> list[str]:
    return [str(decision.event) for decision in decisions]
