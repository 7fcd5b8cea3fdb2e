"""Views of a node for tests of what is served: a small machine, and pods that were really decided on."""

from __future__ import annotations

from dataclasses import replace

from agent.model.cpuset import CPUSet
from agent.model.pod import Pod
from agent.model.state import Epoch, PolicyInForce, State
from agent.policy.managers import Managers
from agent.policy.node_fit import NodeCapacity
from agent.policy.observation import Observation, Wanted
from agent.policy.plan import decide
from agent.policy.restore import fresh
from agent.serve.board import NodeView
from tests.nodes import named, node
from tests.pods import amounts, app
from tests.policy.cpu_machines import regular

CAPACITY = NodeCapacity(amounts("cpu=1000 memory=1Ti pods=1000"), amounts("cpu=1000 memory=1Ti pods=1000"))


def exclusive(name: str, cpus: int) -> Pod:
    """A pod whose one container has so many CPUs for itself."""
    size = f"cpu={cpus} memory=1Gi"
    return named(name, app(size, size, name="main"))


def shared(name: str) -> Pod:
    """A pod in the shared pool."""
    return named(name, app(name="main"))


def empty_view(managers: Managers | None = None) -> NodeView:
    """A node of 16 CPUs in two NUMA nodes, CPU 0 reserved, memory managed."""
    managers = managers or node(regular(16, sockets=2, numa=2), memory_policy="Static", topology_policy="restricted")
    policy = PolicyInForce("static", reserved_cpus=CPUSet.of([0]), memory_policy="Static", topology_policy="restricted")
    state = State(Epoch(1, "00112233445566aa"), 1, "boot", policy, fresh(managers))
    return NodeView(state, managers, CAPACITY)


def with_pods(view: NodeView, *pods: Pod) -> NodeView:
    """The view once exactly these pods are wanted."""
    seen = Observation([Wanted(pod) for pod in pods], now_seconds=1.0)
    plan = decide(view.managers, view.capacity, view.state, seen, view.refused)
    return replace(view, state=plan.state, refused=plan.refused)
