"""A simulated cluster: agents that push as they do, a network that loses and repeats, accountants that restart and forget."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.model.queue import ClusterNode
from agent.queues.accountant import Accountant
from agent.queues.accountant_view import capture, view_of
from agent.queues.accounting import Taken
from agent.queues.charge import NANO
from agent.queues.node_report import NodeReport
from agent.queues.node_report_format import decode_report, encode_report
from tests.queues.node_reports import changes
from tests.queues.test_accountant import CORES, EPOCH, accountant, objects, reported


@dataclass
class Agent:
    """One node: its pods by UID with their CPUs, and the report that was acknowledged last."""

    node: str
    pods: dict[str, float] = field(default_factory=dict)
    generation: int = 0
    acknowledged: NodeReport | None = None

    def change(self, chance: Random) -> None:
        self.generation += 1
        uid = f"{self.node}-{chance.randrange(4)}"
        if uid in self.pods and chance.random() < 0.4:
            del self.pods[uid]
        else:
            self.pods[uid] = chance.randrange(1, 50) / 10

    def report(self) -> NodeReport:
        pods = {uid: reported(cores, uid) for uid, cores in self.pods.items()}
        return NodeReport(self.node, (EPOCH, self.generation), pods=pods, allocatable=CORES)


class Cluster:
    """Agents and one accountant. kept: what its store has, by node."""

    def __init__(self, nodes: int, seed: int) -> None:
        self.chance = Random(seed)
        self.agents = [Agent(f"n{number}") for number in range(nodes)]
        self.taken = objects(nodes=tuple(ClusterNode(agent.node, CORES) for agent in self.agents))
        self.accountant = accountant(taken=self.taken)
        self.kept: dict[str, bytes] = {}
        self.late: list[NodeReport] = []

    def push(self, agent: Agent, *, lossy: bool) -> None:
        full = agent.report()
        report = full if agent.acknowledged is None else changes(agent.acknowledged, full)
        if lossy and self.chance.random() < 0.2:
            return  # lost on the way
        taken = self.take(report)
        if lossy and self.chance.random() < 0.3:
            self.late.append(report)
        if lossy and self.chance.random() < 0.2:
            return  # taken, but the answer is lost
        agent.acknowledged = None if taken is Taken.GAP else full
        if taken is Taken.GAP:
            self.take(full)
            agent.acknowledged = full

    def take(self, report: NodeReport) -> Taken:
        taken = self.accountant.take_report(decode_report(encode_report(report)), 1)
        whole = self.accountant.report_of(report.node)
        if taken is Taken.APPLIED and whole is not None and self.chance.random() < 0.9:  # the store may lag behind
            self.kept[report.node] = encode_report(whole)
        return taken

    def step(self) -> None:
        agent = self.chance.choice(self.agents)
        match self.chance.randrange(12):
            case 0:
                self.restart()
            case 1 if self.late:
                self.take(self.late.pop(self.chance.randrange(len(self.late))))
            case 2:
                agent.acknowledged = None  # the agent restarts
            case 3:
                self.accountant.release(agent.node, 1)
                self.kept.pop(agent.node, None)
            case _:
                agent.change(self.chance)
                self.push(agent, lossy=True)

    def restart(self) -> None:
        self.accountant = accountant(taken=self.taken)
        for kept in self.kept.values():
            self.accountant.resume(decode_report(kept), 1)


def truth(agents: list[Agent]) -> int:
    return sum(round(cores * NANO) for agent in agents for cores in agent.pods.values())


def sums(found: Accountant) -> Mapping[str, int]:
    return {name: found.accounting.totals.of(name).allocated.cpu for name in ("leaf", "dept")}


def ends_right(cluster: Cluster) -> None:
    for agent in cluster.agents:
        cluster.push(agent, lossy=False)
    for late in cluster.late:
        cluster.take(late)
    right = truth(cluster.agents)
    assert sums(cluster.accountant) == {"leaf": right, "dept": right}
    view = view_of(capture(cluster.accountant, 1))
    assert view.shares["dept"].allocated_non_preemptible.cpu == right / 10**6
    assert not view.capture.missing
    rebuilt = accountant(taken=cluster.taken)
    for agent in cluster.agents:
        rebuilt.take_report(agent.report(), 1)
    assert sums(rebuilt) == sums(cluster.accountant)


@given(st.integers(0, 2**32), st.integers(1, 5), st.integers(0, 60))
def test_after_any_faults_one_delivery_of_each_node_makes_everything_right(seed: int, nodes: int, steps: int) -> None:
    cluster = Cluster(nodes, seed)
    for _ in range(steps):
        cluster.step()
    ends_right(cluster)


def test_thousands_of_nodes_with_faults_end_right_too() -> None:
    cluster = Cluster(2000, seed=1)
    for agent in cluster.agents:
        agent.change(cluster.chance)
        cluster.push(agent, lossy=True)
    for _ in range(3000):
        agent = cluster.chance.choice(cluster.agents)
        agent.change(cluster.chance)
        cluster.push(agent, lossy=True)
    cluster.restart()
    ends_right(cluster)


@pytest.mark.parametrize("silent", [0, 1, 3])
def test_nodes_that_fail_keep_their_charge_until_they_are_released(silent: int) -> None:
    cluster = Cluster(3, seed=2)
    for agent in cluster.agents:
        agent.change(cluster.chance)
        cluster.push(agent, lossy=False)
    for agent in cluster.agents[silent:]:
        cluster.accountant.hear(agent.node, 500)
    cluster.accountant.tick(501)
    view = view_of(capture(cluster.accountant, 501))
    assert sorted(view.capture.stale_since) == [agent.node for agent in cluster.agents[:silent]]
    assert sums(cluster.accountant)["dept"] == truth(cluster.agents)
    for agent in cluster.agents[:silent]:
        cluster.accountant.release(agent.node, 502)
    assert sums(cluster.accountant)["dept"] == truth(cluster.agents[silent:])
