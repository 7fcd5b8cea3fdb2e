"""Looks at a node, one after the other, as the agent takes them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from agent.model.pod import Pod
from agent.model.quantity import Quantity
from agent.model.state import Epoch, State
from agent.policy.managers import Managers
from agent.policy.node_fit import NodeCapacity
from agent.policy.observation import Observation, Plan, Refused, Wanted
from agent.policy.plan import decide
from agent.policy.restore import fresh
from tests.nodes import cpus_of, named, node
from tests.pods import guaranteed
from tests.policy.cpu_machines import regular

ROOM = NodeCapacity({}, {name: Quantity.of(2**50) for name in ("cpu", "memory", "pods")})


@dataclass
class Node:
    """A node of eight CPUs, CPU 0 reserved, and what the last look left there."""

    managers: Managers = field(default_factory=lambda: node(regular(8)))
    room: NodeCapacity = ROOM
    refused: Mapping[str, Refused] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.state = State(Epoch(0, "0" * 16), grants=fresh(self.managers))

    def look(self, *pods: Pod | Wanted, retry: bool = False, **seen: Any) -> str:
        """What happened: "admitted a, refused b". seen: the other fields of an observation."""
        wanted = [pod if isinstance(pod, Wanted) else Wanted(pod) for pod in pods]
        plan = decide(self.managers, self.room, self.state, Observation(wanted, **seen), self.refused, retry=retry)
        return self.adopt(plan)

    def adopt(self, plan: Plan) -> str:
        self.state, self.refused = plan.state, plan.refused
        return ", ".join(f"{decision.event} {decision.pod.name}" for decision in plan.decisions)

    @property
    def cpus(self) -> str:
        return cpus_of(self.state.grants)


A, B, C = (named(name, guaranteed(count)) for name, count in (("a", "2"), ("b", "4"), ("c", "3")))


def nameless(name: str, cpus: str = "2") -> Pod:
    """A pod whose manifest gives it no UID."""
    return replace(named(name, guaranteed(cpus)), uid="")
